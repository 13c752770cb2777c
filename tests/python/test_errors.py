"""A save that fails is heard of exactly once, harms nothing, and the next one works."""

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import threading
import time

import child
import disk
import numpy as np
import pitstop
import pytest
from same import assert_same

MESSAGE = "Error when saving the state: "


def state_at(step, size=1000):
    return {"model": {"w": np.full(size, float(step))}, "step": step}


@contextlib.contextmanager
def removed(run):
    """Takes the whole run away; it comes back empty-handed to whoever still has it open."""
    aside = run.with_name("aside")
    run.rename(aside)
    try:
        yield
    finally:
        shutil.rmtree(run, ignore_errors=True)
        aside.rename(run)


FAULTS = [removed, disk.read_only, disk.replaced_by_a_file]


def settle(handle):
    """Waits for a save to end without asking how it ended."""
    deadline = time.monotonic() + 60
    while not handle.done():
        assert time.monotonic() < deadline, "the save hangs"
        time.sleep(0.005)


def assert_save_error(error, run):
    assert isinstance(error, pitstop.CheckpointError)
    assert str(error).startswith(f"step 2: {MESSAGE}")
    assert isinstance(error.__cause__, OSError)
    assert error.__cause__.errno in (errno.ENOENT, errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOTDIR)
    assert str(run) in str(error.__cause__.filename)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_save_is_raised_by_its_handle_and_then_never_again(checkpointer, run, fault):
    checkpointer.save(1, state_at(1)).result()
    with fault(run):
        with pytest.raises(pitstop.SaveError) as caught:
            checkpointer.save(2, state_at(2)).result()
        assert_save_error(caught.value, run)
        checkpointer.check()
        checkpointer.wait()
    checkpointer.check()
    checkpointer.save(3, state_at(3)).result()
    assert disk.whole_steps(run) == checkpointer.steps() == [1, 3]
    assert_same(state_at(1), checkpointer.restore(1))
    assert_same(state_at(3), checkpointer.restore())
    assert not disk.leftovers(run)


NEXT_CALLS = {
    "save": lambda made: made.save(9, state_at(9)),
    "delete": lambda made: made.delete(1),
    "restore": lambda made: made.restore(),
    "resume": lambda made: made.resume(into=state_at(0)),
    "check": lambda made: made.check(),
    "wait": lambda made: made.wait(),
    "close": lambda made: made.close(),
}


@pytest.mark.parametrize("call", NEXT_CALLS)
def test_a_failed_save_is_raised_by_the_next_call_and_then_never_again(run, call):
    """The next call said "sending on a closed channel", and what had gone wrong was lost."""
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, state_at(1)).result()
        with disk.replaced_by_a_file(run):
            settle(checkpointer.save(2, state_at(2)))
        with pytest.raises(pitstop.SaveError) as caught:
            NEXT_CALLS[call](checkpointer)
        assert_save_error(caught.value, run)
        if call != "close":
            checkpointer.check()
            checkpointer.save(3, state_at(3)).result()
            checkpointer.wait()
    assert disk.whole_steps(run) == ([1] if call == "close" else [1, 3])


def test_leaving_with_raises_what_has_not_been_raised(run):
    checkpointer = pitstop.AsyncCheckpointer(run)

    def train():
        with checkpointer:
            settle(checkpointer.save(1, state_at(1)))

    with disk.read_only(run), pytest.raises(pitstop.SaveError, match=MESSAGE):
        train()
    checkpointer.close()


def test_leaving_with_on_an_exception_does_not_hide_it_behind_a_failed_save(run):
    checkpointer = pitstop.AsyncCheckpointer(run)

    def train():
        with checkpointer:
            settle(checkpointer.save(1, state_at(1)))
            raise ArithmeticError("loss is NaN")

    with disk.read_only(run), pytest.raises(ArithmeticError, match="loss is NaN"):
        train()


class Unnotable(Exception):
    add_note = None


@pytest.mark.parametrize(
    "leaving",
    [SystemExit(0), GeneratorExit(), asyncio.CancelledError(), StopIteration(), Unnotable()],
    ids=repr,
)
def test_leaving_with_on_what_nobody_is_shown_raises_a_failed_save(run, leaving):
    """It was a note of them, which Python does not print: the exit code was 0."""
    checkpointer = pitstop.AsyncCheckpointer(run)

    def train():
        with checkpointer:
            checkpointer.save(2, state_at(2))
            raise leaving

    with removed(run), pytest.raises(pitstop.SaveError, match="step 2") as caught:
        train()
    assert caught.value.__context__ is leaving


