"""Terminals of all kinds: small, resized, without colours, not read, none at all."""

import ctypes
import os
import re
import signal
import termios
import time

import pytest
from terminal import LIMIT, MOMENT, Terminal, python
from training import STILL, command, ended, endless, stopped, training, up


def test_the_screen_follows_the_terminal_as_it_is_resized():
    with training() as terminal:
        up(terminal)
        for columns, lines in [(60, 20), (140, 45), (30, 8), (10, 3), (1, 1), (200, 60), (100, 30)]:
            terminal.resize(columns, lines)
            length = len(terminal.raw)
            terminal.wait_until(lambda: b"\x1b[2J" in terminal.raw[length:], "a new picture")  # noqa: B023
        terminal.wait_for("[loss]")
        terminal.type("q")
        terminal.wait_for("Stop the training?")
        terminal.resize(90, 25)
        terminal.wait_for("Stop the training?")
        terminal.type("c")
        stopped(terminal)


@pytest.mark.parametrize(("columns", "lines"), [(10, 3), (1, 1), (300, 4), (4, 100)])
def test_a_training_can_be_stopped_in_a_tiny_terminal(columns, lines):
    with training(columns=columns, lines=lines) as terminal:
        terminal.wait_until(lambda: b"\x1b[2J" in terminal.raw, "a picture")
        terminal.type("qs")
        assert "Stopping training from user input." in ended(terminal)


def test_a_terminal_that_does_not_know_its_size_has_that_of_all_terminals_once():
    unknown = "import fcntl, termios; fcntl.ioctl(1, termios.TIOCSWINSZ, bytes(8))"
    with training(before=unknown, columns=80, lines=24) as terminal:
        terminal.wait_for("[loss]")
        stopped(terminal)


def device_of(terminal):
    """The path of the terminal. The program itself has nothing on standard input while the screen is up."""
    ptsname = ctypes.CDLL(None).ptsname
    ptsname.restype = ctypes.c_char_p
    return ptsname(terminal.program.child_fd)


