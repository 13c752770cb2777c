"""Saves whose state is copied later, or written from where it lies."""

import threading
import weakref

import numpy as np
import pitstop
import pytest


def arrays(scale: float) -> dict:
    """Some that lie as they are stored, and some that do not."""
    grid = np.arange(600_000, dtype=np.float64).reshape(600, 1000) * scale
    return {
        "model": {"plain": grid.copy(), "turned": grid.T, "backwards": grid.copy()[::-2, ::3]},
        "optimizer": {"swapped": grid.astype(">f4"), "small": np.full(3, scale), "empty": np.zeros((0, 4))},
        "loose": grid[:10].copy(),
    }


def spoil(state: dict) -> None:
    for entry in state.values():
        for array in entry.values() if isinstance(entry, dict) else [entry]:
            array[...] = -1


def check(back: dict, scale: float) -> None:
    wanted = arrays(scale)
    for entry in ("model", "optimizer"):
        for name, array in wanted[entry].items():
            np.testing.assert_array_equal(back[entry][name], array, err_msg=name)
    np.testing.assert_array_equal(back["loose"], wanted["loose"])


def test_a_deferred_state_may_change_once_its_snapshot_is_taken(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        for step in (1, 2):
            state = arrays(step)
            handle = checkpointer.save(step, state, deferred=True)
            handle.wait_snapshot()
            spoil(state)
    for step in (1, 2):
        check(pitstop.restore(run, step), step)


def test_a_deferred_state_may_be_let_go_of(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        for step in range(1, 6):
            checkpointer.save(step, arrays(step), deferred=True)
    for step in range(1, 6):
        check(pitstop.restore(run, step), step)


@pytest.mark.parametrize("limit", [0, 1, 100_000, 5_000_000, 12_000_000, 100_000_000])
@pytest.mark.parametrize("deferred", [None, True])
def test_what_does_not_fit_the_limit_is_written_before_it_may_change(run, limit, deferred):
    with pitstop.AsyncCheckpointer(run, memory_limit=limit) as checkpointer:
        for step in (1, 2):
            state = arrays(step)
            handle = checkpointer.save(step, state, deferred=deferred)
            if deferred:
                handle.wait_snapshot()
            spoil(state)
    for step in (1, 2):
        check(pitstop.restore(run, step), step)


def test_restoring_waits_until_the_state_is_copied(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, {"w": np.zeros(20_000_000, dtype=np.uint8)}).result()
        state = {"w": np.ones(20_000_000, dtype=np.uint8)}
        checkpointer.save(2, state, deferred=True)
        pitstop.restore(run, 1, into=state)
        assert not state["w"].any()
    assert pitstop.restore(run, 2)["w"].all()


def test_a_change_before_the_copy_is_found(run):
    state = {"still": np.zeros(1000), "changing": np.zeros(10_000_000)}
    stop = threading.Event()

    def change():
        while not stop.is_set():
            state["changing"] += 1

    def save_until_found(checkpointer):
        # On a busy machine the other thread may sleep from the checksum to the copy.
        for step in range(1, 50):
            checkpointer.save(step, state, deferred=True, overwrite=True).result()

    thread = threading.Thread(target=change)
    with pitstop.AsyncCheckpointer(run, check_deferred=True) as checkpointer:
        thread.start()
        try:
            with pytest.raises(pitstop.SaveError, match="changing: it was changed before its deferred"):
                save_until_found(checkpointer)
        finally:
            stop.set()
            thread.join()
        checkpointer.save(100, state, deferred=True).result()
        assert checkpointer.latest() == 100


@pytest.mark.parametrize("waits", [False, True])
def test_a_change_right_after_a_small_save_is_found_each_time(run, waits):
    """The copy was often made before a change that came too early, and so nothing was found."""
    state = {"large": np.zeros(300_000), "small": np.zeros(512)}
    with pitstop.AsyncCheckpointer(run, check_deferred=True, fsync=False) as checkpointer:
        for step in range(3):
            handle = checkpointer.save(step, state, deferred=True)
            state["small"] += 1
            if waits:
                handle.wait_snapshot()
            with pytest.raises(pitstop.SaveError, match="small: it was changed before its deferred"):
                handle.result()
            # And nothing is found where nothing was done.
            handle = checkpointer.save(step, state, deferred=True)
            handle.wait_snapshot()
            state["small"] += 1
            handle.result()


def test_a_skipped_save_has_no_snapshot_to_wait_for(run):
    with pitstop.AsyncCheckpointer(run, on_busy="skip") as checkpointer:
        big = {"w": np.zeros(30_000_000)}
        checkpointer.save(1, big)
        handles = [checkpointer.save(step, big) for step in range(2, 5)]
        for handle in handles:
            handle.wait_snapshot()


def test_protect_wants_an_optimizer(run):
    wanted = pytest.raises(TypeError, match=r"register_step_pre_hook.*deferred=True")
    with pitstop.AsyncCheckpointer(run) as checkpointer, wanted:
        checkpointer.protect({"lr": 1})


class Optimizer:
    """What ``protect`` needs to know of one."""

    def __init__(self, params):
        self.param_groups = [{"params": params, "lr": 1.0}]
        self.state = {0: {"momentum": np.zeros_like(params[0]), "step": 0}}
        self.hooks = []

    def register_step_pre_hook(self, hook):
        self.hooks.append(hook)

    def step(self):
        for hook in self.hooks:
            hook(self, (), {})
        self.param_groups[0]["params"][0] += 1
        self.state[0]["momentum"] += 2


def test_a_protected_optimizer_waits_for_the_copy(run):
    params, buffers = np.zeros(5_000_000), np.zeros(1000)
    optimizer = Optimizer([params])
    state = {"params": params, "buffers": buffers, "optimizer": optimizer.state}
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.protect(optimizer)
        checkpointer.protect(optimizer)
        assert len(optimizer.hooks) == 1
        for step in range(1, 6):
            checkpointer.save(step, state)
            # What no optimizer is known to change is copied already.
            buffers += 3
            optimizer.step()
    optimizer.step()
    for step in range(1, 6):
        back = pitstop.restore(run, step)
        assert (back["params"] == step - 1).all()
        assert (back["buffers"] == 3 * (step - 1)).all()
        assert (back["optimizer"][0]["momentum"] == 2 * (step - 1)).all()


def test_a_failed_save_does_not_hold_up_the_optimizer(run):
    optimizer = Optimizer([np.zeros(1000)])
    with pitstop.AsyncCheckpointer(run, check_deferred=True) as checkpointer:
        checkpointer.protect(optimizer)
        checkpointer.save(1, {"w": np.zeros(3)}).result()
        (run / "step-2").mkdir()
        (run / "step-2" / "notes.txt").write_text("not ours")
        handle = checkpointer.save(2, {"params": optimizer.param_groups[0]["params"]})
        optimizer.step()
        with pytest.raises(pitstop.SaveError):
            handle.result()


def test_what_lies_in_the_gaps_of_a_parameter_is_not_deferred(run):
    # It counted as the optimizer's, and what was written to it after the save was saved.
    table = np.zeros((3_000_000, 3))
    optimizer = Optimizer([table[:, ::2]])
    between = table[:, 1]
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.protect(optimizer)
        for step in range(1, 4):
            checkpointer.save(step, {"between": between})
            between += 1
    for step in range(1, 4):
        assert (pitstop.restore(run, step)["between"] == step - 1).all()


@pytest.mark.parametrize("wait", ["wait_snapshot", "result"])
def test_what_was_saved_is_let_go_of_by_the_handle(run, wait):
    # It was kept until the next call on the checkpointer.
    array = np.zeros(1_000_000)
    known = weakref.ref(array)
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        handle = checkpointer.save(1, {"w": array}, deferred=True)
        del array
        getattr(handle, wait)()
        assert known() is None