def test_each_of_two_failures_is_raised(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        raised = []
        with disk.replaced_by_a_file(run):
            for step in (1, 2):
                try:
                    checkpointer.save(step, state_at(step)).result()
                except pitstop.SaveError as error:
                    raised.append(error)
        assert len(raised) == 2
        assert raised[0] is not raised[1]
        checkpointer.check()


def test_dropping_a_checkpointer_with_a_failure_does_not_panic(run):
    """Dropping after a failure panicked a second time and took the process down."""
    output = child.run(
        """
        import os, sys, time, pitstop
        checkpointer = pitstop.AsyncCheckpointer(sys.argv[1])
        os.rename(sys.argv[1], sys.argv[1] + "-aside")
        open(sys.argv[1], "w").close()
        handle = checkpointer.save(1, {"w": 1})
        while not handle.done():
            time.sleep(0.01)
        del checkpointer, handle
        print("alive")
        """,
        run,
    )
    assert output.strip() == "alive"


@pytest.mark.parametrize("fault", FAULTS)
def test_with_an_interrupter_the_loop_sees_it_and_save_does_not_raise(run, fault):
    interrupter = pitstop.Interrupter()
    with pitstop.AsyncCheckpointer(run, interrupter=interrupter) as checkpointer:
        checkpointer.save(1, state_at(1)).result()
        with fault(run):
            settle(checkpointer.save(2, state_at(2)))
        assert interrupter.should_stop()
        assert MESSAGE.strip() in interrupter.get_message()
        settle(checkpointer.save(3, state_at(3)))
        checkpointer.delete(1)
        with pytest.raises(pitstop.SaveError, match=MESSAGE):
            checkpointer.wait()
        checkpointer.wait()
        assert checkpointer.steps() == [3]


def test_with_an_interrupter_close_still_raises(run):
    checkpointer = pitstop.AsyncCheckpointer(run, interrupter=pitstop.Interrupter())
    with disk.read_only(run):
        settle(checkpointer.save(1, state_at(1)))
        with pytest.raises(pitstop.SaveError):
            checkpointer.close()
    checkpointer.close()


def test_a_failed_delete_says_so_once_and_deletes_nothing(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, state_at(1)).result()
        with disk.read_only(run):
            checkpointer.delete(1)
            with pytest.raises(pitstop.DeleteError) as caught:
                checkpointer.wait()
            checkpointer.check()
        assert str(caught.value).startswith("step 1: Error when deleting the state: ")
        assert isinstance(caught.value.__cause__, OSError)
        assert_same(state_at(1), checkpointer.restore(1))
        checkpointer.delete(1)
        checkpointer.wait()
        assert checkpointer.steps() == []


def test_with_an_interrupter_a_failed_delete_stops_the_loop(run):
    interrupter = pitstop.Interrupter()
    with pitstop.AsyncCheckpointer(run, interrupter=interrupter) as checkpointer:
        checkpointer.save(1, state_at(1)).result()
        with disk.read_only(run):
            checkpointer.delete(1)
            with pytest.raises(pitstop.DeleteError):
                checkpointer.wait()
        assert "Error when deleting the state" in interrupter.get_message()


def test_a_full_disk(small_disk):
    run = small_disk / "run"
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, state_at(1)).result()
        for _ in range(3):
            with pytest.raises(pitstop.SaveError) as caught:
                checkpointer.save(2, state_at(2, size=1 << 20)).result()
            assert caught.value.__cause__.errno == errno.ENOSPC
            assert str(caught.value).startswith(f"step 2: {MESSAGE}")
        assert_same(state_at(1), checkpointer.restore())
        # What was half-written must have given its room back: this needs most of it.
        checkpointer.save(3, state_at(3, size=400_000)).result()
        assert disk.whole_steps(run) == [1, 3]
        assert not disk.leftovers(run)


