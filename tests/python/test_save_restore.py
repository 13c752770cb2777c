"""Saving, restoring and looking: every call at its plainest."""

import time
from pathlib import Path

import disk
import numpy as np
import pitstop
import pytest
from same import assert_same


def state_at(step):
    return {"model": {"weight": np.full((3, 4), float(step))}, "step": step, "name": "exp1"}


def save_all(checkpointer, *steps, **how):
    for step in steps:
        checkpointer.save(step, state_at(step), **how)
    checkpointer.wait()


def test_what_was_saved_comes_back(checkpointer):
    checkpointer.save(5, state_at(5))
    assert_same(state_at(5), checkpointer.restore(5))


def test_restore_without_a_step_gives_the_newest(checkpointer):
    save_all(checkpointer, 1, 3, 2)
    assert checkpointer.restore()["step"] == 3


def test_restore_waits_for_the_save_before_it(checkpointer, big_state):
    checkpointer.save(1, big_state)
    assert_same(big_state, checkpointer.restore(1))


@pytest.mark.parametrize(
    "state",
    [None, 3, "text", [1, 2.5, None], (np.arange(3), "x"), np.arange(6).reshape(2, 3), {}, []],
    ids=repr,
)
def test_a_state_need_not_be_a_dict(checkpointer, state):
    checkpointer.save(0, state)
    assert_same(state, checkpointer.restore(0))


def test_a_missing_step_is_not_found(checkpointer):
    save_all(checkpointer, 1)
    with pytest.raises(pitstop.CheckpointNotFoundError, match="2"):
        checkpointer.restore(2)


def test_an_empty_run_has_nothing_to_restore(checkpointer):
    with pytest.raises(FileNotFoundError):
        checkpointer.restore()


def test_a_path_without_checkpoints_is_not_found(tmp_path):
    with pytest.raises(pitstop.CheckpointNotFoundError):
        pitstop.restore(tmp_path / "nowhere")


def test_resume_fills_the_state_and_returns_the_step(checkpointer):
    save_all(checkpointer, 4, 8)
    state = state_at(0)
    weight = state["model"]["weight"]
    assert checkpointer.resume(into=state) == 8
    assert state["step"] == 8
    assert (weight == 8.0).all()


def test_resume_of_a_fresh_run_is_none_and_touches_nothing(checkpointer):
    state = state_at(0)
    assert checkpointer.resume(into=state) is None
    assert_same(state_at(0), state)


def test_a_run_is_resumed_by_the_next_checkpointer(run):
    with pitstop.AsyncCheckpointer(run) as first:
        save_all(first, 7)
    with pitstop.AsyncCheckpointer(run) as second:
        assert second.resume(into=state_at(0)) == 7
        save_all(second, 8)
        assert second.steps() == [7, 8]


def test_step_zero_is_a_step(checkpointer):
    save_all(checkpointer, 0)
    assert checkpointer.latest() == 0
    assert checkpointer.resume(into=state_at(9)) == 0


def test_the_looking_calls_of_an_empty_run(checkpointer):
    assert checkpointer.latest() is None
    assert checkpointer.best("loss") is None
    assert checkpointer.steps() == []
    assert checkpointer.checkpoints() == []
    with pytest.raises(pitstop.CheckpointNotFoundError):
        checkpointer.info(1)


def test_steps_ascend_as_numbers(checkpointer):
    save_all(checkpointer, 10, 9, 100, 1)
    assert checkpointer.steps() == [1, 9, 10, 100]
    assert checkpointer.latest() == 100
    assert [info.step for info in checkpointer.checkpoints()] == [1, 9, 10, 100]


def test_latest_never_shows_a_step_before_it_is_committed(checkpointer, run, big_state):
    save_all(checkpointer, 1)
    handle = checkpointer.save(2, big_state)
    while not handle.done():
        if checkpointer.latest() != 1:
            assert (run / "step-2" / "manifest.json").is_file()
    assert checkpointer.latest() == 2


def test_info_says_what_was_saved_with_a_checkpoint(checkpointer, run):
    metrics, metadata = {"val_loss": 0.25, "accuracy": 1}, {"git": "abc123", "tags": ["a", None, {"b": 2.5}]}
    handle = checkpointer.save(3, state_at(3), metrics=metrics, metadata=metadata)
    result = handle.result()
    for info in (result, checkpointer.info(3), *checkpointer.checkpoints(), *pitstop.checkpoints(run)):
        assert info.step == 3
        assert Path(info.path).resolve() == (run / "step-3").resolve()
        assert info.metrics == metrics
        assert info.metadata == metadata
        assert info.nbytes >= 3 * 4 * 8
        assert info.created is not None
    assert checkpointer.info(3).created == result.created


def test_metrics_and_metadata_default_to_nothing(checkpointer):
    info = checkpointer.save(1, state_at(1)).result()
    assert not info.metrics
    assert not info.metadata


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, 2**60])
def test_any_number_is_a_metric(checkpointer, run, value):
    checkpointer.save(1, state_at(1), metrics={"loss": value}).result()
    (info,) = pitstop.checkpoints(run)
    assert repr(float(info.metrics["loss"])) == repr(float(value))


