"""Every type a state may hold comes back as it was; anything else is refused by its path."""

import array
import collections
import dataclasses
import enum
import pathlib
import threading
import types

import disk
import numpy as np
import pitstop
import pytest
from same import assert_same

NAN_WITH_PAYLOAD = np.array([0x7FF80000DEADBEEF, 0xFFF0000000000001], dtype=np.uint64).view(np.float64)

DTYPES = [
    *"?bhilqBHILQefdFD",
    "datetime64[s]",
    "datetime64[ns]",
    "datetime64[M]",
    "timedelta64[ms]",
    "S1",
    "S7",
    "U1",
    "U5",
    "V3",
]


class Point(collections.namedtuple("Point", ["x", "y"])):
    """A subclass of a namedtuple, as `typing.NamedTuple` makes them."""

    __slots__ = ()


Pair = collections.namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Config:
    width: int
    rates: list
    weight: object = None


class Color(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, 2**31, -(2**63), 2**63 - 1, 2**63, 2**64, -(2**200), 10**5000),
        *(True, False, None),
        *(0.0, -0.0, 0.1, 5e-324, -2.2250738585072014e-308, 1.7976931348623157e308),
        *(float("inf"), float("-inf"), float("nan"), *NAN_WITH_PAYLOAD.tolist()),
        *(1 + 2j, complex("-0-0j"), complex("nan+infj")),
        *("", "text", "ünïcödé 🏁", "nul \0 and \n", "\ud800 alone", '"quoted" \\', "x" * 100_000),
        *(b"", b"bytes", bytes(range(256)), b"\0" * 100_000),
    ],
    ids=lambda value: repr(value)[:40] if not isinstance(value, int) else hex(value)[:40],
)
def test_plain_values(round_trip, value):
    assert_same({"value": value}, round_trip({"value": value}))


