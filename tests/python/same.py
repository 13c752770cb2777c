"""Equality to the last bit: types, order of keys, types of keys, NaN payloads, signs of zeros."""

import array
import collections
import struct
import types

import numpy as np


def assert_same(expected, actual, where="state"):
    """Fails, naming the place, unless `actual` is exactly what `expected` is."""
    assert type(actual) is type(expected), f"{where}: {type(expected)} came back as {type(actual)}"
    if isinstance(expected, np.ndarray):
        _same_array(expected, actual, where)
    elif isinstance(expected, np.generic):
        assert actual.dtype == expected.dtype, where
        assert actual.tobytes() == expected.tobytes(), where
    elif isinstance(expected, dict):
        _same_dict(expected, actual, where)
    elif isinstance(expected, (list, tuple, collections.deque)):
        _same_sequence(expected, actual, where)
    elif isinstance(expected, (set, frozenset)):
        assert sorted(map(_exact, actual)) == sorted(map(_exact, expected)), where
    elif isinstance(expected, types.SimpleNamespace):
        assert_same(vars(expected), vars(actual), where)
    elif isinstance(expected, array.array):
        assert actual.typecode == expected.typecode, where
        assert actual.tobytes() == expected.tobytes(), where
    else:
        assert _exact(actual) == _exact(expected), where


def _same_array(expected, actual, where):
    assert actual.dtype == expected.dtype, f"{where}: {expected.dtype} came back as {actual.dtype}"
    assert actual.shape == expected.shape, f"{where}: {expected.shape} came back as {actual.shape}"
    assert actual.tobytes() == expected.tobytes(), f"{where}: bits differ"


def _same_dict(expected, actual, where):
    assert [_exact(key) for key in actual] == [_exact(key) for key in expected], f"{where}: keys differ"
    for key, value in expected.items():
        assert_same(value, actual[key], f"{where}[{key!r}]")


def _same_sequence(expected, actual, where):
    assert len(actual) == len(expected), f"{where}: {len(expected)} items came back as {len(actual)}"
    if isinstance(expected, collections.deque):
        assert actual.maxlen == expected.maxlen, f"{where}: maxlen differs"
    for index, (left, right) in enumerate(zip(expected, actual, strict=True)):
        assert_same(left, right, f"{where}[{index}]")


def _exact(value):
    """Text that tells apart what `==` does not: 1, 1.0 and True, zeros by sign, NaN by payload."""
    kind = type(value).__name__
    if isinstance(value, int):
        return f"{kind} {value:x}"
    if isinstance(value, float):
        return f"{kind} {struct.pack('>d', value).hex()}"
    if isinstance(value, complex):
        return f"{kind} {struct.pack('>2d', value.real, value.imag).hex()}"
    if isinstance(value, tuple):
        return f"{kind} ({', '.join(map(_exact, value))})"
    return f"{kind} {value!r}"
