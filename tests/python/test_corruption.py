"""Nothing wrong is ever returned: damage of any kind is noticed, named, and stepped around."""

import shutil
import warnings

import disk
import numpy as np
import pitstop
import pytest
from same import assert_same

FILES = ["manifest.json", "model.safetensors", "state.safetensors"]


def state_at(step):
    return {
        "model": {"w": np.arange(3.0) + step, "b": np.array([step], dtype=np.int16)},
        "loose": np.full(2, step, dtype=np.uint8),
        "step": step,
        "name": "a",
    }


@pytest.fixture
def two(run):
    """A run with steps 1 and 2 that share no file."""
    with pitstop.AsyncCheckpointer(run, incremental=False) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state_at(step), metrics={"loss": 0.5}, metadata={"git": "abc"})
    assert disk.visible(run / "step-2") == set(FILES)
    return run


def assert_detected(run, what):
    """Step 2 is damaged: asked for, it raises; not asked for, step 1 comes back with a warning."""

    def restore_the_damaged_one():
        pitstop.restore(run, 2)
        pytest.fail(f"{what} was not detected")

    with pytest.raises(pitstop.CorruptCheckpointError, match="step-2"):
        restore_the_damaged_one()
    with pytest.warns(UserWarning, match="step-2"):
        back = pitstop.restore(run)
    assert_same(state_at(1), back)


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit_in_any_byte_is_detected(two, name):
    path = two / "step-2" / name
    for position in range(path.stat().st_size):
        disk.flip(path, position)
        assert_detected(two, f"a flipped bit in byte {position} of {name}")
        disk.flip(path, position)
    assert_same(state_at(2), pitstop.restore(two))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("mask", [0x20, 0xFF])
def test_a_changed_byte_is_detected(two, name, mask):
    """0x20 turns upper into lower case and back, which a reader of JSON might forgive."""
    path = two / "step-2" / name
    for position in range(0, path.stat().st_size, 3):
        disk.flip(path, position, mask)
        with pytest.raises(pitstop.CorruptCheckpointError):
            pitstop.restore(two, 2)
        disk.flip(path, position, mask)


def truncated(path):
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 1)


def emptied(path):
    path.write_bytes(b"")


def extended(path):
    with open(path, "ab") as file:
        file.write(b"\0")


def extended_by_a_space(path):
    with open(path, "ab") as file:
        file.write(b" ")


def zeroed(path):
    path.write_bytes(bytes(path.stat().st_size))


def taken_from_another_step(path):
    shutil.copy(path.parent.parent / "step-1" / path.name, path)


def turned_into_a_directory(path):
    path.unlink()
    path.mkdir()


DAMAGES = [truncated, emptied, extended, extended_by_a_space, zeroed, taken_from_another_step]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_detected(two, name, damage):
    damage(two / "step-2" / name)
    assert_detected(two, f"{name} {damage.__name__}")


@pytest.mark.parametrize("name", FILES[1:])
def test_a_directory_in_the_place_of_a_tensor_file_is_detected(two, name):
    turned_into_a_directory(two / "step-2" / name)
    assert_detected(two, f"a directory in the place of {name}")


@pytest.mark.parametrize("name", FILES[1:])
def test_a_missing_tensor_file_is_detected(two, name):
    (two / "step-2" / name).unlink()
    assert_detected(two, f"the loss of {name}")


def test_two_swapped_files_are_detected(two):
    first, second = (two / "step-2" / name for name in FILES[1:])
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    assert_detected(two, "a swap of two files")