@pytest.mark.parametrize(
    "value",
    [
        *([], (), {}, set()),
        *([[]], ((),), [(), [], {}, set()], (1,), [None]),
        *({1, "1", None, (2, "2")}, {True, 2}, {1.5, 2}),
        {"z": 1, "a": 2, "m": {"y": 3, "b": 4}},
        {0: "int", "0": "str", None: "none", "None": "str", (0,): "tuple", "(0,)": "str", (0, ("a",)): 1},
        {True: 1, False: 0, "True": 2},
        {1: "one", -(2**70): "big"},
        *(collections.OrderedDict([("b", 1), ("a", [2])]), collections.OrderedDict()),
        *(collections.Counter("abracadabra"), collections.Counter()),
        *(collections.deque([1, "2", [3]]), collections.deque([1, 2], maxlen=5), collections.deque()),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_containers(round_trip, value):
    assert_same({"value": value}, round_trip({"value": value}))


def test_the_order_of_keys_is_kept(round_trip):
    state = {name: index for index, name in enumerate("qwertyuiopasdfghjklzxcvbnm")}
    assert_same(state, round_trip(state))
    backwards = dict(reversed(state.items()))
    assert_same(backwards, round_trip(backwards))


def test_a_set_of_many_kinds(round_trip):
    state = {"seen": {0, "0", None, 1.5, b"x", (1, "a"), -(2**80)}}
    assert_same(state, round_trip(state))


def test_a_namedtuple_comes_back_as_an_equal_namedtuple(round_trip):
    state = {"pair": Pair(left=[1], right=np.arange(3))}
    back = round_trip(state)["pair"]
    assert isinstance(back, tuple)
    assert back._fields == ("left", "right")
    assert type(back).__name__ == "Pair"
    assert back.left == [1]
    assert_same(np.arange(3), back.right)


def test_a_namedtuple_comes_back_as_itself_with_like(round_trip):
    state = {"points": [Point(1, 2.5), Point("x", None)], "pair": Pair(1, Pair(2, 3))}
    assert_same(state, round_trip(state, like=state))


def test_a_dataclass_comes_back_as_a_namespace(round_trip):
    back = round_trip({"config": Config(3, [0.1, 0.2], np.ones(2))})
    assert_same({"config": types.SimpleNamespace(width=3, rates=[0.1, 0.2], weight=np.ones(2))}, back)


def test_a_dataclass_comes_back_as_itself_with_like(round_trip):
    back = round_trip({"config": Config(3, [0.1], np.ones(2))}, like={"config": Config(0, [], np.zeros(2))})
    config = back["config"]
    assert type(config) is Config
    assert (config.width, config.rates) == (3, [0.1])
    assert_same(np.ones(2), config.weight)


def test_an_object_with_state_dict_comes_back_as_its_plain_state(round_trip):
    class Counter:
        def state_dict(self):
            return {"count": 3, "sums": np.arange(4)}

        def load_state_dict(self, state):
            raise AssertionError("nobody asked for it to be filled")

    assert_same({"counter": {"count": 3, "sums": np.arange(4)}}, round_trip({"counter": Counter()}))


def test_a_namespace_may_grow_while_it_is_saved(round_trip):
    """It was an internal error: the dictionary changed its size."""
    space = types.SimpleNamespace()

    class Grows:
        def state_dict(self):
            space.late = 1
            return {"count": 3}

        def load_state_dict(self, state):
            raise AssertionError("nobody asked for it to be filled")

    space.grows, space.last = Grows(), 2
    assert_same({"space": types.SimpleNamespace(grows={"count": 3}, last=2)}, round_trip({"space": space}))


def values_of(dtype, count=24):
    """Arbitrary but valid bytes seen as `dtype`."""
    dtype = np.dtype(dtype)
    if dtype.kind == "U":
        return np.array(["", "a", "bé", "🏁"] * (count // 4), dtype=dtype)
    data = np.random.default_rng(3).integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
    return (data & 1).view(bool) if dtype.kind == "b" else data.view(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_numpy_dtype(round_trip, dtype):
    values = values_of(dtype)
    state = {
        "flat": values,
        "matrix": values.reshape(2, 3, 4),
        "scalar": values[5:6].reshape(()),
        "empty": values[:0],
        "empty_matrix": np.zeros((0, 3), dtype=values.dtype),
    }
    assert_same(state, round_trip(state))


@pytest.mark.parametrize("dtype", ["longdouble", "clongdouble", [("a", "i4"), ("b", "f8")]], ids=str)
def test_a_rare_numpy_dtype_comes_back_or_is_refused(round_trip, dtype):
    state = {"rare": np.arange(4).astype(dtype)}
    try:
        back = round_trip(state)
    except pitstop.UnsupportedTypeError as error:
        refusal = str(error)
    else:
        refusal = 'state["rare"]'
        assert back["rare"].dtype == state["rare"].dtype
        assert (back["rare"] == state["rare"]).all()
    assert 'state["rare"]' in refusal


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name not in ("q", "Q", "V3")])
def test_every_numpy_scalar(round_trip, dtype):
    scalar = values_of(dtype)[7]
    assert isinstance(scalar, np.generic)
    assert_same({"scalar": scalar}, round_trip({"scalar": scalar}))


TEXTS = [np.str_(""), np.str_("\0"), np.str_("a\0"), np.bytes_(b""), np.bytes_(b"\0"), np.bytes_(b"a\0\0")]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.dtype.str)
def test_text_of_numpy_keeps_its_length(round_trip, text):
    """Text of no length was saved and could not be restored; NULs at the end were lost."""
    assert_same({"text": text, "keys": {text: 1}}, round_trip({"text": text, "keys": {text: 1}}))


def test_bit_patterns_of_floats_are_kept(round_trip):
    half = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    single = np.array([0x7FC0BEEF, 0x7F800001, 0xFFFFFFFF, 0x80000000, 1], dtype=np.uint32).view(np.float32)
    state = {"every_half": half, "single": single, "double": NAN_WITH_PAYLOAD, "zero": np.array([-0.0])}
    state["complex"] = np.array([complex(-0.0, NAN_WITH_PAYLOAD[0])])
    assert_same(state, round_trip(state))


BASE = np.arange(60, dtype=np.int32).reshape(5, 12)


@pytest.mark.parametrize(
    "view",
    [
        BASE[::2, 1::3],
        BASE.T,
        np.asfortranarray(BASE),
        BASE[::-1],
        BASE[:, ::-2],
        BASE[::-1, ::-1].T,
        np.broadcast_to(np.int32(7), (4, 5)),
        np.broadcast_to(BASE[0], (3, 12)),
        BASE[2:2],
        BASE[3:4, 4].reshape(()),
        np.lib.stride_tricks.sliding_window_view(BASE[0], 4),
        BASE.view("u1")[:, 1::4],
    ],
    ids=lambda view: f"shape{view.shape}strides{view.strides}",
)
def test_an_array_of_any_layout(round_trip, view):
    assert_same({"view": view}, round_trip({"view": view}))


def test_an_array_that_is_not_aligned(round_trip):
    array = np.zeros(8 * 5 + 1, dtype=np.uint8)[1:].view(np.float64)
    array[...] = range(5)
    assert_same({"odd": array}, round_trip({"odd": array}))


def test_a_read_only_array(round_trip):
    array = np.arange(5)
    array.flags.writeable = False
    assert_same({"frozen": array}, round_trip({"frozen": array}))


@pytest.mark.parametrize("dtype", [">i2", ">u8", ">f4", ">f8", ">c8", ">c16", ">U3", ">M8[s]"])
def test_a_big_endian_array_keeps_its_values(round_trip, dtype):
    """On disk everything is little-endian; the byte order in memory is not part of the value."""
    array = values_of(np.dtype(dtype).newbyteorder("<")).astype(dtype)
    back = round_trip({"array": array})["array"]
    assert back.dtype.newbyteorder("<") == array.dtype.newbyteorder("<")
    assert back.astype(back.dtype.newbyteorder("<")).tobytes() == values_of(dtype.replace(">", "<")).tobytes()


@pytest.mark.parametrize("code", "bBhHiIlLqQfd")
def test_array_array(round_trip, code):
    state = {"array": array.array(code, [1, 2, 3]), "empty": array.array(code)}
    assert_same(state, round_trip(state))


def test_bytearray(round_trip):
    state = {"buffer": bytearray(range(256)), "empty": bytearray()}
    assert_same(state, round_trip(state))


@pytest.mark.parametrize(
    "view",
    [
        memoryview(b"read-only"),
        memoryview(bytearray(b"writable")),
        memoryview(b"every other byte")[::2],
        memoryview(array.array("d", [1.5, -0.0])),
        memoryview(np.arange(6, dtype=np.int16).reshape(2, 3)),
        memoryview(np.zeros((3, 0, 2), dtype=np.int16)),
        memoryview(np.arange(3, dtype=np.float16)),
    ],
    ids=lambda view: f"{view.format}{view.shape}",
)
def test_a_memoryview_keeps_its_elements(round_trip, view):
    back = round_trip({"view": view})["view"]
    assert (back.format, back.shape) == (view.format, view.shape)
    assert_same(np.array(view), np.array(back))


def test_one_array_in_two_places_comes_back_shared(round_trip):
    weight = np.arange(12.0).reshape(3, 4)
    back = round_trip({"model": {"embed": weight, "head": weight}, "ema": [weight]})
    back["model"]["embed"][1, 1] = -7.0
    assert back["model"]["head"][1, 1] == back["ema"][0][1, 1] == -7.0


@pytest.mark.parametrize(
    "views",
    [
        lambda base: (base, base[4:10]),
        lambda base: (base[4:10], base),
        lambda base: (base[0:8], base[5:12]),
        lambda base: (base.reshape(4, 6), base[6:12].reshape(2, 3).T),
        lambda base: (base[::-1], base[5:9]),
        lambda base: (base[::2], base[2:9:3]),
        lambda base: (base, base.view(np.uint8)[40:80]),
    ],
)
def test_overlapping_views_come_back_shared(round_trip, views):
    base = np.arange(24, dtype=np.float64)
    first, second = views(base)
    back = round_trip({"a": first, "b": second})
    assert_same({"a": first, "b": second}, back)
    assert np.shares_memory(back["a"], back["b"])
    for array_of_a in (first, back["a"]):  # a change through one view is seen through the other
        array_of_a *= -1
    assert_same({"a": first, "b": second}, back)


def test_shared_memory_is_stored_once(tmp_path):
    weight = np.random.default_rng(1).standard_normal(1 << 17)
    pitstop.save(tmp_path / "once", {"a": weight, "b": weight, "c": {"d": weight[100:], "e": weight[::2]}})
    stored = sum(path.stat().st_size for path in disk.files(tmp_path / "once"))
    assert stored < 1.5 * weight.nbytes


def test_neighbours_that_do_not_overlap_are_independent(round_trip):
    base = np.arange(10)
    back = round_trip({"a": base[:5], "b": base[5:]})
    assert_same({"a": np.arange(5), "b": np.arange(5, 10)}, back)
    back["a"][:] = -1
    assert_same(np.arange(5, 10), back["b"])


def generator():
    yield 1


def cycle():
    loop = {"a": [1]}
    loop["a"].append(loop)
    return loop


def function():
    """Something that cannot be saved."""


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"scheduler": {"lr_lambdas": [function]}}, ['state["scheduler"]["lr_lambdas"][0]: function']),
        ({"a": [1, (2, lambda: None)]}, ['state["a"][1][1]', "function"]),
        ({"a": print}, ['state["a"]', "builtin_function_or_method"]),
        ({"a": {3: generator()}}, ['state["a"][3]', "generator"]),
        ({"a": {None: object()}}, ['state["a"][None]', "object"]),
        ({"a": np.array([1, None], dtype=object)}, ['state["a"]', "object"]),
        ({"a": threading.Lock()}, ['state["a"]', "lock"]),
        ({"a": collections}, ['state["a"]', "module"]),
        ({"a": int}, ['state["a"]', "type"]),
        ({"a": Color.RED}, ['state["a"]', "Color"]),
        ({"a": pathlib.Path("x")}, ['state["a"]', "Path"]),
        ({"a": {1.5: 1}}, ['state["a"]', "float"]),
        ({"a": {b"k": 1}}, ['state["a"]', "bytes"]),
        (cycle(), ['state["a"][1]']),
        (function, ["state", "function"]),
    ],
    ids=lambda value: None if isinstance(value, list) else repr(value)[:40],
)
def test_anything_else_is_refused_by_its_path_before_anything_is_written(checkpointer, run, state, words):
    checkpointer.save(1, {"model": {"w": np.ones(3)}}).result()
    before = disk.everything(run)
    with pytest.raises(pitstop.UnsupportedTypeError) as caught:
        checkpointer.save(2, {"first": np.zeros(100)} | state if isinstance(state, dict) else state)
    for word in words:
        assert word in str(caught.value)
    checkpointer.wait()
    assert disk.everything(run) == before
    checkpointer.save(2, {"fine": 1}).result()
    assert checkpointer.steps() == [1, 2]


