"""Saving to and restoring from plain paths: runs and checkpoints, moved, copied, renamed, read-only."""

import os
import shutil
from pathlib import Path

import disk
import numpy as np
import pitstop
import pytest
from same import assert_same


def state_at(step):
    return {"model": {"weight": np.full((3, 4), float(step))}, "step": step, "name": "exp1"}


def save_all(checkpointer, *steps):
    for step in steps:
        checkpointer.save(step, state_at(step))
    checkpointer.wait()


def test_pitstop_save_makes_the_path_itself_the_checkpoint(tmp_path):
    path = tmp_path / "final"
    pitstop.save(path, state_at(1))
    assert (path / "manifest.json").is_file()
    assert_same(state_at(1), pitstop.restore(path))
    with pytest.raises(pitstop.StepExistsError):
        pitstop.save(path, state_at(2))
    pitstop.save(path, state_at(2), overwrite=True)
    assert pitstop.restore(path)["step"] == 2
    assert disk.visible(tmp_path) == {"final"}


def test_pitstop_save_with_a_step_adds_to_a_run(run):
    pitstop.save(run, state_at(3), step=3, metrics={"loss": 0.5}, metadata={"by": "hand"})
    pitstop.save(run, state_at(4), step=4)
    assert disk.whole_steps(run) == [3, 4]
    first = pitstop.checkpoints(run)[0]
    assert (first.metrics, first.metadata) == ({"loss": 0.5}, {"by": "hand"})
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        assert checkpointer.latest() == 4


@pytest.mark.parametrize("step", [None, 5])
def test_a_directory_that_cannot_be_used_is_a_save_error(tmp_path, step):
    """With a step it was a bare OSError: the lock could not be taken."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(pitstop.SaveError, match="Error when saving the state: ") as caught:
        pitstop.save(tmp_path / "file" / "run", state_at(5), step=step)
    assert isinstance(caught.value.__cause__, NotADirectoryError)
    assert str(tmp_path / "file") in str(caught.value.__cause__.filename)


def test_pitstop_restore_takes_a_run_or_one_checkpoint(checkpointer, run):
    save_all(checkpointer, 1, 2)
    assert pitstop.restore(run)["step"] == 2
    assert pitstop.restore(run, 1)["step"] == 1
    assert pitstop.restore(str(run), step=1)["step"] == 1
    assert pitstop.restore(run / "step-1")["step"] == 1
    with pytest.raises(pitstop.CheckpointNotFoundError):
        pitstop.restore(run, 3)


def test_pitstop_restore_takes_what_the_method_takes(checkpointer, run):
    save_all(checkpointer, 1)
    state = state_at(0)
    pitstop.restore(run, into=state)
    assert_same(state_at(1), state)
    assert_same({"step": 1}, pitstop.restore(run, only="step"))
    assert_same(state_at(1), pitstop.restore(run, framework="numpy", mmap=False))


def test_pitstop_checkpoints_takes_a_run_or_one_checkpoint(checkpointer, run):
    save_all(checkpointer, 1, 2)
    assert [info.step for info in pitstop.checkpoints(run)] == [1, 2]
    assert [info.step for info in pitstop.checkpoints(run / "step-2")] == [2]


def moved(run):
    return Path(shutil.move(run, run.with_name("moved")))


def copied(run):
    copy = Path(shutil.copytree(run, run.with_name("copy")))
    shutil.rmtree(run)
    return copy


@pytest.mark.parametrize("relocate", [moved, copied])
def test_a_relocated_run_restores_and_goes_on(run, relocate):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        save_all(checkpointer, 1, 2)
    elsewhere = relocate(run)
    assert_same(state_at(1), pitstop.restore(elsewhere, 1))
    assert [Path(info.path).parent for info in pitstop.checkpoints(elsewhere)] == [elsewhere] * 2
    with pitstop.AsyncCheckpointer(elsewhere) as checkpointer:
        save_all(checkpointer, 3)
        assert checkpointer.steps() == [1, 2, 3]


def test_a_renamed_checkpoint_restores_by_its_new_path(run, tmp_path):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        save_all(checkpointer, 1)
    (run / "step-1").rename(tmp_path / "released model")
    assert_same(state_at(1), pitstop.restore(tmp_path / "released model"))


def test_a_relative_path_stays_where_it_was_when_the_process_moves(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with pitstop.AsyncCheckpointer("run") as checkpointer:
        monkeypatch.chdir(tmp_path / "other")
        save_all(checkpointer, 1)
    assert disk.whole_steps(tmp_path / "run") == [1]
    assert os.listdir(tmp_path / "other") == []


def test_reading_writes_nothing(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        save_all(checkpointer, 1, 2)
    (run / ".lock").unlink(missing_ok=True)
    before = disk.everything(run)
    pitstop.restore(run)
    pitstop.restore(run / "step-1", into=state_at(0))
    pitstop.checkpoints(run)
    assert disk.everything(run) == before


def test_a_read_only_run_can_be_read(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        save_all(checkpointer, 1, 2)
    with disk.read_only(run), disk.read_only(run / "step-2"):
        assert_same(state_at(2), pitstop.restore(run))
        assert_same(state_at(2), pitstop.restore(run / "step-2", mmap=True))
        assert [info.step for info in pitstop.checkpoints(run)] == [1, 2]


def test_a_checkpoint_with_a_nan_beside_its_state_can_be_mapped(run):
    """It was compared with itself to see whether it had been replaced, until it was equal: NaN never is."""
    nan = float("nan")
    pitstop.save(run, state_at(1), step=1, metrics={"loss": nan})
    pitstop.save(run, state_at(2), step=2, metadata={"rate": nan})
    for step in (1, 2):
        assert_same(state_at(step), pitstop.restore(run, step, mmap=True))
