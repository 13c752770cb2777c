"""What did not change is linked, not written; each checkpoint is still complete by itself."""

import os
import shutil

import disk
import numpy as np
import pitstop
import pytest
from same import assert_same

SIZE = 1 << 17  # elements: 1 MiB


def state_at(step):
    frozen = np.random.default_rng(0).standard_normal(SIZE)
    return {"backbone": {"w": frozen}, "head": {"w": np.full(SIZE, float(step))}, "step": step}


def save_steps(run, *steps, **options):
    with pitstop.AsyncCheckpointer(run, **options) as checkpointer:
        for step in steps:
            checkpointer.save(step, state_at(step))


def inode(run, step, name):
    return (run / f"step-{step}" / name).stat().st_ino


def test_an_unchanged_file_is_a_hard_link_and_a_changed_one_is_not(run):
    save_steps(run, 1, 2, 3)
    backbones = {inode(run, step, "backbone.safetensors") for step in (1, 2, 3)}
    heads = {inode(run, step, "head.safetensors") for step in (1, 2, 3)}
    assert (len(backbones), len(heads)) == (1, 3)
    for step in (1, 2, 3):
        assert_same(state_at(step), pitstop.restore(run, step))


def test_without_incremental_every_file_is_written_anew(run):
    save_steps(run, 1, 2, incremental=False)
    for file in disk.files(run / "step-2"):
        assert file.stat().st_nlink == 1
        assert inode(run, 1, file.name) != inode(run, 2, file.name)


def test_turning_incremental_off_later_breaks_the_links(run):
    save_steps(run, 1, 2)
    save_steps(run, 3, incremental=False)
    assert inode(run, 3, "backbone.safetensors") != inode(run, 2, "backbone.safetensors")
    assert_same(state_at(3), pitstop.restore(run, 3))


@pytest.mark.parametrize("deleted", [1, 2, 3])
def test_deleting_one_checkpoint_never_harms_another(run, deleted):
    save_steps(run, 1, 2, 3)
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.delete(deleted)
    left = [step for step in (1, 2, 3) if step != deleted]
    assert disk.whole_steps(run) == left
    for step in left:
        assert_same(state_at(step), pitstop.restore(run, step))


def test_overwriting_a_checkpoint_never_harms_another(run):
    save_steps(run, 1, 2)
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, {"backbone": {"w": np.zeros(SIZE)}}, overwrite=True)
    assert_same(state_at(2), pitstop.restore(run, 2))
    assert_same({"backbone": {"w": np.zeros(SIZE)}}, pitstop.restore(run, 1))


def test_retention_drops_the_original_and_keeps_the_link(run):
    save_steps(run, 1, 2, 3, 4, retention=pitstop.KeepLast(1))
    assert disk.whole_steps(run) == [4]
    assert_same(state_at(4), pitstop.restore(run))
    assert (run / "step-4" / "backbone.safetensors").stat().st_nlink == 1


def test_a_checkpoint_is_complete_by_itself(run, tmp_path):
    save_steps(run, 1, 2)
    shutil.copytree(run / "step-2", tmp_path / "alone")
    shutil.rmtree(run)
    assert_same(state_at(2), pitstop.restore(tmp_path / "alone"))


def test_a_state_that_does_not_change_costs_almost_nothing(run):
    state = {"backbone": {"w": np.random.default_rng(0).standard_normal(SIZE)}, "loose": np.arange(SIZE)}
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        for step in range(10):
            checkpointer.save(step, state)
    unique = {file.stat().st_ino: file.stat().st_size for file in disk.files(run)}
    assert sum(unique.values()) < 2 * SIZE * 8 + (1 << 18)
    for step in range(10):
        assert_same(state, pitstop.restore(run, step))