def test_an_open_file_is_refused(checkpointer, tmp_path):
    with open(tmp_path / "log", "w") as log, pytest.raises(TypeError, match=r'state\["log"\].*TextIOWrapper'):
        checkpointer.save(1, {"log": log})


def test_an_unsupported_state_dict_is_refused_by_its_path(checkpointer):
    class Scheduler:
        def state_dict(self):
            return {"lr_lambdas": [function]}

        def load_state_dict(self, state):
            pass

    with pytest.raises(pitstop.UnsupportedTypeError) as caught:
        checkpointer.save(1, {"scheduler": Scheduler()})
    assert 'state["scheduler"]["lr_lambdas"][0]: function' in str(caught.value)


def test_a_cycle_through_an_object_is_refused(checkpointer):
    config = Config(1, [])
    config.rates.append(config)
    with pytest.raises(pitstop.UnsupportedTypeError, match="config"):
        checkpointer.save(1, {"config": config})


def test_the_same_container_twice_is_no_cycle(round_trip):
    shared = [1, {"a": 2}]
    assert_same({"a": shared, "b": [shared, shared]}, round_trip({"a": shared, "b": [shared, shared]}))


def nested(depth):
    state = inner = []
    for _ in range(depth):
        inner.append([])
        inner = inner[0]
    return state


