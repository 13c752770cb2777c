"""What would not come back, or not as it was, is refused by its place before anything is written."""

import collections
import dataclasses

import disk
import numpy as np
import pitstop
import pytest


def nested_dtype(depth):
    dtype = np.dtype("i4")
    for _ in range(depth):
        dtype = np.dtype([("a", dtype)])
    return dtype


OVERLAPPING = np.dtype({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]})


@pytest.mark.parametrize(
    "value",
    [
        np.dtype((np.int32, (2, 2))),
        *(OVERLAPPING, np.zeros(2, OVERLAPPING), np.zeros(2, OVERLAPPING)[0]),
        *(nested_dtype(150), np.zeros(2, nested_dtype(150))),
    ],
    ids=["subarray", "overlapping", "array", "scalar", "nested", "nested-array"],
)
def test_a_numpy_type_that_would_not_come_back_is_refused(checkpointer, value):
    """Some came back as another type, others could not be restored at all."""
    with pytest.raises(pitstop.UnsupportedTypeError, match=r'state\["value"\].*written down'):
        checkpointer.save(1, {"value": value})


@dataclasses.dataclass(frozen=True)
class Label:
    name: str


Pair = collections.namedtuple("Pair", ["left", "right"])


class Hashed(Pair):
    """A namedtuple that is hashed, whatever it holds."""

    def __hash__(self):
        return 1


class Stateful:
    def state_dict(self):
        return {"n": 1}

    def load_state_dict(self, state):
        raise AssertionError("nobody asked for it to be filled")


UNHASHABLE = [Label("a"), Stateful(), memoryview(b"abc"), Hashed([1], 2)]


@pytest.mark.parametrize("item", UNHASHABLE, ids=lambda item: type(item).__name__)
def test_what_comes_back_unhashable_is_refused_in_sets_and_keys(checkpointer, run, item):
    """It was saved, and every restore of it failed."""
    for inside, place in [
        ({item}, r'state\["x"\]\[0\]: '),
        (frozenset({item}), r'state\["x"\]\[0\]: '),
        ({("a", item)}, r'state\["x"\]\[0\]: tuple'),
        ({("a", item): 1}, r'state\["x"\]\[.*\]: tuple'),
    ]:
        with pytest.raises(pitstop.UnsupportedTypeError, match=place):
            checkpointer.save(1, {"x": inside})
        with pytest.raises(pitstop.UnsupportedTypeError, match="metadata"):
            checkpointer.save(1, {"w": 1}, metadata={"x": inside})
    assert disk.visible(run) == set()


def test_what_comes_back_hashable_may_be_in_sets_and_keys(round_trip):
    state = {"set": {Pair(1, 2), frozenset({(1,)}), b"x" * 5000, "\ud800", np.float32(1.5), np.dtype("<f4")}}
    back = round_trip(state)
    assert back == state
    assert round_trip({("a", Pair(1, frozenset({2}))): 1}) == {("a", (1, frozenset({2}))): 1}