def test_a_change_of_one_bit_is_a_change(run):
    state = {"model": {"w": np.zeros(SIZE)}}
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, state)
        state["model"]["w"][SIZE // 2] = -0.0
        checkpointer.save(2, state)
    for step, sign in [(1, False), (2, True)]:
        assert np.signbit(pitstop.restore(run, step)["model"]["w"][SIZE // 2]) == sign


def test_a_change_of_dtype_or_shape_or_name_alone_is_a_change(run):
    zeros = np.zeros(SIZE, dtype=np.int64)
    states = [
        {"model": {"w": zeros}},
        {"model": {"w": zeros.view(np.float64)}},
        {"model": {"w": zeros.reshape(2, -1)}},
        {"model": {"v": zeros}},
        {"model": zeros},
        {"other": {"w": zeros}},
    ]
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        for step, state in enumerate(states):
            checkpointer.save(step, state)
    for step, state in enumerate(states):
        assert_same(state, pitstop.restore(run, step))


def test_a_damaged_file_is_not_linked_into_the_next_checkpoint(run):
    """The file that changed on disk still had, by its manifest, the bytes to be saved."""
    save_steps(run, 1)
    with open(run / "step-1" / "backbone.safetensors", "r+b") as file:
        file.truncate(100)
    save_steps(run, 2)
    assert_same(state_at(2), pitstop.restore(run, 2))


def test_a_step_that_somebody_replaced_is_not_linked_to(run, tmp_path):
    """Its files were as long as those that were written, so every later save linked them, and was lost."""
    pitstop.save(tmp_path / "other", {"backbone": {"w": np.zeros(SIZE)}, "step": 1})
    state = {"backbone": {"w": np.arange(float(SIZE))}, "step": 1}
    with pitstop.AsyncCheckpointer(run, retention=pitstop.KeepLast(1)) as checkpointer:
        checkpointer.save(1, state).result()
        shutil.rmtree(run / "step-1")
        shutil.copytree(tmp_path / "other", run / "step-1")
        for step in (2, 3, 4):
            checkpointer.save(step, state).result()
            assert_same(state, checkpointer.restore(step))


def test_a_missing_predecessor_is_written_anew(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, state_at(1)).result()
        shutil.rmtree(run / "step-1")
        checkpointer.save(2, state_at(2)).result()
        os.unlink(run / "step-2" / "backbone.safetensors")
        checkpointer.save(3, state_at(3)).result()
    assert_same(state_at(3), pitstop.restore(run, 3))


def test_a_failed_save_in_between_does_not_disturb_the_links(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, state_at(1)).result()
        with disk.replaced_by_a_file(run), pytest.raises(pitstop.SaveError):
            checkpointer.save(2, state_at(2)).result()
        checkpointer.save(3, state_at(3)).result()
    assert inode(run, 1, "backbone.safetensors") == inode(run, 3, "backbone.safetensors")
    assert_same(state_at(3), pitstop.restore(run, 3))


def test_what_is_expected_not_to_change_and_does_change_is_saved(run):
    """A part that did not change for some saves is compared before it is copied, and may change after all."""
    frozen = {f"f{i}": np.full(400_000, float(i)) for i in range(4)}
    state = {"model": {**frozen, "trained": np.zeros(1000)}, "other": {"frozen": np.ones(300_000)}}
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        for step in range(1, 10):
            state["model"]["trained"] += 1
            if step == 6:
                frozen["f2"][7] = -1
            if step == 8:
                state["other"]["frozen"][-1] = -2
            checkpointer.save(step, state)
            # Whatever was copied or not: it may be changed now, and changed back before the next save.
            for array in (*frozen.values(), state["other"]["frozen"]):
                array += 0.5
            checkpointer.wait()
            for array in (*frozen.values(), state["other"]["frozen"]):
                array -= 0.5
        written = [save.bytes_written for save in checkpointer.stats().saves]
    for step in range(1, 10):
        back = pitstop.restore(run, step)
        assert (back["model"]["trained"] == step).all()
        for i in range(4):
            wanted = np.full(400_000, float(i))
            if i == 2 and step >= 6:
                wanted[7] = -1
            np.testing.assert_array_equal(back["model"][f"f{i}"], wanted)
        assert back["other"]["frozen"][-1] == (-2 if step >= 8 else 1)
    # Only what changed is written once all has settled.
    assert max(written[3:5]) < 100_000
    assert written[5] > 400_000 * 8


def shared_by(run, name, steps):
    """For each file that had that name: by how many of the steps it is shared."""
    inodes = [inode(run, step, name) for step in steps]
    return [inodes.count(one) for one in dict.fromkeys(inodes)]


def test_a_file_is_shared_by_a_bounded_number_of_checkpoints(run):
    """Damage to a file is damage to all that share it, and was carried on for ever by a frozen backbone."""
    frozen = np.random.default_rng(0).standard_normal(1000)
    for first in (0, 50, 100):
        # How often it was linked is known after a restart too.
        with pitstop.AsyncCheckpointer(run, fsync=False) as checkpointer:
            checkpointer.restore() if first else None
            for step in range(first, first + 50):
                checkpointer.save(step, {"backbone": {"w": frozen}, "head": {"w": np.full(9, float(step))}})
    assert shared_by(run, "backbone.safetensors", range(150)) == [64, 64, 22]
    assert shared_by(run, "head.safetensors", range(150)) == [1] * 150
    for step in (0, 63, 64, 149):
        np.testing.assert_array_equal(pitstop.restore(run, step)["backbone"]["w"], frozen)


def test_without_incremental_no_file_is_ever_shared(run):
    save_steps(run, 1, 2, 3, incremental=False)
    with pitstop.AsyncCheckpointer(run, incremental=False) as checkpointer:
        checkpointer.restore()
        checkpointer.save(4, state_at(4))
    assert {file.stat().st_nlink for file in disk.files(run) if file.name != ".lock"} == {1}
    assert shared_by(run, "backbone.safetensors", [1, 2, 3, 4]) == [1, 1, 1, 1]


def test_a_rewritten_file_heals_the_next_checkpoints(run):
    """What is written anew comes from memory, not from the file that may be damaged by then."""
    state = {"backbone": {"w": np.arange(1000.0)}}
    with pitstop.AsyncCheckpointer(run, fsync=False) as checkpointer:
        for step in range(66):
            checkpointer.save(step, state)
            if step == 60:
                checkpointer.wait()
                path = run / "step-60" / "backbone.safetensors"
                before = path.stat()
                disk.flip(path, before.st_size - 1)
                # A disk that goes bad leaves no trace. Whoever writes does, and the file is not linked again.
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for step in (60, 63):
        with pytest.raises(pitstop.CorruptCheckpointError):
            pitstop.restore(run, step)
    for step in (64, 65):
        assert_same(state, pitstop.restore(run, step))