def test_deep_nesting_comes_back(round_trip):
    assert_same({"deep": nested(60)}, round_trip({"deep": nested(60)}))


def test_nesting_without_end_is_refused(checkpointer, run):
    """Recursion ran off the stack and took the process with it."""
    deep = nested(200_000)
    with pytest.raises(pitstop.UnsupportedTypeError, match="deep"):
        checkpointer.save(1, {"deep": deep})
    checkpointer.wait()
    assert disk.visible(run) == set()
    while deep:  # taken apart by hand: freeing it at once recurses as well
        deep = deep.pop()


def test_a_failing_state_dict_raises_its_own_error(checkpointer):
    class Broken:
        def state_dict(self):
            raise LookupError("not ready")

        def load_state_dict(self, state):
            pass

    with pytest.raises(LookupError, match="not ready"):
        checkpointer.save(1, {"broken": Broken()})
    checkpointer.save(1, {"fine": 1}).result()


def test_an_error_of_state_dict_says_whose_it_is(tmp_path):
    class Broken:
        def state_dict(self):
            raise KeyError("x")

        def load_state_dict(self, state):
            raise AssertionError(state)

    with pytest.raises(KeyError) as caught:
        pitstop.save(tmp_path / "c", {"trainer": {"opt": Broken()}})
    assert 'state_dict of state["trainer"]["opt"]' in caught.value.__notes__[0]