def test_a_disk_that_fills_up_at_any_point(small_disk):
    """The room left grows from nothing, so that each file, the manifest too, is once the one that fails."""
    run = small_disk / "run"
    filler = small_disk / "filler"
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(0, state_at(0)).result()
        outcomes = set()
        for step in range(1, 16):
            filler.write_bytes(b"x" * fill_size(small_disk, leave=(step - 1) * 8192))
            try:
                checkpointer.save(step, state_at(step, size=4000)).result()
                outcomes.add("saved")
            except pitstop.SaveError as error:
                outcomes.add(errno.errorcode[error.__cause__.errno])
            assert disk.whole_steps(run) == checkpointer.steps()
            assert not disk.leftovers(run)
            filler.unlink()
        assert outcomes == {"saved", "ENOSPC"}


def fill_size(directory, leave):
    return max(shutil.disk_usage(directory).free - leave, 0)


LIMITED = """
    import errno, resource, sys
    import numpy as np, pitstop

    small, large = {"w": np.ones(1000)}, {"w": np.ones(1 << 18)}
    with pitstop.AsyncCheckpointer(sys.argv[1]) as checkpointer:
        checkpointer.save(1, small).result()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        try:
            checkpointer.save(2, large).result()
        except pitstop.SaveError as error:
            print(str(error).split(":")[0], errno.errorcode[error.__cause__.errno])
        checkpointer.save(3, small).result()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        checkpointer.save(4, large).result()
        print(checkpointer.steps())
"""


def test_a_limit_on_the_size_of_files(run):
    lines = child.run(LIMITED, run).splitlines()
    assert lines == ["step 2 EFBIG", "[1, 3, 4]"]
    assert disk.whole_steps(run) == [1, 3, 4]


OUT_OF_FILES = """
    import errno, os, resource, sys
    import numpy as np, pitstop

    with pitstop.AsyncCheckpointer(sys.argv[1]) as checkpointer:
        checkpointer.save(1, {"w": np.ones(1000)}).result()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        taken = []
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        try:
            checkpointer.save(2, {"w": np.ones(1000)}).result()
        except pitstop.SaveError as error:
            print(errno.errorcode[error.__cause__.errno])
        for descriptor in taken:
            os.close(descriptor)
        checkpointer.save(3, {"w": np.ones(1000)}).result()
        print(checkpointer.steps())
"""


def test_no_file_descriptors_left(run):
    assert child.run(OUT_OF_FILES, run).split("\n")[:2] == ["EMFILE", "[1, 3]"]
    assert disk.whole_steps(run) == [1, 3]


def test_a_directory_deleted_under_a_running_save(run, big_state):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        handle = checkpointer.save(1, big_state)
        while run.exists():
            shutil.rmtree(run, ignore_errors=True)
        with pytest.raises(pitstop.SaveError, match=MESSAGE):
            handle.result()
        run.mkdir()
        checkpointer.save(2, state_at(2)).result()
        assert disk.whole_steps(run) == [2]


class GoneError(Exception):
    """Raised by a signal in the middle of a restore."""


@pytest.fixture
def call_away():
    """A context manager that ends its body with GoneError after some seconds, as Ctrl-C would."""

    def leave(number, frame):
        raise GoneError

    @contextlib.contextmanager
    def after(seconds):
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    before = signal.signal(signal.SIGUSR1, leave)
    yield after
    signal.signal(signal.SIGUSR1, before)


def test_a_restore_whose_caller_goes_away_ends_in_the_callback_message(checkpointer, big_state, call_away):
    checkpointer.save(1, big_state).result()
    messages = []
    for attempt in range(40):
        with contextlib.suppress(GoneError), call_away(0.001 * (attempt % 10 + 1)):
            checkpointer.restore(1)
        try:
            checkpointer.wait()
        except pitstop.CallbackError as error:
            messages.append(str(error))
        checkpointer.check()
    assert messages, "40 callers went away and none was missed"
    expected = "step 1: Error when sending response through callback channel: "
    assert all(text.startswith(expected) for text in messages)
    assert_same(big_state, checkpointer.restore(1))
    checkpointer.save(2, {"w": 1}).result()
    assert checkpointer.steps() == [1, 2]


def test_a_restore_whose_caller_stays_leaves_no_callback_error(checkpointer, big_state):
    checkpointer.save(1, big_state).result()
    for _ in range(3):
        checkpointer.restore(1)
    checkpointer.wait()
