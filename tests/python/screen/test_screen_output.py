"""What is printed while the screen is up: it is in the log, and on the terminal afterwards."""

import re
import sys
import textwrap

import pytest
from terminal import python
from training import ended, stopped, training, up

PRINTING = """
import ctypes, itertools, os, subprocess, sys, time
import pitstop

c = ctypes.CDLL(None)
with pitstop.Renderer() as screen:
    screen.log(loss=1.0)
    for number in range(0, 3000, 6):
        print(f"line {number} of Python")
        print(f"line {number + 1} of Python, an error", file=sys.stderr)
        c.puts(f"line {number + 2} of C".encode())
        c.printf(b"line %d of C\\n", number + 3)
        os.write(1, f"line {number + 4} of nobody\\n".encode())
        os.write(2, f"line {number + 5} of nobody, an error\\n".encode())
    c.printf(b"without ")
    time.sleep(0.2)
    c.puts(b"an end")
    subprocess.run([sys.executable, "-c", "print('line 3000 of a child')"])
    while not screen.interrupter.should_stop():
        time.sleep(0.005)
    print("the last line")
    c.printf(b"the very last line")
c.puts(b" and what C prints afterwards")
print("after the screen")
"""


def test_all_that_is_printed_is_in_the_log_and_in_order_on_the_terminal_afterwards():
    with python(PRINTING) as terminal:
        up(terminal)
        terminal.wait_for("line 3000 of a child")
        terminal.wait_for("without an end")
        printed = stopped(terminal)
    numbers = [int(number) for number in re.findall(r"^line (\d+) of ", printed, re.MULTILINE)]
    assert numbers == list(range(3001))
    kinds = re.findall(r"^line \d+ of (.*)", printed, re.MULTILINE)
    counts = {"Python": 500, "C": 1000, "nobody, an error": 500, "a child": 1}
    assert {kind: kinds.count(kind) for kind in counts} == counts
    ending = printed[printed.index("the last line") :]
    assert "the very last line" in ending
    assert ending.index("the very last line") < ending.index("after the screen")
    assert ending.rstrip().splitlines()[-1] == "after the screen"
    assert "and what C prints afterwards" in ending


def test_what_c_prints_after_the_screen_comes_at_once():
    """C decides at the first thing that it prints how to go on: as on a terminal, not as into a file."""
    with python(
        """
        import ctypes, time, pitstop

        c = ctypes.CDLL(None)
        with pitstop.Renderer() as screen:
            screen.log(loss=1.0)
            c.puts(b"the first thing")
            time.sleep(0.2)
        c.puts(b"at once")
        time.sleep(1000)
        """
    ) as terminal:
        terminal.wait_for("at once")
        assert terminal.problems() == []


def test_progress_bars_write_over_themselves():
    with training(
        """
        if step <= 100:
            sys.stderr.write(f"\\r{step:3}%|{'#' * (step // 10):10}|")
        """
    ) as terminal:
        up(terminal)
        terminal.wait_for("100%|##########|")
        assert "50%|" not in terminal.text
        assert "\r 50%|#####     |" in stopped(terminal)


def test_colours_and_titles_of_others_do_not_reach_the_screen():
    with training(
        r"""
        if step == 1:
            print("\x1b[31mred\x1b[0m \x1b]0;a title\x07plain")
        """
    ) as terminal:
        up(terminal)
        terminal.wait_for("red plain")
        assert "a title" not in terminal.screen.title
        assert "\x1b[31mred\x1b[0m" in stopped(terminal)


def test_a_stream_that_is_no_terminal_is_left_alone(tmp_path):
    errors = tmp_path / "errors"
    program = textwrap.dedent(
        """
        import sys, time, pitstop

        with pitstop.Renderer() as screen:
            screen.log(loss=1.0)
            print("shown")
            print("kept", file=sys.stderr)
            while not screen.interrupter.should_stop():
                time.sleep(0.005)
        """
    )
    with python(
        f"""
        import os, sys
        os.dup2(os.open({str(errors)!r}, os.O_WRONLY | os.O_CREAT), 2)
        os.execv(sys.executable, [sys.executable, "-c", {program!r}])
        """
    ) as terminal:
        up(terminal)
        terminal.wait_for("shown")
        assert "kept" not in terminal.text
        assert "kept" not in stopped(terminal)
    assert errors.read_text() == "kept\n"


def test_what_somebody_turned_elsewhere_stays_there(tmp_path):
    into = tmp_path / "into"
    with training(
        "if step == 1: print('before'); turned = os.dup(1); os.dup2(os.open(sys.argv[1], os.O_WRONLY), 1)",
        "open(sys.argv[1], 'w').close()",
        arguments=[into],
    ) as terminal:
        up(terminal)
        printed = stopped(terminal)
        assert "before" in printed
        assert "message:" not in printed
    assert "message: Stopping training from user input." in into.read_text()


def test_a_forked_child_prints_and_ends_and_the_screen_stays():
    with training(
        """
        if step in (1, 2, 3):
            child = os.fork()
            if child == 0:
                print("a child was here", flush=True)
                screen.log(loss=0.0)
                if step == 1:
                    os._exit(0)
                if step == 2:
                    raise SystemExit(5)
                screen.close()
                raise ValueError("the child broke")
            print("a child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    ) as terminal:
        up(terminal)
        terminal.wait_for("a child ended with 1")
        assert b"\x1b[?1049l" not in terminal.raw
        printed = stopped(terminal)
        for code in (0, 5, 1):
            assert printed.count(f"a child ended with {code}") == 1
        assert printed.count("a child was here") == 3
        assert printed.count("ValueError: the child broke") == 1
        assert printed.count("message:") == 1


def test_the_log_of_a_child_that_is_killed_by_a_signal_stays_where_it_is():
    with training(
        """
        if step == 1:
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGTERM)
            print("a child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    ) as terminal:
        up(terminal)
        terminal.wait_for("a child ended with -15")
        assert b"\x1b[?1049l" not in terminal.raw
        stopped(terminal)


@pytest.mark.skipif(sys.platform != "linux", reason="it is kept in memory on Linux only")
def test_no_disk_is_needed_for_what_is_printed():
    """One that was full made prints fail, in the middle of the training."""
    with training("if step == 1: print('printed')", env={"TMPDIR": "/not/there"}) as terminal:
        up(terminal)
        terminal.wait_for("printed")
        assert "printed" in stopped(terminal)


def test_what_is_printed_after_a_child_has_emptied_it_is_there():
    """`> /dev/stderr` empties the file. Nothing was shown until as much was printed again."""
    with training(
        """
        if step == 1:
            print("before " * 100)
        if step == 20:
            subprocess.run("echo emptied > /dev/stderr", shell=True)
            print("afterwards")
        """
    ) as terminal:
        up(terminal)
        terminal.wait_for("afterwards")
        assert "afterwards" in stopped(terminal)


def test_many_lines_at_once_are_not_lost():
    with training(
        """
        if step == 1:
            print("".join(f"number {number}\\n" for number in range(30_000)), end="")
        """
    ) as terminal:
        up(terminal)
        terminal.wait_for("number 29999")
        printed = stopped(terminal)
    numbers = [int(number) for number in re.findall(r"^number (\d+)$", printed, re.MULTILINE)]
    assert numbers == list(range(30_000))


def test_a_program_that_ends_by_itself_loses_nothing():
    with python(
        """
        import pitstop

        with pitstop.Renderer() as screen:
            screen.log(loss=1.0)
            print("one")
        print("two")
        """
    ) as terminal:
        printed = ended(terminal)
        assert printed.index("one") < printed.index("two")
