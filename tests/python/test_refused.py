"""What would not come back, or not as it was, is refused by its place before anything is written."""

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import random
import types
import typing

import disk
import numpy as np
import pitstop
import pytest
from same import assert_same


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


BUILT_IN = [dict, list, tuple, set, frozenset, str, int, float, complex]


@pytest.mark.parametrize("base", [*BUILT_IN, collections.OrderedDict, collections.deque])
def test_a_dataclass_that_is_a_built_in_container_or_number_is_refused(checkpointer, base):
    """Its fields came back, and what it held besides was lost."""
    value = dataclasses.make_dataclass("Made", [("x", int, 0)], bases=(base,))()
    with pytest.raises(pitstop.UnsupportedTypeError, match=r'state\["value"\].*a subclass of'):
        checkpointer.save(1, {"value": value})


class Tagged:
    tag = "an attribute that would be lost"


@pytest.mark.parametrize("base", [*BUILT_IN, bytes, bytearray, array.array])
def test_a_subclass_of_a_built_in_class_is_refused(checkpointer, base):
    """Byte strings and arrays came back as something else."""
    value = type("Made", (Tagged, base), {})(*("b" if base is array.array else ()))
    why = rf'state\["value"\].*a subclass of .*{base.__name__}'
    with pytest.raises(pitstop.UnsupportedTypeError, match=why):
        checkpointer.save(1, {"value": value})


class Celsius(np.float64):
    """A number of NumPy that is of a class of its own."""


def test_a_subclass_of_a_numpy_scalar_is_refused(checkpointer):
    """It came back as the number that it is made from."""
    with pytest.raises(pitstop.UnsupportedTypeError, match=r'state\["value"\].*a subclass of float64'):
        checkpointer.save(1, {"value": Celsius(1.5)})


def named(name, *fields):
    """A tuple of 1, 2, … whose class says that it is a named one."""
    return type(name, (tuple,), {"_fields": fields})(range(1, len(fields) + 1))


class Short(tuple):
    _fields = ("a", "b")


@pytest.mark.parametrize(
    "value",
    [
        *(named("no name", "x"), named("class", "x"), named("A", "class"), named("A", "_x")),
        *(named("A", "_1", "x"), named("A", "x", "x"), named("A", "x y"), Short((1, 2, 3)), Short((1,))),
    ],
    ids=lambda value: f"{type(value).__name__}-{'-'.join(value._fields)}-{len(value)}",
)
def test_a_named_tuple_that_cannot_be_made_again_is_refused(checkpointer, value):
    """It was saved and could not be restored, or came back shorter or with other names."""
    with pytest.raises(pitstop.UnsupportedTypeError, match=r'state\["value"\].*no named tuple'):
        checkpointer.save(1, {"value": value})


def test_fields_of_a_named_tuple_that_were_renamed_come_back(round_trip):
    value = collections.namedtuple("Renamed", ["class", "x", "x"], rename=True)(1, 2, 3)
    assert round_trip({"value": value})["value"]._fields == ("_0", "x", "_2")


T = typing.TypeVar("T")


@dataclasses.dataclass
class Square(typing.Generic[T]):
    side: T

    @functools.cached_property
    def area(self):
        return self.side**2


def test_attributes_that_are_no_fields_are_refused(checkpointer):
    """They were lost without a word."""
    pair, square = Hashed(1, 2), Square(3)
    pair.extra = square.extra = 4
    for value in (pair, square):
        with pytest.raises(pitstop.UnsupportedTypeError, match=r'state\["value"\].*attribute extra'):
            checkpointer.save(1, {"value": value})


def test_attributes_that_follow_from_the_fields_are_no_hindrance(round_trip):
    square = Square[int](3)
    assert square.area == 9
    assert set(vars(square)) == {"side", "area", "__orig_class__"}
    assert_same({"square": types.SimpleNamespace(side=3)}, round_trip({"square": square}))


class Whole:
    """A descriptor, as the documentation of dataclasses has one: it keeps a field under another name."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return 0 if instance is None else getattr(instance, self.name)

    def __set__(self, instance, value):
        setattr(instance, self.name, int(value))


Counted = dataclasses.make_dataclass("Counted", [("count", int, Whole())])


def test_what_a_descriptor_keeps_of_a_field_is_no_hindrance(round_trip):
    """It was taken for an attribute that is no field."""
    counted = Counted(3)
    assert vars(counted) == {"_count": 3}
    assert_same({"counted": types.SimpleNamespace(count=3)}, round_trip({"counted": counted}))
    counted._other = 4
    with pytest.raises(pitstop.UnsupportedTypeError, match="attribute _other"):
        round_trip({"counted": counted})


class Color(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        *((made, r"pitstop.Rng\(generator\)") for made in (random.Random(1), np.random.default_rng(1))),
        *((made, r"pitstop.Rng\(generator\)") for made in (np.random.RandomState(1), np.random.PCG64(1))),
        *((made, r"str\(…\)") for made in (pathlib.Path("x"), decimal.Decimal(1), fractions.Fraction(1, 2))),
        *((made, r"isoformat\(\)") for made in (datetime.datetime(2026, 1, 1), datetime.time())),
        (datetime.timedelta(1), r"total_seconds\(\)"),
        (Color.RED, "value or its name"),
        (range(3), r"list\(…\)"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_refusal_says_what_to_save_instead(checkpointer, value, advice):
    with pytest.raises(pitstop.UnsupportedTypeError, match=advice):
        checkpointer.save(1, {"value": value})
