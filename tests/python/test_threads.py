"""Every call from every thread at once: no deadlock, no mix-up."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import child
import disk
import numpy as np
import pitstop
import pytest

THREADS = 8


def state_at(step):
    return {"model": {"w": np.full(1000, step)}, "step": step}


def assert_consistent(state):
    assert (state["model"]["w"] == state["step"]).all()


def all_at_once(*work):
    """Runs every callable in a thread of its own, all starting together, and returns their results."""
    barrier = threading.Barrier(len(work))

    def start(one):
        barrier.wait()
        return one()

    with ThreadPoolExecutor(len(work)) as pool:
        return [future.result(timeout=60) for future in [pool.submit(start, one) for one in work]]


def test_saves_from_many_threads_all_arrive(checkpointer, run):
    def save_some(first):
        for step in range(first, first + 40, THREADS):
            checkpointer.save(step, state_at(step)).result()

    all_at_once(*(lambda first=first: save_some(first) for first in range(THREADS)))
    assert disk.whole_steps(run) == list(range(40))
    for step in range(40):
        state = checkpointer.restore(step)
        assert state["step"] == step
        assert_consistent(state)


def test_one_step_from_many_threads_is_saved_once(checkpointer, run):
    def save():
        try:
            checkpointer.save(1, state_at(1)).result()
        except pitstop.StepExistsError:
            return "exists"
        return "saved"

    outcomes = all_at_once(*[save] * THREADS)
    assert outcomes.count("saved") == 1
    assert disk.whole_steps(run) == [1]


def test_everything_at_once(run):
    with pitstop.AsyncCheckpointer(run, retention=pitstop.KeepLast(3), fsync=False) as checkpointer:
        checkpointer.save(0, state_at(0)).result()
        until = time.monotonic() + 2

        def repeat(work):
            count = 0
            while time.monotonic() < until:
                with contextlib.suppress(pitstop.CheckpointNotFoundError):  # retention was quicker
                    work(count)
                count += 1
            return count

        def look(_):
            assert checkpointer.latest() in checkpointer.steps() or checkpointer.latest() is not None
            checkpointer.plan()
            checkpointer.best("loss")

        def resume(_):
            state = state_at(-1)
            checkpointer.resume(into=state)
            assert_consistent(state)

        work = [
            lambda count: checkpointer.save(count + 1, state_at(count + 1), metrics={"loss": 1.0}),
            lambda _: assert_consistent(checkpointer.restore()),
            lambda _: assert_consistent(pitstop.restore(run)),
            resume,
            look,
            lambda _: checkpointer.wait(timeout=30),
            lambda _: checkpointer.check(),
            lambda _: pitstop.checkpoints(run),
        ]
        counts = all_at_once(*(lambda one=one: repeat(one) for one in work))
        assert min(counts) >= 1
        checkpointer.wait()
        assert checkpointer.latest() == counts[0]
    assert len(disk.whole_steps(run)) == 3


def test_a_pending_failure_reaches_exactly_one_thread(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        with disk.replaced_by_a_file(run):
            handle = checkpointer.save(1, state_at(1))
            while not handle.done():
                time.sleep(0.005)

        def check():
            try:
                checkpointer.check()
            except pitstop.SaveError:
                return 1
            return 0

        assert sum(all_at_once(*[check] * THREADS)) == 1


@pytest.mark.parametrize("attempt", range(5))
def test_close_from_many_threads_during_a_save(run, attempt):
    checkpointer = pitstop.AsyncCheckpointer(run)
    checkpointer.save(1, {"w": np.zeros(1 << 20)})
    all_at_once(*[checkpointer.close] * THREADS)
    assert disk.whole_steps(run) == [1]


@pytest.mark.parametrize("attempt", range(5))
def test_close_while_others_save_restore_and_wait(run, attempt):
    checkpointer = pitstop.AsyncCheckpointer(run)
    checkpointer.save(0, state_at(0)).result()

    def until_closed(work):
        for count in range(10_000):
            try:
                work(count)
            except pitstop.CheckpointError as error:
                return "closed" in str(error)
        return False

    def close():
        time.sleep(0.05)
        checkpointer.close()
        return True

    assert all(
        all_at_once(
            lambda: until_closed(lambda count: checkpointer.save(count + 1, state_at(count + 1))),
            lambda: until_closed(lambda _: assert_consistent(checkpointer.restore(0))),
            close,
        )
    )
    for step in disk.whole_steps(run):
        assert_consistent(pitstop.restore(run, step))


def test_other_threads_run_while_one_waits(checkpointer, big_state):
    """`wait` held the GIL, and nothing else ran until the save was over."""
    checkpointer.save(1, big_state)
    ticks = 0
    thread = threading.Thread(target=checkpointer.wait)
    thread.start()
    while thread.is_alive():
        ticks += 1
        time.sleep(0.0005)
    thread.join()
    assert ticks >= 3


def test_save_inside_save_is_refused_instead_of_waiting_for_itself(checkpointer):
    # An object that saves while it is asked for its state waited for its own turn for ever.
    class Recursive:
        def state_dict(self):
            checkpointer.save(2, {"n": 2})
            return {}

        def load_state_dict(self, state):
            raise AssertionError(state)

    with pytest.raises(pitstop.CheckpointError, match="inside save"):
        checkpointer.save(1, {"object": Recursive()})
    checkpointer.save(3, {"n": 3}).result()
    assert checkpointer.steps() == [3]


def outcome(call):
    """What a call came to: its result, or "closed" if the checkpointer was closed by then."""
    try:
        return call()
    except pitstop.CheckpointError as error:
        if "closed" not in str(error):
            raise
        return "closed"


@pytest.mark.parametrize("attempt", range(30))
def test_each_call_once_and_all_at_once(run, attempt):
    """One save, delete, restore, check, wait and close, and each thread drops its reference at the end."""
    checkpointer = pitstop.AsyncCheckpointer(run, fsync=False)
    checkpointer.save(0, state_at(0)).result()
    checkpointer.save(1, state_at(1)).result()
    calls = {
        "save": lambda it: it.save(2, state_at(2)).result(),
        "delete": lambda it: it.delete(0),
        "restore": lambda it: it.restore(1),
        "check": lambda it: it.check(),
        "wait": lambda it: it.wait(),
        "close": lambda it: it.close(),
    }
    references = [checkpointer for _ in calls]
    del checkpointer

    def last_use(call):
        return outcome(lambda: call(references.pop()))

    outcomes = dict(zip(calls, all_at_once(*(lambda c=c: last_use(c) for c in calls.values())), strict=True))
    assert outcomes["close"] is None
    if outcomes["restore"] != "closed":
        assert_consistent(outcomes["restore"])
    expected = {0, 1, 2}
    if outcomes["save"] == "closed":
        expected.remove(2)
    if outcomes["delete"] != "closed":
        expected.remove(0)
    assert set(disk.whole_steps(run)) == expected
    pitstop.AsyncCheckpointer(run).close()


@pytest.mark.parametrize("attempt", range(10))
def test_the_last_reference_goes_in_any_thread_while_handles_are_waited_for(run, attempt):
    checkpointer = pitstop.AsyncCheckpointer(run, fsync=False)
    handle = checkpointer.save(1, {"w": np.zeros(1 << 20)})
    references = [checkpointer for _ in range(THREADS)]
    del checkpointer
    work = [references.pop] * THREADS + [handle.result, handle.done, lambda: handle.result(timeout=30)]
    all_at_once(*(lambda one=one: one() and None for one in work))
    assert disk.whole_steps(run) == [1]
    pitstop.AsyncCheckpointer(run).close()


@pytest.mark.parametrize("attempt", range(10))
def test_whoever_closes_leaves_the_directory_free(run, attempt):
    """The second `close` returned while the first was still releasing the directory."""
    checkpointer = pitstop.AsyncCheckpointer(run, retention=pitstop.KeepLast(1), fsync=False)
    # What retention has retired is kept for the next save, and removed only when the directory is released.
    for step in range(2):
        checkpointer.save(step, {"w": np.full(4 << 20, step, dtype=np.float64)}).result()
    one_at_a_time = threading.Lock()

    def close():
        checkpointer.close()
        with one_at_a_time:
            pitstop.AsyncCheckpointer(run).close()

    all_at_once(*[close] * THREADS)


@pytest.mark.parametrize("attempt", range(10))
def test_a_failure_reaches_exactly_one_of_all_calls(run, attempt):
    checkpointer = pitstop.AsyncCheckpointer(run)
    told = []

    def listen(call):
        try:
            call()
        except pitstop.SaveError as error:
            told.append(error)

    calls = [checkpointer.check, checkpointer.wait, checkpointer.close, lambda: checkpointer.restore(0)]
    with disk.replaced_by_a_file(run):
        checkpointer.save(1, state_at(1))
        all_at_once(*(lambda call=call: listen(lambda: closed_or_missing(call)) for call in calls * 2))
    # `check` may have been too early; `close` never is.
    assert len(told) == 1


def closed_or_missing(call):
    with contextlib.suppress(OSError):
        outcome(call)


class Slow:
    """Lets other threads run while it is asked for its state."""

    def state_dict(self):
        time.sleep(0.001)
        return {"n": 1}

    def load_state_dict(self, state):
        raise AssertionError(state)


def test_a_dict_may_change_in_another_thread_while_it_is_saved(checkpointer):
    state = {"object": Slow(), "fixed": 1}
    saved = threading.Event()

    def change():
        count = 0
        while not saved.is_set():
            state[f"key {count}"] = count
            state.pop(f"key {count - 10}", None)
            count += 1
            time.sleep(0.0001)

    def save():
        try:
            for step in range(20):
                checkpointer.save(step, state).result()
                assert checkpointer.restore(step)["fixed"] == 1
        finally:
            saved.set()

    all_at_once(change, save)


@pytest.mark.parametrize("limit", [0, 8_000_000, None])
def test_what_others_change_meanwhile_is_never_committed_damaged(run, limit):
    changing = np.zeros(4_000_000)
    over = threading.Event()

    def change():
        while not over.is_set():
            changing[:] += 1

    saved, refusals = [], []
    with (
        pitstop.AsyncCheckpointer(run, memory_limit=limit) as checkpointer,
        ThreadPoolExecutor(1) as pool,
    ):
        changes = pool.submit(change)
        try:
            for step in range(8):
                try:
                    checkpointer.save(step, {"changing": changing}).result()
                    saved.append(step)
                except pitstop.SaveError as error:
                    refusals.append(str(error))
        finally:
            over.set()
        changes.result()
        for step in saved:
            checkpointer.restore(step)
    assert disk.whole_steps(run) == saved
    assert all("changing: it was changed while it was written" in refusal for refusal in refusals)
    assert limit is not None or not refusals


RESIZED = """
    import sys, threading
    from pathlib import Path
    import disk, numpy as np, pitstop

    directory, array = Path(sys.argv[1]), np.ones(16 << 20)

    def resize():
        # From then on it is written.
        while not disk.leftovers(directory):
            pass
        try:
            array.resize(1, refcheck=False)
        except ValueError:
            print("refused")

    thread = threading.Thread(target=resize, daemon=True)
    thread.start()
    pitstop.save(directory / "single", {"array": array})
    thread.join(20)
    print(pitstop.restore(directory / "single")["array"].sum() / array.size)
"""


def test_another_thread_cannot_free_an_array_while_it_is_written(tmp_path):
    """`pitstop.save` held the array, but not its memory."""
    assert child.run(RESIZED, tmp_path).split() == ["refused", "1.0"]
