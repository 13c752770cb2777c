"""Whatever a state is nested from, it comes back bit for bit."""

import array
import collections
import threading

import numpy as np
import pitstop
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from same import assert_same

KEYS = st.recursive(
    st.one_of(st.text(max_size=8), st.integers(), st.booleans(), st.none()),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
TEXT = st.text(st.characters(), max_size=20)  # lone surrogates included
FLOATS = st.integers(0, 2**64 - 1).map(lambda bits: np.array(bits, np.uint64).view(np.float64).item())
DTYPES = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="="),
    npst.unsigned_integer_dtypes(endianness="="),
    npst.floating_dtypes(sizes=(16, 32, 64), endianness="="),
    npst.complex_number_dtypes(sizes=(64, 128), endianness="="),
    npst.datetime64_dtypes(endianness="="),
    npst.byte_string_dtypes(min_len=1, max_len=5),
)


@st.composite
def arrays(draw):
    """Any shape, any bits, and often a view with odd strides."""
    dtype = draw(DTYPES)
    shape = draw(npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    size = int(np.prod(shape)) * dtype.itemsize
    data = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8).copy()
    array = (data & 1 if dtype.kind == "b" else data).view(dtype).reshape(shape)
    if draw(st.booleans()):
        array = array.transpose(draw(st.permutations(range(array.ndim))))
    if array.ndim and draw(st.booleans()):
        array = array[:: draw(st.sampled_from([-2, -1, 2]))]
    return array


LEAVES = st.one_of(
    *(st.none(), st.booleans(), st.integers(), FLOATS, TEXT, st.binary(max_size=20), arrays()),
    st.builds(complex, FLOATS, FLOATS),
    st.binary(max_size=16).map(bytearray),
    st.lists(st.integers(-128, 127), max_size=5).map(lambda items: array.array("b", items)),
    npst.from_dtype(np.dtype(np.float32)),
    npst.from_dtype(np.dtype(np.int16)),
)


def containers(inner):
    entries = st.lists(st.tuples(KEYS, inner), max_size=4)
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        entries.map(dict),
        entries.map(collections.OrderedDict),
        st.lists(inner, max_size=3).map(collections.deque),
        st.dictionaries(st.text(max_size=3), st.integers(), max_size=3).map(collections.Counter),
        st.sets(st.one_of(st.integers(), st.text(max_size=4), st.none()), max_size=4),
    )


STATES = st.recursive(LEAVES, containers, max_leaves=20)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    directory = tmp_path_factory.mktemp("property")
    with pitstop.AsyncCheckpointer(directory, fsync=False) as checkpointer:
        yield checkpointer


def through(store, state, **how):
    """Saved and restored, each thread that runs the test at a step of its own."""
    step = threading.get_ident()
    store.save(step, state, overwrite=True)
    return store.restore(step, **how)


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(state=STATES)
def test_any_nested_state_comes_back_bit_for_bit(store, state):
    assert_same(state, through(store, state))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(entries=st.dictionaries(KEYS, arrays(), max_size=6))
def test_arrays_under_any_keys_come_back(store, entries):
    state = {"model": entries, **{key: value for key, value in entries.items() if key != "model"}}
    assert_same(state, through(store, state))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(slices=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.sampled_from([-2, -1, 1, 3]))))
def test_any_views_of_one_memory_come_back_with_their_values(store, slices):
    base = np.arange(30, dtype=np.int32)
    state = {"views": [base[start:stop:step] for start, stop, step in slices]}
    assert_same(state, through(store, state))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(entries=st.dictionaries(st.text(max_size=6), arrays(), max_size=5), value=FLOATS)
def test_into_fills_any_arrays_bit_for_bit(store, entries, value):
    state = {"arrays": entries, "value": value}
    target = {"arrays": {name: np.zeros_like(entry) for name, entry in entries.items()}, "value": None}
    filled = dict(target["arrays"])
    through(store, state, into=target)
    assert_same(state, target)
    for name, entry in filled.items():
        assert target["arrays"][name] is entry
