"""`pitstop watch` in a terminal: the screen of a run in another process."""

import os
import re
import signal
import sys
from pathlib import Path

import disk
import pitstop
import pytest
from terminal import Terminal
from training import ended

SCRIPT = Path(sys.executable).with_name("pitstop")
STOPPING = "Stopping training from user input."


@pytest.fixture
def live(run):
    """A run that goes on in this process, and shows itself in lines."""
    with pitstop.Renderer(steps=100, directory=run, plain=True) as screen:
        yield screen


def watch(run, *options, **how):
    return Terminal([SCRIPT, "watch", run, *options], **how)


def test_the_screen_shows_a_run_of_another_process_as_it_goes_on(live, run):
    live.log(loss=0.75, accuracy=50.0)
    live.text("device", "an abacus")
    with watch(run) as terminal:
        terminal.wait_for("an abacus")
        terminal.wait_for("0.75")
        live.log(loss=0.25)
        terminal.wait_for("0.25")
        terminal.type("\x1b[C")  # the other metric
        terminal.wait_for("train 50")
        live.event("a bad batch", "number 7")
        terminal.wait_for("a bad batch: number 7")
        terminal.type("x")
        ended(terminal)
    live.log(loss=0.125)  # it goes on


def test_checkpoints_are_shown_too(run):
    with (
        pitstop.AsyncCheckpointer(run, retention=pitstop.KeepLast(2)) as checkpointer,
        pitstop.Renderer(checkpointer=checkpointer, plain=True) as screen,
        watch(run) as terminal,
    ):
        screen.log(loss=0.5, step=1)
        checkpointer.save(12345, {"step": 1}).result()
        terminal.wait_for("saved 12,345")
        terminal.wait_for("KeepLast(2)")


def test_q_and_s_ask_the_run_to_stop_and_go_on_watching(live, run):
    live.log(loss=0.5)
    with watch(run) as terminal:
        terminal.wait_for("loss")
        terminal.type("q")
        terminal.wait_for("Stop the run?")
        terminal.type("c")
        terminal.wait_for("0.5")
        assert not live.interrupter.should_stop()
        terminal.type("q")
        terminal.wait_for("Stop the run?")
        terminal.type("s")
        terminal.wait_for(STOPPING)
        assert live.interrupter.get_message() == STOPPING
        live.close()
        terminal.wait_for("stopped")
        terminal.type("q")
        ended(terminal)
    assert disk.hidden(run) <= {".lock"}


def test_a_watcher_cannot_kill(live, run):
    live.log(loss=0.5)
    with watch(run) as terminal:
        terminal.wait_for("loss")
        terminal.type("q")
        terminal.wait_for("Stop the run?")
        terminal.type("k")
        terminal.type("x")
        ended(terminal)
    live.log(loss=0.25)
    assert not live.interrupter.should_stop()


def test_a_run_that_may_not_be_written_to_says_why_it_cannot_be_stopped(live, run):
    live.log(loss=0.5)
    with watch(run) as terminal, disk.read_only(run):
        terminal.wait_for("loss")
        terminal.type("q")
        terminal.wait_for("Stop the run?")
        terminal.type("s")
        terminal.wait_for("cannot ask the run")
        terminal.type("x")
        ended(terminal)
    assert not live.interrupter.should_stop()


def test_a_run_that_is_over_is_shown_until_it_is_left(run):
    with pitstop.Renderer(directory=run, plain=True) as screen:
        screen.log(loss=0.0625)
    with watch(run) as terminal:
        terminal.wait_for("finished")
        terminal.wait_for("0.0625")
        terminal.type("q")
        assert "0.0625" in ended(terminal)  # the summary


def test_a_run_that_has_not_begun_is_waited_for(run):
    run.mkdir()
    with watch(run) as terminal:
        terminal.wait_for("waiting for a run")
        with pitstop.Renderer(directory=run, plain=True) as screen:
            screen.log(loss=0.5)
            terminal.wait_for("loss")
            terminal.type("x")
            ended(terminal)


def test_a_run_that_died_is_shown_until_it_is_left_and_not_asked_to_stop(run):
    run.mkdir()
    events = run / "events.jsonl"
    events.write_text('{"at":1.0,"event":"start","epoch":0,"step":0}\n')
    os.utime(events, (1.0, 1.0))
    with watch(run) as terminal:
        terminal.wait_for("no sign of life")
        terminal.type("q")
        terminal.wait_for("Stop the run?")
        terminal.type("s")
        terminal.wait_for("cannot")
        terminal.type("x")
        ended(terminal)
    assert not (run / ".stop").exists()


def test_two_watchers_see_the_same(live, run):
    with watch(run) as one, watch(run, columns=60, lines=14) as other:
        live.log(loss=0.375)
        for terminal in (one, other):
            terminal.wait_for("0.375")
        one.type("x")
        ended(one)
        live.log(loss=0.1875)
        other.wait_for("0.1875")
        other.type("x")
        ended(other)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_watcher_that_is_ended_gives_the_terminal_back(live, run, end):
    live.log(loss=0.5)
    with watch(run) as terminal:
        terminal.wait_for("loss")
        os.kill(terminal.pid, end)
        # The script of the wheel hears of SIGINT as Python does.
        ended(terminal, 130 if end == signal.SIGINT else -end)
    live.log(loss=0.25)


def test_ctrl_c_ends_the_watcher_only(live, run):
    live.log(loss=0.5)
    with watch(run) as terminal:
        terminal.wait_for("loss")
        terminal.type("\x03")
        ended(terminal)
    live.log(loss=0.25)
    assert not live.interrupter.should_stop()


def test_lines_in_a_terminal(live, run):
    live.log(loss=0.5)
    with watch(run, "--plain") as terminal:
        live.event("halfway")
        terminal.wait_for("halfway")
        assert b"\x1b[?1049h" not in terminal.raw
        live.close()
        ended(terminal)


def test_a_terminal_that_can_do_little_gets_lines(live, run):
    with watch(run, env={"TERM": "dumb"}) as terminal:
        live.event("halfway")
        terminal.wait_for("halfway")
        assert b"\x1b" not in terminal.raw
        live.close()
        ended(terminal)


def test_colours_are_left_out_where_they_are_unwanted(live, run):
    live.log(loss=0.5)
    with watch(run, env={"NO_COLOR": "1"}) as terminal:
        terminal.wait_for("loss")
        terminal.type("x")
        ended(terminal)
        styles = re.findall(rb"\x1b\[([\d;]*)m", terminal.raw)
        used = {int(number or 0) for style in styles for number in style.split(b";")}
        assert used <= {0, 1, 2, 7, 22, 27, 39, 49, 59}  # weights, and colours as they were