def test_a_terminal_that_takes_nothing_for_a_while_stops_nobody(tmp_path):
    enough = tmp_path / "enough"
    with training(
        """
        print("line", step)
        if step == 300:
            open(sys.argv[1], "w").close()
        """,
        arguments=[enough],
    ) as terminal:
        up(terminal)
        device = os.open(device_of(terminal), os.O_RDWR | os.O_NOCTTY)
        termios.tcflow(device, termios.TCOOFF)
        deadline = time.monotonic() + LIMIT
        while not enough.exists():
            assert time.monotonic() < deadline, "the training waits for the terminal"
            time.sleep(MOMENT)
        # The keys still work, and the end waits for the terminal.
        terminal.type("qs")
        time.sleep(0.5)
        assert terminal.program.isalive()
        termios.tcflow(device, termios.TCOON)
        os.close(device)
        printed = ended(terminal)
    numbers = [int(number) for number in re.findall(r"^line (\d+)$", printed, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 300


def test_a_terminal_that_goes_away_does_not_take_the_training_along(tmp_path):
    """As under `nohup`: the terminal hangs up, and the signal that says so is ignored."""
    done = tmp_path / "done"
    with python(
        """
        import os, signal, sys, time, pitstop

        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with pitstop.Renderer() as screen:
            for step in range(1, 1000):
                screen.log(loss=1 / step, step=step)
                print("line", step)
                time.sleep(0.002)
        print("done")
        open(sys.argv[1], "w").close()
        """,
        done,
    ) as terminal:
        up(terminal).hang_up()
        assert terminal.wait() == 0
    assert done.exists()


COLOURS = re.compile(rb"\x1b\[[\d;]*\b(3[0-7]|4[0-7]|9[0-7]|10[0-7]|[34]8;5;\d+)[\d;]*m")


def test_no_color_means_none():
    with training() as terminal:
        stopped(up(terminal))
        assert COLOURS.search(terminal.raw)
    with training(env={"NO_COLOR": "1"}) as terminal:
        stopped(up(terminal))
        assert not COLOURS.search(terminal.raw)


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_can_do_nothing_gets_lines(term):
    with python(STILL, env={"TERM": term}) as terminal:
        printed = ended(terminal)
        assert b"\x1b" not in terminal.raw
        assert "loss" in printed


def test_a_pipe_gets_lines():
    with Terminal(["/bin/sh", "-c", f"{command(STILL)} | cat"]) as terminal:
        printed = ended(terminal)
        assert b"\x1b" not in terminal.raw
        assert "loss" in printed


@pytest.mark.parametrize("stdin", ["< /dev/null", "<&-"])
def test_keys_come_from_the_terminal_whatever_standard_input_is(stdin):
    with Terminal(["/bin/sh", "-c", f"exec {command(endless())} {stdin}"]) as terminal:
        stopped(up(terminal))


def test_a_program_in_the_background_gets_lines():
    """It must not take keys that are the shell's."""
    with shell() as terminal:
        terminal.type(f"{command(STILL)} &\n")
        terminal.wait_for("the run is over")
        terminal.type("exit\n")
        ended(terminal)
        assert b"\x1b[?1049h" not in terminal.raw


def test_modes_that_a_child_has_changed_are_set_again():
    with training(
        """
        if step == 1:
            print("sane:", subprocess.call(["stty", "sane"], stdin=open("/dev/tty")))
        """
    ) as terminal:
        up(terminal)
        terminal.wait_for("sane: 0")
        device, cooked = terminal.program.child_fd, termios.ICANON | termios.ECHO
        terminal.wait_until(lambda: not termios.tcgetattr(device)[3] & cooked, "the modes of the screen")
        stopped(terminal)


@pytest.mark.parametrize("ranks", [{"LOCAL_RANK": "1", "RANK": "0"}, {"RANK": "3"}])
def test_a_rank_that_is_not_the_first_gets_lines(ranks):
    """It would draw over the screen of the first one, which has the same terminal."""
    with python(STILL, env=ranks) as terminal:
        printed = ended(terminal)
        assert b"\x1b" not in terminal.raw
        assert "loss" in printed


def test_the_first_rank_of_a_machine_gets_the_screen():
    with training(env={"LOCAL_RANK": "0", "RANK": "8"}) as terminal:
        stopped(up(terminal))


def shell():
    """A shell in which programs can be stopped and go on."""
    words = ["/bin/bash", "--norc", "--noprofile", "-i"]
    terminal = Terminal(words, env={"PS1": "> ", "INPUTRC": "/dev/null"})
    terminal.wait_for(">")
    # Its own way to tell pasted text from keys.
    terminal.type("bind 'set enable-bracketed-paste off'; clear\n")
    return terminal


@pytest.mark.parametrize("how", ["key", "SIGTSTP", "SIGSTOP"])
def test_a_training_can_be_suspended_and_go_on(how):
    with shell() as terminal:
        terminal.type(f"{command(endless())}\n")
        up(terminal)
        if how == "key":
            terminal.type("\x1a")
        else:
            os.kill(children(terminal.pid)[0], signal.Signals[how])
        terminal.wait_until(lambda: b"Stopped" in terminal.raw, "the shell")
        if how != "SIGSTOP":
            # Nobody can help a program that is stopped without being told.
            terminal.wait_for("Stopped")
            assert b"\x1b[?1049l" in terminal.raw
        terminal.type("echo the shell is ba''ck\n")
        terminal.wait_until(lambda: b"the shell is back" in terminal.raw, "the shell")
        length = len(terminal.raw)
        terminal.type("fg\n")
        terminal.wait_until(lambda: b"\x1b[?1049h" in terminal.raw[length:], "the screen")
        terminal.wait_for("[loss]")
        terminal.type("qs")
        terminal.wait_until(lambda: b"message: Stopping" in terminal.raw, "the end")
        terminal.type("exit\n")
        assert terminal.wait() == 0
        assert terminal.problems() == []


def children(pid):
    """The processes that a process has started."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(number) for number in file.read().split()]
