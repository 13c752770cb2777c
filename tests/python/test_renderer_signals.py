"""Ctrl-C and kill while a renderer is open: the loop is asked, then killed; and afterwards all is as it was."""

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
import textwrap
import threading
import time
from pathlib import Path

import pitstop
import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent with kill")

KILLED = "Killing training from user input."


@pytest.fixture(autouse=True)
def handler():
    """The handler of SIGINT, which each test leaves as it found it."""
    before = signal.getsignal(signal.SIGINT)
    yield before
    after = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert after is before


def interrupt():
    """Sends SIGINT to this process and lets its handler run."""
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


# --- Ctrl-C from outside --------------------------------------------------------------------------


def test_the_first_ctrl_c_stops_and_the_second_kills():
    interrupter = pitstop.Interrupter()
    with pytest.raises(pitstop.TrainingKilled, match=KILLED), pitstop.Renderer(interrupter=interrupter):
        interrupt()
        assert interrupter.should_stop()
        assert interrupter.get_message() == "Stopping training: received SIGINT."
        interrupt()


def test_a_reset_forgives_the_first_one():
    interrupter = pitstop.Interrupter()
    with pitstop.Renderer(interrupter=interrupter):
        for _ in range(3):
            interrupt()
            assert interrupter.should_stop()
            interrupter.reset()


def test_without_an_interrupter_it_is_keyboard_interrupt_as_ever():
    with pytest.raises(KeyboardInterrupt), pitstop.Renderer():
        interrupt()


def test_once_killed_every_call_raises_except_while_that_is_handled():
    interrupter = pitstop.Interrupter()
    with pitstop.Renderer(interrupter=interrupter) as screen:
        tracked = iter(screen.track(range(9)))
        next(tracked)
        with contextlib.suppress(pitstop.TrainingKilled):
            interrupt()
            interrupt()
        for call in (lambda: screen.log(loss=1.0), lambda: next(tracked), lambda: screen.epoch(1)):
            with pytest.raises(pitstop.TrainingKilled, match=KILLED):
                call()
        try:
            screen.log(loss=1.0)
        except pitstop.TrainingKilled:
            screen.log(loss=1.0)
            screen.end({"killed": True})
    # It was told, so that leaving does not raise it once more.


@pytest.mark.parametrize("outer", [True, False], ids=["around", "inside"])
def test_it_gets_along_with_the_handlers_of_an_interrupter(outer):
    interrupter = pitstop.Interrupter.on_signals()
    screen = pitstop.Renderer(interrupter=interrupter)
    first, second = (interrupter, screen) if outer else (screen, interrupter)
    with pytest.raises(pitstop.TrainingKilled), first, second:
        interrupt()
        assert interrupter.get_message() == "Stopping training: received SIGINT."
        interrupt()


def test_an_interrupter_that_it_was_not_given_works_as_ever():
    with pitstop.Interrupter.on_signals() as interrupter, pitstop.Renderer():
        interrupt()
        assert interrupter.should_stop()
        with pytest.raises(KeyboardInterrupt):
            interrupt()


def test_a_handler_of_the_users_is_called_too():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *arguments: seen.append(arguments))
    try:
        with pytest.raises(pitstop.TrainingKilled), pitstop.Renderer(interrupter=pitstop.Interrupter()):
            interrupt()
            interrupt()
        assert len(seen) == 2
        with pitstop.Renderer():
            interrupt()
        assert len(seen) == 3
    finally:
        signal.signal(signal.SIGINT, before)


def test_where_ctrl_c_is_ignored_it_stays_so():
    """As in a job that a shell runs in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupter = pitstop.Interrupter()
        with pitstop.Renderer(interrupter=interrupter):
            for _ in range(3):
                interrupt()
        assert not interrupter.should_stop()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_the_user_installs_on_top_stays_and_what_is_below_is_passed_over():
    seen = []
    interrupter = pitstop.Interrupter()
    before = signal.getsignal(signal.SIGINT)
    try:
        with pitstop.Renderer(interrupter=interrupter):
            ours = signal.getsignal(signal.SIGINT)
            assert "pitstop.Renderer" in repr(ours)
            signal.signal(signal.SIGINT, lambda number, frame: (seen.append(number), ours(number, frame)))
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        assert seen == [signal.SIGINT]
        assert not interrupter.should_stop()
    finally:
        signal.signal(signal.SIGINT, before)


def test_elsewhere_than_in_the_main_thread_no_handler_is_installed(handler):
    seen = []

    def train():
        with pitstop.Renderer(interrupter=pitstop.Interrupter()) as screen:
            screen.log(loss=1.0)
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join(60)
    assert seen == [handler]


# --- kill, by a person at the screen --------------------------------------------------------------

# What each program does between "the screen is up" and the end, and never by itself.
LOOPS = {
    "blocked": "time.sleep(60)",
    "busy": "while True: pass",
    "waiting": "threading.Event().wait(60)",
    "logging": "while True: screen.log(loss=1.0)",
    "tracking": "list(screen.track(iter(int, 1)))",
    "saving": """
            with pitstop.AsyncCheckpointer(sys.argv[2]) as ckpt:
                for step in range(1, 10**9):
                    ckpt.save(step, {"w": weight})""",
    "swallowing": """
            try:
                time.sleep(60)
            except BaseException:
                screen.log(loss=1.0)  # nothing, since it is being handled
            time.sleep(60)""",
}

PROGRAM = """
    import pathlib, sys, threading, time, pitstop

    weight = bytearray(8 << 20)

    def train():
        with pitstop.Renderer(interrupter=interrupter, plain=False) as screen:
            pathlib.Path(sys.argv[1]).touch()
            {loop}

    interrupter = pitstop.Interrupter()
    {train}
    """

THREAD = """
    def run():
        try:
            train()
        except BaseException as error:
            print(f"ended by {type(error).__name__}: {error}", flush=True)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
