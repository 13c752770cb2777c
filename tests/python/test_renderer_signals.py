"""Ctrl-C while a renderer is open: the loop is asked, then killed; and afterwards all is as it was.

Also see screen/test_screen_kill.py, where a person kills.
"""

import contextlib
import os
import signal
import sys
import threading
import time

import pitstop
import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent with kill")

KILLED = "Killing training from user input."


@pytest.fixture(autouse=True)
def handler():
    """The handler of SIGINT, which each test leaves as it found it."""
    # In a job that a shell runs in the background it would be ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    after = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert after is signal.default_int_handler


def interrupt():
    """Sends SIGINT to this process and lets its handler run."""
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


def interrupt_twice(interrupter, *contexts):
    """Sends two in those contexts; the first one must have stopped the interrupter."""
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        interrupt()
        assert interrupter.should_stop()
        assert interrupter.get_message() == "Stopping training: received SIGINT."
        interrupt()


def test_the_first_ctrl_c_stops_and_the_second_kills():
    interrupter = pitstop.Interrupter()
    with pytest.raises(pitstop.TrainingKilled, match=KILLED):
        interrupt_twice(interrupter, pitstop.Renderer(interrupter=interrupter))


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


def test_a_kill_that_a_finalizer_swallows_is_raised_by_every_further_call(monkeypatch):
    swallowed, interrupter = [], pitstop.Interrupter()
    monkeypatch.setattr(sys, "unraisablehook", lambda what: swallowed.append(what.exc_type))

    class Swallows:
        def __del__(self):
            interrupt()
            interrupt()

    with pitstop.Renderer(interrupter=interrupter) as screen:
        Swallows()
        assert swallowed == [pitstop.TrainingKilled]
        for _ in range(2):
            with pytest.raises(pitstop.TrainingKilled, match=KILLED):
                screen.log(loss=1.0)


def test_a_run_in_the_handler_of_another_kill_is_killed_as_any_other():
    """Its calls took the exception that was being handled for one of their own, and raised nothing."""
    first, second = pitstop.Interrupter(), pitstop.Interrupter()
    try:
        interrupt_twice(first, pitstop.Renderer(interrupter=first))
    except pitstop.TrainingKilled:
        with pitstop.Renderer(interrupter=second) as screen:
            screen.log(loss=1.0)
            with contextlib.suppress(pitstop.TrainingKilled):
                interrupt()
                interrupt()
            with pytest.raises(pitstop.TrainingKilled, match=KILLED):
                screen.log(loss=1.0)
    assert second.should_stop()


@pytest.mark.parametrize("outer", [True, False], ids=["around", "inside"])
def test_it_gets_along_with_the_handlers_of_an_interrupter(outer):
    interrupter = pitstop.Interrupter.on_signals()
    screen = pitstop.Renderer(interrupter=interrupter)
    contexts = (interrupter, screen) if outer else (screen, interrupter)
    with pytest.raises(pitstop.TrainingKilled):
        interrupt_twice(interrupter, *contexts)


def test_an_interrupter_that_it_was_not_given_works_as_ever():
    with pitstop.Interrupter.on_signals() as interrupter, pitstop.Renderer():
        interrupt()
        assert interrupter.should_stop()
        with pytest.raises(KeyboardInterrupt):
            interrupt()


def test_a_handler_of_the_users_is_called_too():
    seen, interrupter = [], pitstop.Interrupter()
    before = signal.signal(signal.SIGINT, lambda *arguments: seen.append(arguments))
    try:
        with pytest.raises(pitstop.TrainingKilled):
            interrupt_twice(interrupter, pitstop.Renderer(interrupter=interrupter))
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
