"""Which checkpoints stay: a pure function of what is committed, the same after every restart."""

import time

import disk
import numpy as np
import pitstop
import pytest
from pitstop import KeepAll, KeepBest, KeepEvery, KeepFor, KeepLast

NAN = float("nan")


def save_losses(run, losses, retention=None, **options):
    """Saves steps 1, 2, … with these losses (None: no metric) and returns the steps that are left."""
    with pitstop.AsyncCheckpointer(run, retention=retention, **options) as checkpointer:
        for step, loss in enumerate(losses, 1):
            metrics = None if loss is None else {"loss": loss}
            checkpointer.save(step, {"model": {"w": np.full(4, step)}}, metrics=metrics)
        checkpointer.wait()
    assert not disk.leftovers(run)
    return disk.whole_steps(run)


def keeps(run, retention):
    """The steps that `retention` would keep of what is in `run`."""
    with pitstop.AsyncCheckpointer(run, retention=retention) as checkpointer:
        return [entry.step for entry in checkpointer.plan() if entry.keep]


LOSSES = [0.9, 0.2, 0.5, 0.2001, 0.7, 0.8]


@pytest.mark.parametrize(
    ("retention", "left"),
    [
        (None, [1, 2, 3, 4, 5, 6]),
        (KeepAll(), [1, 2, 3, 4, 5, 6]),
        (KeepLast(1), [6]),
        (KeepLast(3), [4, 5, 6]),
        (KeepLast(100), [1, 2, 3, 4, 5, 6]),
        (KeepLast(1) | KeepBest("loss"), [2, 6]),
        (KeepLast(1) | KeepBest("loss", n=3), [2, 3, 4, 6]),
        (KeepLast(1) | KeepBest("loss", mode="max"), [1, 6]),
        (KeepLast(1) | KeepBest("loss", "max", 2), [1, 6]),
        (KeepLast(1) | KeepEvery(2), [2, 4, 6]),
        (KeepEvery(3) | KeepBest("loss") | KeepLast(1), [2, 3, 6]),
        (KeepLast(1) | (KeepEvery(2) & KeepBest("loss", n=3)), [2, 4, 6]),
        (KeepLast(4) & KeepEvery(2), [4, 6]),
        (KeepFor(3600), [1, 2, 3, 4, 5, 6]),
        (KeepAll() & KeepLast(2), [5, 6]),
        (KeepAll() | KeepLast(2), [1, 2, 3, 4, 5, 6]),
    ],
    ids=lambda value: repr(value)[:70],
)
def test_what_each_policy_keeps(run, retention, left):
    save_losses(run, LOSSES)
    assert keeps(run, retention) == left


@pytest.mark.parametrize(
    ("retention", "left"),
    [
        (KeepLast(3), [4, 5, 6]),
        (KeepLast(1) | KeepBest("loss", "max", 2), [1, 6]),
        (KeepEvery(3) | KeepBest("loss") | KeepLast(1), [2, 3, 6]),
        (KeepFor(3600) & KeepLast(2), [5, 6]),
    ],
    ids=repr,
)
def test_what_is_not_kept_is_deleted(run, retention, left):
    assert save_losses(run, LOSSES, retention) == left


def test_best_and_newest_both_survive(run):
    """The best checkpoint was deleted before the one that replaced it was saved."""
    retention = KeepLast(1) | KeepBest("loss")
    with pitstop.AsyncCheckpointer(run, retention=retention) as checkpointer:
        best = (float("inf"), 0)
        for step, loss in enumerate([0.5, 0.7, 0.3, 0.6, 0.4, 0.1, 0.2], 1):
            checkpointer.save(step, {"w": np.full(3, step)}, metrics={"loss": loss})
            checkpointer.wait()
            best = min(best, (loss, step))
            assert checkpointer.steps() == sorted({best[1], step})
            assert checkpointer.best("loss") == best[1]


@pytest.mark.parametrize("losses", [[NAN] * 4, [None] * 4, [NAN, None, NAN, None]], ids=str)
def test_without_a_usable_metric_nothing_is_best_and_nothing_is_lost(run, losses):
    """With only NaN, a random checkpoint was taken for the best and the others deleted."""
    assert save_losses(run, losses, KeepLast(1) | KeepBest("loss")) == [1, 2, 3, 4]
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        assert checkpointer.best("loss") is None


def test_once_a_usable_metric_arrives_the_backlog_goes(run):
    assert save_losses(run, [NAN, None, NAN, 0.5, NAN], KeepLast(1) | KeepBest("loss")) == [4, 5]


