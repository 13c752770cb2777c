"""What is not a checkpoint is neither shown, nor counted, nor touched."""

import os

import disk
import numpy as np
import pitstop
import pytest

STRAY_FILES = [
    "notes.txt",
    "step-",
    "step-abc",
    "step-1.bak",
    "step-99",
    ".hidden",
    ".stop",
    "events.jsonl",
    "model.safetensors",
]
STRAY_DIRECTORIES = [
    "logs",
    "step-5.old",
    "step--1",
    "step-007",
    "step-1e3",
    "step-40",
    "Step-6",
    ".git",
    "tmp-1",
]


@pytest.fixture
def littered(run):
    """A run directory with things in it that belong to somebody else."""
    run.mkdir()
    for name in STRAY_FILES:
        (run / name).write_text("mine")
    for name in STRAY_DIRECTORIES:
        (run / name).mkdir()
        (run / name / "file").write_text("mine")
    (run / "dangling").symlink_to("nowhere")
    (run / "step-77").symlink_to("nowhere")
    os.mkfifo(run / "pipe")
    return run


def stray(run):
    names = {*STRAY_FILES, *STRAY_DIRECTORIES, "dangling", "step-77", "pipe"}
    return {name: facts for name, facts in disk.everything(run).items() if name.split("/")[0] in names}


def test_stray_files_are_left_alone_by_everything(littered):
    before = stray(littered)
    for _ in range(2):
        with pitstop.AsyncCheckpointer(littered, retention=pitstop.KeepLast(1)) as checkpointer:
            for step in (1, 2, 3):
                checkpointer.save(step, {"w": np.full(3, step)}, overwrite=True)
            checkpointer.wait()
            checkpointer.save(4, {"w": 4}, overwrite=True)
            checkpointer.delete(4)
            checkpointer.wait()
            checkpointer.plan()
            checkpointer.restore() if checkpointer.steps() else None
    assert stray(littered) == before


def test_stray_files_are_not_shown(littered):
    assert pitstop.checkpoints(littered) == []
    with pytest.raises(pitstop.CheckpointNotFoundError):
        pitstop.restore(littered)
    with pitstop.AsyncCheckpointer(littered) as checkpointer:
        assert checkpointer.resume(into={"w": 0}) is None
        checkpointer.save(1, {"w": 1}).result()
        assert checkpointer.steps() == [1]
        assert checkpointer.latest() == 1
        assert checkpointer.restore() == {"w": 1}
    assert [info.step for info in pitstop.checkpoints(littered)] == [1]


def test_stray_files_do_not_count_for_retention(littered):
    with pitstop.AsyncCheckpointer(littered, retention=pitstop.KeepLast(2)) as checkpointer:
        for step in range(1, 5):
            checkpointer.save(step, {"w": step})
        checkpointer.wait()
        assert checkpointer.steps() == [3, 4]
        assert [entry.step for entry in checkpointer.plan()] == [3, 4]


def test_stray_files_inside_a_checkpoint_do_not_disturb_it(checkpointer, run):
    checkpointer.save(1, {"model": {"w": np.ones(3)}}).result()
    (run / "step-1" / "README.txt").write_text("the good one")
    (run / "step-1" / "eval").mkdir()
    assert (checkpointer.restore(1)["model"]["w"] == 1).all()
    checkpointer.delete(1)
    checkpointer.wait()
    assert disk.visible(run) == set()
