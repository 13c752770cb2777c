"""A program in a pseudo-terminal of its own: what a person sees of it, and how it leaves the terminal."""

import copy
import os
import re
import signal
import sys
import termios
import textwrap
import time

import pexpect
import pyte

LIMIT = 60  # seconds; a program that takes longer hangs
MOMENT = 0.02

# What terminals are told to do, and whether they do it when nobody has told them.
MODES = {
    1049: ("the other screen", False),
    25: ("the cursor", True),
    1000: ("the mouse", False),
    1002: ("the mouse, while a button is held", False),
    1003: ("the mouse, wherever it goes", False),
    1006: ("the mouse, in numbers", False),
    2004: ("pasting apart from keys", False),
}
FLAGS = ("iflag", "oflag", "cflag", "lflag", "ispeed", "ospeed", "cc")
BACK = b"\x1b[?1049l"


class Screen(pyte.Screen):
    """Has another screen, as all terminals do for programs that want the whole of it."""

    def set_mode(self, *modes, **how):
        if how.get("private") and 1049 in modes:
            self.behind = copy.copy(self.buffer), copy.copy(self.cursor)
            self.buffer.clear()
        super().set_mode(*modes, **how)

    def reset_mode(self, *modes, **how):
        super().reset_mode(*modes, **how)
        if how.get("private") and 1049 in modes:
            buffer, self.cursor = self.behind
            self.buffer.clear()
            self.buffer.update(buffer)


class Terminal:
    """Runs a program in a terminal. Leaving `with` ends what is left of it."""

    def __init__(self, argv, columns=100, lines=30, env=None):
        first, *rest = map(str, argv)
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.screen = Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.is_open = True
        self.program = pexpect.spawn(
            first,
            rest,
            dimensions=(lines, columns),
            env=environment | {"TERM": "xterm-256color", "PYTHON_COLORS": "0"} | (env or {}),
            maxread=1 << 16,
        )
        self.program.delaybeforesend = None
        self.before = new_modes()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.program.isalive():
            self.program.kill(signal.SIGKILL)
        self.program.ptyproc.delayafterclose = 0
        self.program.close(force=True)

    @property
    def pid(self):
        return self.program.pid

    def read(self):
        """Takes in what came by now; waits a moment if there is nothing."""
        try:
            some = self.program.read_nonblocking(1 << 16, timeout=MOMENT)
        except pexpect.TIMEOUT:
            return
        except pexpect.EOF:
            self.is_open = False
            return
        self.raw += some
        self.stream.feed(some)

    @property
    def text(self):
        """What is on the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    @property
    def printed(self):
        """All that came since the screen was left last, or from the beginning if it never was."""
        return self.raw.rpartition(BACK)[2].decode(errors="replace").replace("\r\n", "\n")

    def wait_until(self, condition, what):
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert self.is_open, f"it has ended without {what}:\n{self.text}\n{self.raw[-2000:]!r}"
            assert time.monotonic() < deadline, f"{what} does not come:\n{self.text}"
            self.read()

    def wait_for(self, text):
        """Returns once the screen shows it."""
        self.wait_until(lambda: text in self.text, repr(text))

    def wait_until_gone(self, text):
        """Returns once the screen does not show it any more."""
        self.wait_until(lambda: text not in self.text, f"the end of {text!r}")

    def type(self, keys):
        self.program.send(keys)

    def click(self, text):
        """Clicks on the first place where the screen shows it."""
        self.wait_for(text)
        lines = self.text.splitlines()
        row = next(number for number, line in enumerate(lines) if text in line)
        place = f"{lines[row].index(text) + 1};{row + 1}"
        self.type(f"\x1b[<0;{place}M\x1b[<0;{place}m")

    def resize(self, columns, lines):
        self.screen.resize(lines, columns)
        self.program.setwinsize(lines, columns)

    def hang_up(self):
        """The terminal goes away, as when a connection breaks."""
        self.program.ptyproc.fileobj.close()
        self.is_open = False

    def wait(self):
        """Waits for the end of the program and returns its exit code; that of a signal is negative."""
        deadline = time.monotonic() + LIMIT
        while self.is_open and self.program.isalive():
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
            self.read()
        while self.is_open:
            before = len(self.raw)
            self.read()
            if len(self.raw) == before:
                break
        if self.program.isalive():
            self.program.wait()
        status, number = self.program.exitstatus, self.program.signalstatus
        return status if number is None else -number

    def problems(self):
        """What is not as it was before the program began; empty if all is."""
        found = []
        for mode, (name, by_default) in MODES.items():
            said = re.findall(rb"\x1b\[\?%d([hl])" % mode, self.raw)
            if said and (said[-1] == b"h") != by_default:
                found.append(name)
        now = termios.tcgetattr(self.program.child_fd)
        changed = zip(FLAGS, self.before, now, strict=True)
        found += [f"{flag}: {now} instead of {before}" for flag, before, now in changed if now != before]
        return found


def new_modes():
    """Those of a terminal that nobody has used; of one where a program runs it may be too late to ask."""
    ends = os.openpty()
    modes = termios.tcgetattr(ends[1])
    for end in ends:
        os.close(end)
    return modes


def python(program, *arguments, **how):
    """Runs a program in Python in a terminal."""
    return Terminal([sys.executable, "-c", textwrap.dedent(program), *arguments], **how)
