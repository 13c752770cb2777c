"""A state that is a pure function of its step and version, so that every bit of it can be told to be right.

Some of it never changes, some every third step, the rest always: what saves link, copy and write.
"""

import zlib

import numpy as np

ARRAYS = 20  # large ones, of equal size
SMALL = 30  # arrays of a few bytes
ODD = np.uint64(0x9E3779B97F4A7C15)


def blank(nbytes):
    """A state of about `nbytes` bytes in which nothing is set yet."""
    size = nbytes // 8 // ARRAYS

    def some(count):
        return {f"layer.{number}": np.zeros(size, np.uint64) for number in range(count)}

    return {
        "frozen": some(4),
        "slow": some(4),
        "model": some(6),
        "optimizer": {"moments": some(6), "lr": 0.0},
        "small": {f"s{number}": np.zeros(number % 5, np.uint64) for number in range(SMALL)},
        "note": "",
        "step": -1,
        "version": -1,
    }


def change(state, step, version=0):
    """Makes `state` that of (step, version), in place, as a step of training does."""
    for name, array, changes in _arrays(state):
        _fill(array, _seed(name, changes, step, version))
    state["optimizer"]["lr"] = 1.0 / (step + 1)
    state["note"] = f"step {step}, version {version}"
    state["step"], state["version"] = step, version


def wrong(state):
    """Names of what is not as it must be in the state of the step and the version it says it is of."""
    step, version = state["step"], state["version"]
    names = []
    for name, array, changes in _arrays(state):
        expected = _scratch(array.size)
        _fill(expected, _seed(name, changes, step, version))
        if array.dtype != np.uint64 or not np.array_equal(array, expected):
            names.append(name)
    if state["optimizer"]["lr"] != 1.0 / (step + 1):
        names.append("optimizer.lr")
    if state["note"] != f"step {step}, version {version}":
        names.append("note")
    return names


def _arrays(state):
    """Name, array, and how often it changes."""
    for name, array in state["frozen"].items():
        yield f"frozen.{name}", array, "never"
    for name, array in state["slow"].items():
        yield f"slow.{name}", array, "seldom"
    for name, array in (*state["model"].items(), *state["small"].items()):
        yield f"model.{name}", array, "always"
    for name, array in state["optimizer"]["moments"].items():
        yield f"optimizer.{name}", array, "always"


def _seed(name, changes, step, version):
    when = {"never": (), "seldom": (step // 3,), "always": (step, version)}[changes]
    return np.uint64(zlib.crc32(repr((name, *when)).encode()))


_ramp = _room = np.zeros(0, np.uint64)


def _scratch(size):
    """The same memory again and again: touching new pages takes longer than all the rest."""
    global _room
    if _room.size < size:
        _room = np.empty(size, np.uint64)
    return _room[:size]


def _fill(array, seed):
    global _ramp
    if _ramp.size < array.size:
        _ramp = np.arange(array.size, dtype=np.uint64) * ODD
    np.multiply(_ramp[: array.size], seed + seed + np.uint64(1), out=array)
    np.add(array, seed, out=array)
