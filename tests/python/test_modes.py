"""Files and directories get the modes that the umask says."""

import os
import stat

import numpy as np
import pitstop
import pytest


@pytest.fixture(params=[0o022, 0o002, 0o077, 0o027], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(directory):
    found = {directory: stat.S_IMODE(directory.stat().st_mode)}
    for path in directory.rglob("*"):
        found[path] = stat.S_IMODE(path.stat().st_mode)
    return found


def assert_modes(directory, umask):
    for path, mode in modes(directory).items():
        expected = (0o777 if path.is_dir() else 0o666) & ~umask
        assert oct(mode) == oct(expected), path


def test_a_run_and_all_in_it(tmp_path, umask):
    state = {"model": {"w": np.ones(10)}, "loose": np.ones(3), "step": 1}
    with pitstop.AsyncCheckpointer(tmp_path / "parent" / "run") as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state)
        checkpointer.save(1, state, overwrite=True)
        checkpointer.wait()
        checkpointer.delete(1)
    assert_modes(tmp_path / "parent", umask)


def test_a_single_checkpoint(tmp_path, umask):
    pitstop.save(tmp_path / "final", {"model": {"w": np.ones(10)}})
    assert_modes(tmp_path / "final", umask)


def test_the_umask_at_the_time_of_saving_counts(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        before = os.umask(0o077)
        try:
            checkpointer.save(1, {"model": {"w": np.ones(10)}}).result()
        finally:
            os.umask(before)
    assert_modes(run / "step-1", 0o077)