def test_a_directory_without_a_manifest_is_no_checkpoint(two):
    (two / "step-2" / "manifest.json").unlink()
    assert [info.step for info in pitstop.checkpoints(two)] == [1]
    with pytest.raises((pitstop.CheckpointNotFoundError, pitstop.CorruptCheckpointError)):
        pitstop.restore(two, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(state_at(1), pitstop.restore(two))


def test_the_error_names_the_file_and_the_tensor(two):
    damaged = two / "step-2" / "model.safetensors"
    content = damaged.read_bytes()
    disk.flip(damaged, content.index((np.arange(3.0) + 2).tobytes()))
    with pytest.raises(pitstop.CorruptCheckpointError) as caught:
        pitstop.restore(two, 2)
    assert str(damaged) in str(caught.value)
    assert str(caught.value.path).startswith(str(two / "step-2"))
    assert "w" in caught.value.tensor
    with pytest.warns(UserWarning, match="step-2") as record:
        pitstop.restore(two)
    assert [str(damaged) in str(warning.message) for warning in record] == [True]


def test_an_intact_run_restores_without_a_warning(two):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(state_at(2), pitstop.restore(two))


def test_resume_steps_around_damage(two):
    zeroed(two / "step-2" / "model.safetensors")
    state = state_at(0)
    weight = state["model"]["w"]
    with pitstop.AsyncCheckpointer(two) as checkpointer, pytest.warns(UserWarning, match="step-2"):
        assert checkpointer.resume(into=state) == 1
    assert_same(state_at(1), state)
    assert state["model"]["w"] is weight


def test_several_damaged_checkpoints_are_each_named(two):
    with pitstop.AsyncCheckpointer(two, incremental=False) as checkpointer:
        checkpointer.save(3, state_at(3))
    for step, name in [(2, "manifest.json"), (3, "state.safetensors")]:
        path = two / f"step-{step}" / name
        disk.flip(path, path.stat().st_size - 2)
    with pytest.warns(UserWarning, match="step-2") as record:
        assert_same(state_at(1), pitstop.restore(two))
    told = " ".join(str(warning.message) for warning in record)
    assert "step-2" in told
    assert "step-3" in told


def test_with_everything_damaged_nothing_is_returned(two):
    for step in (1, 2):
        zeroed(two / f"step-{step}" / "model.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((pitstop.CorruptCheckpointError, pitstop.CheckpointNotFoundError)):
            pitstop.restore(two)


def test_with_everything_damaged_a_run_does_not_start_over_in_silence(two):
    for step in (1, 2):
        zeroed(two / f"step-{step}" / "model.safetensors")
    state, told = state_at(0), []
    with pitstop.AsyncCheckpointer(two) as checkpointer, warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        try:
            assert checkpointer.resume(into=state) is None
        except pitstop.CheckpointError as error:
            told.append(str(error))
    told += [str(warning.message) for warning in record]
    assert "step-2" in " ".join(told)
    assert_same(state_at(0), state)


def test_a_damaged_step_can_be_overwritten_and_deleted(two):
    zeroed(two / "step-2" / "model.safetensors")
    with pitstop.AsyncCheckpointer(two) as checkpointer:
        checkpointer.save(2, state_at(2), overwrite=True).result()
        assert_same(state_at(2), checkpointer.restore(2))
        zeroed(two / "step-1" / "model.safetensors")
        checkpointer.delete(1)
        checkpointer.wait()
    assert disk.whole_steps(two) == [2]


def test_damage_done_while_the_checkpointer_is_open_is_detected(run):
    with pitstop.AsyncCheckpointer(run, incremental=False) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state_at(step)).result()
        checkpointer.restore(2)
        path = run / "step-2" / "model.safetensors"
        disk.flip(path, path.stat().st_size - 1)
        with pytest.raises(pitstop.CorruptCheckpointError):
            checkpointer.restore(2)
        with pytest.warns(UserWarning, match="step-2"):
            assert_same(state_at(1), checkpointer.restore())


def test_mmap_notices_damage_in_all_but_the_tensors(two):
    path = two / "step-2" / "model.safetensors"
    disk.flip(path, 20)
    with pytest.raises(pitstop.CorruptCheckpointError):
        pitstop.restore(two, 2, mmap=True)
    disk.flip(path, 20)
    assert_same(state_at(2), pitstop.restore(two, 2, mmap=True))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(pitstop.CorruptCheckpointError):
        pitstop.restore(two, 2, mmap=True)


def test_a_symbolic_link_out_of_the_checkpoint_is_not_followed(two, tmp_path):
    path = two / "step-2" / "model.safetensors"
    shutil.move(path, tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    assert_detected(two, "a link out of the checkpoint")


FORMS = {
    "plain": lambda run, step: pitstop.restore(run, step),
    "only": lambda run, step: pitstop.restore(run, step, only="*"),
    "like": lambda run, step: pitstop.restore(run, step, like=state_at(0)),
    "numpy": lambda run, step: pitstop.restore(run, step, framework="numpy"),
    "into": lambda run, step: pitstop.restore(run, step, into=state_at(0)),
    "checkpoint": lambda run, step: pitstop.restore(run if step is None else run / f"step-{step}"),
}


def sampled(path):
    size = path.stat().st_size
    return [*range(0, size, 127), size - 1]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("form", FORMS)
def test_every_way_to_restore_finds_damage(two, name, form):
    path = two / "step-2" / name
    for position in sampled(path):
        disk.flip(path, position)
        with pytest.raises(pitstop.CorruptCheckpointError, match=name):
            FORMS[form](two, 2)
        with pytest.warns(UserWarning, match="step-2"):
            assert_same(state_at(1), FORMS[form](two, None))
        disk.flip(path, position)
    assert_same(state_at(2), FORMS[form](two, 2))


@pytest.mark.parametrize("name", FILES)
def test_what_is_to_be_filled_stays_as_it_was_if_there_is_damage(two, name):
    path = two / "step-2" / name
    for position in sampled(path):
        disk.flip(path, position)
        state = state_at(0)
        with pytest.raises(pitstop.CorruptCheckpointError):
            pitstop.restore(two, 2, into=state)
        assert_same(state_at(0), state)
        disk.flip(path, position)


def test_the_checkpointer_restores_no_damage_and_links_to_none(two):
    """What was found damaged is written anew, even if the state has not changed since."""
    path = two / "step-2" / "model.safetensors"
    disk.flip(path, path.stat().st_size - 1)
    with pitstop.AsyncCheckpointer(two) as checkpointer:
        with pytest.raises(pitstop.CorruptCheckpointError):
            checkpointer.restore(2)
        checkpointer.save(3, state_at(2)).result()
    assert_same(state_at(2), pitstop.restore(two, 3))


@pytest.mark.parametrize("again", [3, 4])
def test_what_this_process_wrote_and_found_damaged_is_not_linked_to(run, again):
    """A disk that rots changes no times. The next checkpoint was a link to the damage, and counted."""
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(2, state_at(1)).result()
        checkpointer.save(3, state_at(1)).result()
        path = run / "step-3" / "model.safetensors"
        disk.rot(path, path.stat().st_size - 1)
        with pytest.raises(pitstop.CorruptCheckpointError):
            checkpointer.restore(3)
        checkpointer.save(again, state_at(1)).result()
    assert_same(state_at(1), pitstop.restore(run, again))


def test_a_step_that_was_damaged_is_protected_again_once_it_is_saved_anew(run):
    """For the rest of the process it could be replaced without a word."""
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(2, state_at(1)).result()
        path = run / "step-2" / "model.safetensors"
        disk.flip(path, path.stat().st_size - 1)
        with pytest.raises(pitstop.CorruptCheckpointError):
            checkpointer.restore(2)
        checkpointer.save(2, state_at(2)).result()
        with pytest.raises(pitstop.StepExistsError):
            checkpointer.save(2, state_at(3))
    assert_same(state_at(2), pitstop.restore(run, 2))


def test_only_reads_no_more_than_was_asked_for(two):
    """Damage in other tensors is not looked for; damage in headers is."""
    path = two / "step-2" / "state.safetensors"
    disk.flip(path, path.stat().st_size - 1)
    assert_same({"model": state_at(2)["model"]}, pitstop.restore(two, 2, only="model.*"))
    with pytest.raises(pitstop.CorruptCheckpointError, match=r"state\.safetensors"):
        pitstop.restore(two, 2, only=["model.*", "loose"])
    disk.flip(path, path.stat().st_size - 1)
    disk.flip(path, 100)
    with pytest.raises(pitstop.CorruptCheckpointError, match=r"state\.safetensors"):
        pitstop.restore(two, 2, only="model.*")


@pytest.mark.parametrize("name", FILES)
def test_mmap_compares_each_byte_that_belongs_to_no_tensor_and_none_that_does(two, name):
    path = two / "step-2" / name
    tensors = 4096 if name != "manifest.json" else path.stat().st_size
    for position in sampled(path):
        disk.flip(path, position)
        if position < tensors:
            with pytest.raises(pitstop.CorruptCheckpointError, match=name):
                pitstop.restore(two, 2, mmap=True)
        else:
            pitstop.restore(two, 2, mmap=True)
        disk.flip(path, position)