def test_a_numpy_scalar_is_a_metric(checkpointer):
    info = checkpointer.save(1, state_at(1), metrics={"loss": np.float32(0.5)}).result()
    assert info.metrics["loss"] == 0.5


def test_best_is_the_smallest_or_the_largest(checkpointer):
    for step, loss in [(1, 0.5), (2, 0.1), (3, 0.9)]:
        checkpointer.save(step, state_at(step), metrics={"loss": loss})
    checkpointer.wait()
    assert checkpointer.best("loss") == 2
    assert checkpointer.best("loss", mode="max") == 3
    assert checkpointer.best("other") is None
    with pytest.raises(ValueError):
        checkpointer.best("loss", mode="middle")


def test_nan_is_never_best(checkpointer):
    for step, loss in [(1, float("nan")), (2, 0.7), (3, float("nan"))]:
        checkpointer.save(step, state_at(step), metrics={"loss": loss})
    checkpointer.wait()
    assert checkpointer.best("loss") == 2
    assert checkpointer.best("loss", "max") == 2
    checkpointer.delete(2)
    checkpointer.wait()
    assert checkpointer.best("loss") is None


def test_an_existing_step_is_not_overwritten_by_accident(checkpointer):
    save_all(checkpointer, 1)
    with pytest.raises(pitstop.StepExistsError, match="1"):
        checkpointer.save(1, state_at(99)).result()
    checkpointer.wait()
    assert checkpointer.restore(1)["step"] == 1


def test_a_step_still_in_flight_exists_too(checkpointer, big_state):
    checkpointer.save(1, big_state)
    with pytest.raises(FileExistsError):
        checkpointer.save(1, state_at(1)).result()
    checkpointer.wait()
    assert checkpointer.restore(1)["model"]["weight"].size == big_state["model"]["weight"].size


def test_overwrite_swaps_the_step(checkpointer, run):
    save_all(checkpointer, 1, 2)
    checkpointer.save(1, {"other": np.zeros(2)}, overwrite=True)
    checkpointer.wait()
    assert_same({"other": np.zeros(2)}, checkpointer.restore(1))
    assert disk.whole_steps(run) == [1, 2]
    assert not disk.leftovers(run)


def test_overwrite_of_nothing_is_a_save(checkpointer):
    save_all(checkpointer, 1, overwrite=True)
    assert checkpointer.steps() == [1]


def test_delete_removes_one_step(checkpointer, run):
    save_all(checkpointer, 1, 2, 3)
    checkpointer.delete(2)
    checkpointer.wait()
    assert disk.whole_steps(run) == checkpointer.steps() == [1, 3]
    assert not disk.leftovers(run)


def test_delete_comes_after_the_save_before_it(checkpointer, big_state):
    checkpointer.save(1, big_state)
    checkpointer.delete(1)
    checkpointer.wait()
    assert checkpointer.steps() == []


def test_delete_of_a_missing_step_is_an_error(checkpointer):
    save_all(checkpointer, 1)

    def delete_and_wait(step):
        checkpointer.delete(step)
        checkpointer.wait()

    with pytest.raises((pitstop.CheckpointNotFoundError, pitstop.DeleteError)):
        delete_and_wait(2)
    assert checkpointer.steps() == [1]


def test_a_handle_follows_its_save(checkpointer, big_state):
    handle = checkpointer.save(6, big_state)
    assert handle.step == 6
    assert handle.skipped is False
    handle.wait_snapshot()
    while not handle.done():
        done, total = handle.progress()
        assert 0 <= done <= total
        time.sleep(0.001)
    info = handle.result(timeout=10)
    assert info.step == 6
    done, total = handle.progress()
    assert done == total >= big_state["model"]["weight"].nbytes


def test_result_and_wait_give_up_after_their_timeout(checkpointer, big_state):
    handle = checkpointer.save(1, big_state)
    with pytest.raises(TimeoutError):
        handle.result(timeout=1e-4)
    with pytest.raises(TimeoutError):
        checkpointer.wait(timeout=1e-4)
    checkpointer.wait(timeout=60)
    assert handle.result().step == 1


def test_a_busy_checkpointer_waits(run, big_state):
    with pitstop.AsyncCheckpointer(run, on_busy="wait") as checkpointer:
        handles = [checkpointer.save(step, big_state) for step in (1, 2)]
        checkpointer.wait()
        assert not any(handle.skipped for handle in handles)
        assert checkpointer.steps() == [1, 2]


def test_a_busy_checkpointer_skips(run, big_state):
    with pitstop.AsyncCheckpointer(run, on_busy="skip") as checkpointer:
        first, second = checkpointer.save(1, big_state), checkpointer.save(2, state_at(2))
        assert (first.skipped, second.skipped) == (False, True)
        assert second.step == 2
        assert second.done()
        checkpointer.wait()
        assert checkpointer.steps() == [1]
        assert checkpointer.save(3, state_at(3)).skipped is False