def test_nan_does_not_hold_a_place_among_the_best(run):
    assert save_losses(run, [0.5, NAN, 0.3, NAN, 0.9], KeepLast(1) | KeepBest("loss", n=2)) == [1, 3, 5]


def test_gaps_between_steps_do_not_leak(run):
    """Keeping the last N deleted step - N, which with gaps is a step that never was."""
    with pitstop.AsyncCheckpointer(run, retention=KeepLast(2)) as checkpointer:
        for step in [1, 10, 11, 500, 7000]:
            checkpointer.save(step, {"w": step})
        checkpointer.wait()
        assert checkpointer.steps() == [500, 7000]


def test_a_restart_decides_as_before(run):
    retention = KeepLast(2) | KeepBest("loss", n=2)
    left = save_losses(run, LOSSES, retention)
    assert left == [2, 4, 5, 6]
    assert keeps(run, retention) == left
    with pitstop.AsyncCheckpointer(run, retention=KeepLast(2) | KeepBest("loss", n=2)) as checkpointer:
        checkpointer.save(7, {"w": 7}, metrics={"loss": 0.1})
        checkpointer.wait()
        assert checkpointer.steps() == [2, 6, 7]


def test_a_lower_limit_frees_the_whole_backlog(run):
    save_losses(run, LOSSES)
    with pitstop.AsyncCheckpointer(run, retention=KeepLast(2)) as checkpointer:
        checkpointer.save(7, {"w": 7})
        checkpointer.wait()
        assert checkpointer.steps() == [6, 7]
    assert disk.visible(run) == {"step-6", "step-7"}


def test_the_order_of_saving_does_not_decide_what_is_newest(run):
    with pitstop.AsyncCheckpointer(run, retention=KeepLast(2)) as checkpointer:
        for step in [5, 9, 7]:
            checkpointer.save(step, {"w": step}).result()
        checkpointer.wait()
        assert checkpointer.steps() == [7, 9]


def test_keep_for_counts_back_from_the_newest(run):
    with pitstop.AsyncCheckpointer(run, retention=KeepFor(1.0)) as checkpointer:
        checkpointer.save(1, {"w": 1}).result()
        time.sleep(1.3)
        checkpointer.wait()
        assert checkpointer.steps() == [1]
        checkpointer.save(2, {"w": 2}).result()
        checkpointer.save(3, {"w": 3}).result()
        checkpointer.wait()
        assert checkpointer.steps() == [2, 3]


@pytest.mark.parametrize(
    "retention", [KeepEvery(1000), KeepEvery(1000) & KeepLast(1), lambda checkpoints: []], ids=repr
)
def test_the_only_checkpoint_is_never_deleted(run, retention):
    with pitstop.AsyncCheckpointer(run, retention=retention) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, {"w": step})
            checkpointer.wait()
            assert checkpointer.restore()["w"] == step


def test_a_callable_is_a_policy(run):
    seen = []

    def odd_ones(checkpoints):
        seen.append([(info.step, info.metrics["loss"]) for info in checkpoints])
        return [info.step for info in checkpoints if info.step % 2]

    assert save_losses(run, [0.1, 0.2, 0.3, 0.4, 0.5], odd_ones) == [1, 3, 5]
    assert all(steps == sorted(steps) for steps in seen)


def test_a_callable_combines_with_a_policy(run):
    assert save_losses(run, LOSSES, KeepLast(1) | (lambda checkpoints: [3])) == [3, 6]


def test_a_callable_that_fails_deletes_nothing_and_is_heard(run):
    def broken(checkpoints):
        raise LookupError("no such metric")

    checkpointer = pitstop.AsyncCheckpointer(run, retention=broken)

    def save_two():
        for step in (1, 2):
            checkpointer.save(step, {"w": step}).result()
        checkpointer.wait()
        checkpointer.close()

    with pytest.raises((LookupError, pitstop.CheckpointError), match="no such metric"):
        save_two()
    checkpointer.close()
    assert 1 in disk.whole_steps(run)


def test_plan_says_what_is_kept_and_why(run):
    save_losses(run, LOSSES)
    retention = KeepLast(1) | KeepBest("loss")
    with pitstop.AsyncCheckpointer(run, retention=retention) as checkpointer:
        plan = checkpointer.plan()
    assert disk.whole_steps(run) == [1, 2, 3, 4, 5, 6]
    assert [(entry.step, entry.keep) for entry in plan] == [
        *((1, False), (2, True), (3, False), (4, False), (5, False), (6, True))
    ]
    reasons = {entry.step: " ".join(map(str, entry.reasons)) for entry in plan}
    assert "loss" in reasons[2]
    assert reasons[6]


