"""What every test shares: a run directory, a checkpointer in it, a round trip, and disks that misbehave."""

import itertools

import disk
import numpy as np
import pitstop
import pytest


def pytest_ignore_collect(collection_path, config):
    """Keeps `-m "not frameworks"` from importing torch and JAX, which need not be installed then."""
    if collection_path.name == "frameworks" and "not frameworks" in config.getoption("markexpr"):
        return True
    return None


@pytest.fixture
def run(tmp_path):
    """The directory of a run; it does not exist yet."""
    return tmp_path / "run"


@pytest.fixture
def checkpointer(run):
    """A checkpointer with default settings in `run`, closed after the test."""
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        yield checkpointer


@pytest.fixture
def round_trip(tmp_path):
    """Saves a state as a checkpoint of its own and returns what `restore` makes of it."""
    numbers = itertools.count()

    def there_and_back(state, **how):
        path = tmp_path / f"round-trip-{next(numbers)}"
        pitstop.save(path, state)
        return pitstop.restore(path, **how)

    return there_and_back


@pytest.fixture
def big_state():
    """64 MiB: writing it takes many times longer than handing it over."""
    return {"model": {"weight": np.arange(8 << 20, dtype=np.float64)}}


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own with room for 4 MiB."""
    with disk.small(tmp_path / "disk", "4m") as directory:
        yield directory