def test_a_busy_checkpointer_raises(run, big_state):
    with pitstop.AsyncCheckpointer(run, on_busy="raise") as checkpointer:
        checkpointer.save(1, big_state)
        with pytest.raises(pitstop.CheckpointError, match="step 2 is not saved") as caught:
            checkpointer.save(2, state_at(2))
        assert str(run) in str(caught.value)
        checkpointer.wait()
        assert checkpointer.steps() == [1]
        save_all(checkpointer, 3)


def test_check_of_a_healthy_checkpointer_returns(checkpointer):
    assert checkpointer.check() is None
    save_all(checkpointer, 1)
    assert checkpointer.check() is None


def test_close_drains_and_can_be_repeated(run, big_state):
    checkpointer = pitstop.AsyncCheckpointer(run)
    checkpointer.save(1, big_state)
    checkpointer.close()
    checkpointer.close()
    assert disk.whole_steps(run) == [1]


@pytest.mark.parametrize(
    "call",
    [
        lambda closed: closed.save(2, {}),
        lambda closed: closed.delete(1),
        lambda closed: closed.restore(),
        lambda closed: closed.resume(into={}),
    ],
    ids=["save", "delete", "restore", "resume"],
)
def test_a_closed_checkpointer_says_so(run, call):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        save_all(checkpointer, 1)
    with pytest.raises(pitstop.CheckpointError) as caught:
        call(checkpointer)
    assert str(caught.value) == f"the checkpointer of {run} is closed"
    assert disk.whole_steps(run) == [1]


def test_leaving_with_drains(run, big_state):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, big_state)
    assert disk.whole_steps(run) == [1]


def test_leaving_with_on_an_exception_drains_and_does_not_hide_it(run, big_state):
    def train():
        with pitstop.AsyncCheckpointer(run) as checkpointer:
            checkpointer.save(1, big_state)
            raise ArithmeticError("loss is NaN")

    with pytest.raises(ArithmeticError, match="loss is NaN"):
        train()
    assert disk.whole_steps(run) == [1]


def test_the_directory_is_made_with_its_parents(tmp_path):
    deep = tmp_path / "a" / "b" / "c"
    with pitstop.AsyncCheckpointer(str(deep)) as checkpointer:
        save_all(checkpointer, 1)
    assert disk.whole_steps(deep) == [1]


def test_an_unusable_directory_is_refused_at_once_by_name(tmp_path):
    """A create_dir_all that failed was ignored, and the run found out hours later."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises((OSError, pitstop.CheckpointError)) as caught:
            pitstop.AsyncCheckpointer(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"fsync": False}, {"verify": False}, {"incremental": False}, {"memory_limit": 1 << 30}],
    ids=lambda options: next(iter(options)),
)
def test_options_change_nothing_about_what_comes_back(run, options):
    with pitstop.AsyncCheckpointer(run, **options) as checkpointer:
        save_all(checkpointer, 1, 2)
        assert_same(state_at(2), checkpointer.restore())


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (TypeError, lambda run: pitstop.AsyncCheckpointer(3.5)),
        (ValueError, lambda run: pitstop.AsyncCheckpointer(run, on_busy="panic")),
        (TypeError, lambda run: pitstop.AsyncCheckpointer(run, retention=3)),
        (TypeError, lambda run: pitstop.AsyncCheckpointer(run, interrupter="stop")),
        (TypeError, lambda run: pitstop.AsyncCheckpointer(run, None)),
    ],
)
def test_wrong_settings_are_refused(run, error, call):
    with pytest.raises(error):
        call(run)


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (TypeError, lambda made: made.save("1", {})),
        (TypeError, lambda made: made.save(1.5, {})),
        (ValueError, lambda made: made.save(-1, {})),
        (TypeError, lambda made: made.save(1, {}, metrics={"loss": "low"})),
        (TypeError, lambda made: made.save(1, {}, metadata={"f": print})),
        (TypeError, lambda made: made.delete("1")),
        (TypeError, lambda made: made.restore("1")),
        (ValueError, lambda made: made.restore(framework="abacus")),
        (TypeError, lambda made: made.resume()),
    ],
)
def test_wrong_arguments_are_refused_and_nothing_is_written(checkpointer, run, error, call):
    save_all(checkpointer, 3)
    before = disk.everything(run)
    with pytest.raises(error):
        call(checkpointer)
    checkpointer.wait()
    assert disk.everything(run) == before


def test_a_numpy_integer_is_a_step(checkpointer):
    checkpointer.save(np.int64(4), state_at(4)).result()
    assert checkpointer.steps() == [4]


def test_framework_numpy_and_mmap_give_the_same_values(checkpointer):
    save_all(checkpointer, 1)
    assert_same(state_at(1), checkpointer.restore(framework="numpy"))
    mapped = checkpointer.restore(mmap=True)
    assert mapped["step"] == 1
    np.testing.assert_array_equal(mapped["model"]["weight"], state_at(1)["model"]["weight"])