def test_plan_of_an_empty_run_is_empty(checkpointer):
    assert list(checkpointer.plan()) == []


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (ValueError, lambda: KeepLast(0)),
        (ValueError, lambda: KeepLast(-1)),
        (TypeError, lambda: KeepLast("3")),
        (ValueError, lambda: KeepBest("loss", mode="best")),
        (ValueError, lambda: KeepBest("loss", n=0)),
        (TypeError, lambda: KeepBest(3)),
        (ValueError, lambda: KeepEvery(0)),
        (ValueError, lambda: KeepFor(-1)),
        (TypeError, lambda: KeepLast(1) | 3),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(error, make):
    with pytest.raises(error):
        make()


def test_equal_policies_look_equal():
    assert repr(KeepLast(3)) == "KeepLast(3)"
    assert "KeepBest" in repr(KeepLast(1) | KeepBest("loss"))


def test_an_older_checkpoint_is_deleted_only_after_its_successor_is_durable(run):
    with pitstop.AsyncCheckpointer(run, retention=KeepLast(1)) as checkpointer:
        state = {"w": np.zeros(4 << 20)}
        checkpointer.save(0, state).result()
        checkpointer.wait()
        for step in range(1, 6):
            state["w"][:] = step
            handle = checkpointer.save(step, state)
            while not handle.done():
                committed = [info.step for info in pitstop.checkpoints(run)]
                assert committed, "for a moment there was no checkpoint at all"
            checkpointer.wait()
            assert checkpointer.steps() == [step]


def test_a_failed_save_deletes_nothing(run):
    with pitstop.AsyncCheckpointer(run, retention=KeepLast(1)) as checkpointer:
        checkpointer.save(1, {"w": np.ones(3)}).result()
        checkpointer.wait()
        with disk.read_only(run), pytest.raises(pitstop.SaveError):
            checkpointer.save(2, {"w": np.ones(3)}).result()
        assert checkpointer.steps() == [1]
        checkpointer.save(3, {"w": np.ones(3)}).result()
        checkpointer.wait()
        assert checkpointer.steps() == [3]


def test_a_damaged_newest_does_not_cost_the_last_intact_one(run):
    """Retention counted a damaged checkpoint as the one to keep and deleted the one that could be read."""
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, {"w": np.full(50, step)}).result()
    manifest = run / "step-2" / "manifest.json"
    disk.flip(manifest, manifest.stat().st_size // 2)
    with pitstop.AsyncCheckpointer(run, retention=KeepLast(1)) as checkpointer:
        checkpointer.check()
        assert 1 in checkpointer.steps()
        checkpointer.save(3, {"w": np.full(50, 3)}).result()
        checkpointer.wait()
        assert checkpointer.restore()["w"][0] == 3


def test_what_this_process_found_damaged_is_not_what_retention_keeps_instead_of_all_others(run):
    """What it had written itself counted as intact for ever: all others were deleted."""
    with pitstop.AsyncCheckpointer(run, retention=KeepBest("loss")) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, {"w": np.full(50, step)}, metrics={"loss": 1 / step}).result()
        checkpointer.wait()
        assert checkpointer.steps() == [2]
        path = run / "step-2" / "state.safetensors"
        disk.rot(path, path.stat().st_size - 1)
        with pytest.raises(pitstop.CorruptCheckpointError):
            checkpointer.restore(2)
        checkpointer.save(3, {"w": np.full(50, 3)}, metrics={"loss": 1.0}).result()
        checkpointer.wait()
        assert 3 in checkpointer.steps()
        assert checkpointer.restore()["w"][0] == 3


def test_what_somebody_changed_is_read_before_retention_relies_on_it(run):
    """Files of full length counted as intact: the only intact checkpoint was deleted."""
    with pitstop.AsyncCheckpointer(run, retention=KeepEvery(10)) as checkpointer:
        checkpointer.save(10, {"w": np.ones(30)}).result()
        path = run / "step-10" / "state.safetensors"
        disk.flip(path, path.stat().st_size - 1)
        checkpointer.save(11, {"w": np.zeros(30)}).result()
        checkpointer.wait()
        assert checkpointer.steps() == [10, 11]
        disk.flip(path, path.stat().st_size - 1)
        checkpointer.save(12, {"w": np.zeros(30)}).result()
        checkpointer.wait()
        assert checkpointer.steps() == [10]
