"""The interrupter and its signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import disk
import pitstop
import pytest
from pitstop import Interrupter

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent with kill")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Each test leaves the handlers as it found them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    yield
    after = {number: signal.getsignal(number) for number in before}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == before


def send(number: int) -> None:
    """Sends a signal to this process and lets its handler run."""
    os.kill(os.getpid(), number)
    time.sleep(0.01)


def test_the_first_reason_is_kept_until_the_reset() -> None:
    interrupter = Interrupter()
    assert not interrupter.should_stop()
    assert interrupter.get_message() is None
    interrupter.stop("the disk is full")
    interrupter.stop(reason="a consequence")
    interrupter.stop()
    assert interrupter.should_stop()
    assert interrupter.get_message() == "the disk is full"
    interrupter.reset()
    assert not interrupter.should_stop()
    assert interrupter.get_message() is None


def test_it_shows_its_state() -> None:
    interrupter = Interrupter()
    assert repr(interrupter) == "<pitstop.Interrupter: not stopped>"
    interrupter.stop()
    assert repr(interrupter) == "<pitstop.Interrupter: stopped>"
    interrupter.stop("it's over")
    assert repr(interrupter) == '<pitstop.Interrupter: stopped, "it\'s over">'


def test_a_failing_save_stops_it_from_the_background_and_close_still_raises(run: Path) -> None:
    interrupter = Interrupter()
    checkpointer = pitstop.AsyncCheckpointer(run, interrupter=interrupter)
    with disk.replaced_by_a_file(run):
        checkpointer.save(1, {"w": 1})
        deadline = time.monotonic() + 20
        while not interrupter.should_stop():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        message = interrupter.get_message()
        assert message is not None
        assert message.startswith("Error when saving the state: I/O Error: `")
        # The loop has been told: the next save does not raise what went wrong with this one.
        checkpointer.save(2, {"w": 2})
        with pytest.raises(pitstop.SaveError) as caught:
            checkpointer.close()
    assert str(caught.value) == f"step 1: {message}"
    assert [note.split(": ")[:2] for note in caught.value.__notes__] == [["also", "step 2"]]
    assert isinstance(caught.value.__cause__, NotADirectoryError)


def test_a_failing_save_does_not_overwrite_the_reason_to_stop(run: Path) -> None:
    interrupter = Interrupter()
    interrupter.stop("the loss is NaN")
    checkpointer = pitstop.AsyncCheckpointer(run, interrupter=interrupter)
    with disk.replaced_by_a_file(run):
        checkpointer.save(1, {"w": 1})
        with pytest.raises(pitstop.SaveError):
            checkpointer.close()
    assert interrupter.get_message() == "the loss is NaN"


def test_a_plain_one_is_no_context_manager() -> None:
    with pytest.raises(TypeError, match=r"use Interrupter\.on_signals"), Interrupter():
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_sets_the_flag_and_nothing_else(number: signal.Signals) -> None:
    created = Interrupter.on_signals()
    with created as interrupter:
        assert interrupter is created
        send(number)
        assert interrupter.should_stop()
        assert interrupter.get_message() == f"Stopping training: received {number.name}."


def test_other_signals_can_be_chosen() -> None:
    with Interrupter.on_signals(iter([signal.SIGUSR1, signal.SIGUSR1])) as interrupter:
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        send(signal.SIGUSR1)
        assert interrupter.get_message() == "Stopping training: received SIGUSR1."


@pytest.mark.parametrize(
    ("signals", "error", "text"),
    [
        (signal.SIGTERM, TypeError, "must be an iterable"),
        (["SIGTERM"], TypeError, "must be a number"),
        ([4711], ValueError, "there is no signal 4711"),
    ],
)
def test_what_is_no_signal_is_refused(signals: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Interrupter.on_signals(signals)


def test_a_second_sigint_raises() -> None:
    with Interrupter.on_signals() as interrupter:
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        assert interrupter.should_stop()


def test_a_second_sigterm_does_not_raise() -> None:
    with Interrupter.on_signals() as interrupter:
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        send(signal.SIGINT)
        assert interrupter.get_message() == "Stopping training: received SIGTERM."


def test_a_reset_forgives_the_first_sigint() -> None:
    with Interrupter.on_signals() as interrupter:
        send(signal.SIGINT)
        interrupter.reset()
        send(signal.SIGINT)
        assert interrupter.should_stop()


def test_the_first_sigint_does_not_raise_where_something_else_has_stopped_it() -> None:
    with Interrupter.on_signals() as interrupter:
        interrupter.stop("the disk is full")
        send(signal.SIGINT)
        assert interrupter.get_message() == "the disk is full"


def test_a_handler_of_the_user_is_called_as_well_and_comes_back() -> None:
    calls = []

    def own(number: int, frame: object) -> None:
        calls.append((number, frame is not None))

    before = signal.signal(signal.SIGTERM, own)
    try:
        with Interrupter.on_signals() as interrupter:
            send(signal.SIGTERM)
            assert interrupter.should_stop()
        assert calls == [(signal.SIGTERM, True)]
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_ignored_signal_is_heard_inside_and_ignored_again_after() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupter.on_signals() as interrupter:
            send(signal.SIGINT)
            assert interrupter.should_stop()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        send(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_previous_handlers_come_back_when_the_block_raises() -> None:
    with pytest.raises(ZeroDivisionError), Interrupter.on_signals():
        raise ZeroDivisionError
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)


def test_a_handler_that_others_have_put_on_top_stays() -> None:
    before = signal.getsignal(signal.SIGTERM)
    chained = []

    def other(number: int, frame: object) -> None:
        chained.append(ours)
        ours(number, frame)  # type: ignore[operator]

    interrupter = Interrupter.on_signals([signal.SIGTERM])
    try:
        with interrupter:
            ours = signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGTERM, other)
        assert signal.getsignal(signal.SIGTERM) is other
        # It still calls the one below it, which is out of use now.
        send(signal.SIGTERM)
        assert chained
        assert not interrupter.should_stop()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_after_the_block_ctrl_c_works_even_if_it_comes_through_the_old_handler() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        with Interrupter.on_signals():
            ours = signal.getsignal(signal.SIGINT)
            signal.signal(signal.SIGINT, lambda number, frame: ours(number, frame))  # type: ignore[operator]
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_nested_ones_all_hear_it() -> None:
    with Interrupter.on_signals() as outer:
        with Interrupter.on_signals() as inner:
            send(signal.SIGINT)
            assert inner.should_stop()
            assert outer.should_stop()
            with pytest.raises(KeyboardInterrupt):
                send(signal.SIGINT)
        outer.reset()
        send(signal.SIGTERM)
        assert outer.get_message() == "Stopping training: received SIGTERM."


def test_one_can_be_entered_again_and_inside_itself() -> None:
    interrupter = Interrupter.on_signals()
    for _ in range(2):
        with interrupter, interrupter:
            send(signal.SIGINT)
            assert interrupter.should_stop()
            with pytest.raises(KeyboardInterrupt):
                send(signal.SIGINT)
        interrupter.reset()


def test_outside_the_main_thread_it_says_so() -> None:
    errors = []

    def work() -> None:
        try:
            with Interrupter.on_signals():
                pass
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors
    assert "must be entered in the main thread" in errors[0]


def test_a_signal_that_cannot_be_caught_leaves_nothing_installed() -> None:
    with pytest.raises(OSError), Interrupter.on_signals([signal.SIGINT, signal.SIGKILL]):
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_from_outside_python_is_refused_since_it_would_be_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Python shows such a handler as None, and cannot put it back.
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    with pytest.raises(RuntimeError, match="the handler of SIGINT was installed outside Python"):
        Interrupter.on_signals().__enter__()
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_training_loop_ends_by_itself_on_sigterm() -> None:
    script = """
import time
import pitstop

with pitstop.Interrupter.on_signals() as interrupter:
    print("ready", flush=True)
    while not interrupter.should_stop():
        time.sleep(0.01)
print(interrupter.get_message())
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=20)
    assert out == "Stopping training: received SIGTERM.\n"
    assert process.returncode == 0
