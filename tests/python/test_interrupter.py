"""Stopping a run: by hand, by signal, and from the background."""

import contextlib
import os
import signal
import threading

import child
import pitstop
import pytest


@pytest.fixture(autouse=True)
def handlers():
    """Fails a test that leaves a signal handler behind, and puts the old ones back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield before
    after = {number: signal.getsignal(number) for number in before}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == before


def test_a_fresh_interrupter_does_not_stop():
    interrupter = pitstop.Interrupter()
    assert interrupter.should_stop() is False
    assert interrupter.get_message() is None


def test_stop_with_and_without_a_reason():
    interrupter = pitstop.Interrupter()
    interrupter.stop()
    assert interrupter.should_stop() is True
    interrupter.stop("loss is NaN")
    assert interrupter.get_message() == "loss is NaN"


def test_reset_clears_the_message_too():
    """`reset` kept the message of the stop before."""
    interrupter = pitstop.Interrupter()
    interrupter.stop("first")
    interrupter.reset()
    assert interrupter.should_stop() is False
    assert interrupter.get_message() is None
    interrupter.stop()
    assert interrupter.get_message() is None


def test_a_stop_is_seen_by_other_threads():
    interrupter = pitstop.Interrupter()
    thread = threading.Thread(target=interrupter.stop, args=("from a thread",))
    thread.start()
    thread.join()
    assert interrupter.should_stop()
    assert interrupter.get_message() == "from a thread"


def test_interrupters_are_independent():
    """The kill flag was one for the process: a second run died at once."""
    first, second = pitstop.Interrupter(), pitstop.Interrupter()
    first.stop("only me")
    assert not second.should_stop()
    assert not pitstop.Interrupter().should_stop()


def test_a_checkpointer_with_a_stopped_interrupter_still_saves(run):
    interrupter = pitstop.Interrupter()
    interrupter.stop("the loop ends, but saves once more")
    with pitstop.AsyncCheckpointer(run, interrupter=interrupter) as checkpointer:
        checkpointer.save(1, {"w": 1})
        checkpointer.wait()
        assert checkpointer.steps() == [1]
    assert interrupter.get_message() == "the loop ends, but saves once more"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_the_loop_to_stop(number):
    with pitstop.Interrupter.on_signals() as interrupter:
        assert not interrupter.should_stop()
        signal.raise_signal(number)
        assert interrupter.should_stop()
        assert isinstance(interrupter.get_message(), str)


def test_a_second_ctrl_c_raises():
    with pitstop.Interrupter.on_signals() as interrupter:
        signal.raise_signal(signal.SIGINT)
        assert interrupter.should_stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_after_leaving_ctrl_c_is_ctrl_c_again():
    with pitstop.Interrupter.on_signals():
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def leave_with(error):
    with pitstop.Interrupter.on_signals():
        raise error


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_handlers_are_restored_on_any_way_out(handlers, error):
    with pytest.raises(type(error)):
        leave_with(error)
    assert signal.getsignal(signal.SIGTERM) == handlers[signal.SIGTERM]


def test_a_handler_installed_before_is_still_called():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with pitstop.Interrupter.on_signals() as interrupter:
            signal.raise_signal(signal.SIGTERM)
            assert interrupter.should_stop()
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_ignored_signal_does_not_become_deadly():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with pitstop.Interrupter.on_signals():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_the_error_is_clear():
    errors = []

    def enter():
        try:
            with pitstop.Interrupter.on_signals():
                pass
        except (RuntimeError, ValueError, pitstop.CheckpointError) as error:
            errors.append(str(error))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert len(errors) == 1
    assert "main thread" in errors[0]


def test_nested_interrupters_both_hear_and_unwind():
    with pitstop.Interrupter.on_signals() as outer:
        with pitstop.Interrupter.on_signals() as inner:
            signal.raise_signal(signal.SIGTERM)
            assert inner.should_stop()
        outer.reset()
        signal.raise_signal(signal.SIGTERM)
        assert outer.should_stop()


def test_training_killed_is_not_swallowed_by_except_exception():
    assert issubclass(pitstop.TrainingKilled, BaseException)
    assert not issubclass(pitstop.TrainingKilled, Exception)
    with pytest.raises(pitstop.TrainingKilled), contextlib.suppress(Exception):
        raise pitstop.TrainingKilled("Killing training from user input.")


LOOP = """
    import sys, time
    import numpy as np, pitstop

    with pitstop.Interrupter.on_signals() as interrupter, \\
         pitstop.AsyncCheckpointer(sys.argv[1], interrupter=interrupter) as checkpointer:
        step = 0
        print("ready", flush=True)
        while not interrupter.should_stop():
            step += 1
            time.sleep(0.01)
        checkpointer.save(step, {"w": np.full(1000, step)})
    print("saved", step)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_loop_stopped_by_a_signal_saves_and_ends_well(run, number):
    process = child.start(LOOP, run)
    child.read_until(process, "ready")
    os.kill(process.pid, number)
    code, output, errors = child.end(process)
    assert code == 0, errors
    (info,) = pitstop.checkpoints(run)
    assert output.strip() == f"saved {info.step}"