"""


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, program, *arguments):
        self.master, slave = os.openpty()
        self.modes = termios.tcgetattr(slave)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, b"\x18\x00\x50\x00\x00\x00\x00\x00")
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env=os.environ | {"TERM": "xterm-256color"},
        )
        self.slave = slave
        self.output = b""

    def read(self, seconds):
        """Takes what comes within so many seconds."""
        if select.select([self.master], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                self.output += os.read(self.master, 1 << 16)

    def until(self, condition, what):
        """Reads until something is so."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"{what}; so far it wrote\n{self.output!r}"
            self.read(0.05)

    def press(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        """Waits for the end and returns the exit code and the lines after the screen."""
        self.until(lambda: self.process.poll() is not None, "it hangs")
        while select.select([self.master], [], [], 0)[0]:
            self.read(0)
        assert termios.tcgetattr(self.slave) == self.modes, "the terminal is as it was"
        after = self.output.rpartition(b"\x1b[?1049l")[2]
        return self.process.returncode, after.decode().replace("\r", "")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@contextlib.contextmanager
def shown(tmp_path, loop, train="train()"):
    """A training with the screen up."""
    ready = tmp_path / "ready"
    indented = textwrap.indent(textwrap.dedent(LOOPS[loop]).strip(), " " * 8).strip()
    program = textwrap.dedent(PROGRAM).format(loop=indented, train=textwrap.dedent(train).strip())
    terminal = Terminal(program, ready, tmp_path / "run")
    try:
        terminal.until(lambda: ready.exists() and b"\x1b[?1049h" in terminal.output, "no screen")
        yield terminal
    finally:
        terminal.close()


@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop != "swallowing"])
def test_a_kill_reaches_any_loop_in_the_main_thread(tmp_path, loop):
    with shown(tmp_path, loop) as terminal:
        terminal.press("qk")
        code, after = terminal.end()
    assert code == 1
    lines = after.strip().splitlines()
    assert lines[-1] == f"pitstop.errors.TrainingKilled: {KILLED}", after
    assert after.count("TrainingKilled") == 1, "it is raised once"
    if loop == "saving":
        names = {path.name for path in (tmp_path / "run").iterdir()}
        assert {name for name in names if name.startswith(".tmp-")} == set()
        for info in pitstop.checkpoints(tmp_path / "run"):
            pitstop.restore(tmp_path / "run", info.step)


@pytest.mark.parametrize("loop", ["busy", "logging", "tracking"])
def test_a_kill_reaches_a_loop_in_another_thread_while_the_main_one_waits(tmp_path, loop):
    with shown(tmp_path, loop, THREAD) as terminal:
        terminal.press("qk")
        code, after = terminal.end()
    assert code == 0, after
    assert f"ended by TrainingKilled: {KILLED}" in after


def test_a_kill_that_was_swallowed_can_be_repeated(tmp_path):
    """By code that catches everything, or in a place from which no exception comes out."""
    with shown(tmp_path, "swallowing") as terminal:
        terminal.press("qk")
        terminal.until(lambda: terminal.output.count(b"Killing") > 0, "the screen says nothing of it")
        assert terminal.process.poll() is None
        terminal.press("qk")
        code, after = terminal.end()
    assert code == 1
    assert after.strip().splitlines()[-1] == f"pitstop.errors.TrainingKilled: {KILLED}"


def test_ctrl_c_as_a_key_stops_at_first_and_kills_then(tmp_path):
    with shown(tmp_path, "blocked") as terminal:
        terminal.press("\x03")
        terminal.until(lambda: b"Stopping" in terminal.output, "the screen says nothing of it")
        assert terminal.process.poll() is None
        terminal.press("\x03")
        code, after = terminal.end()
    assert code == 1
    assert after.strip().splitlines()[-1] == f"pitstop.errors.TrainingKilled: {KILLED}"


def test_the_next_run_in_the_process_starts_clean(tmp_path):
    program = """
        import pathlib, sys, time, pitstop
        try:
            with pitstop.Renderer(plain=False) as screen:
                pathlib.Path(sys.argv[1]).touch()
                time.sleep(60)
        except pitstop.TrainingKilled as error:
            print("first:", error, flush=True)
        with pitstop.Renderer(plain=False) as screen:
            for _ in screen.track(range(100)):
                time.sleep(0.001)
        print("second: done", flush=True)
    """
    terminal = Terminal(program, tmp_path / "ready")
    try:
        ready = tmp_path / "ready"
        terminal.until(lambda: ready.exists() and b"\x1b[?1049h" in terminal.output, "no screen")
        terminal.press("qk")
        code, after = terminal.end()
    finally:
        terminal.close()
    assert code == 0
    assert f"first: {KILLED}".encode() in terminal.output
    assert "second: done" in after
