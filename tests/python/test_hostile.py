"""A manifest is a text that nobody vouches for: nothing that it names is imported or run, and what it says of
arrays is checked against what is stored."""

import collections
import contextlib
import dataclasses
import itertools
import json
import sys

import numpy as np
import pitstop
import pytest
from forging import forged, rewrite


@pytest.fixture
def forge(tmp_path):
    """Makes forged checkpoints, each in a directory of its own."""
    numbers = itertools.count()
    return lambda state, *replacements: forged(tmp_path / f"forged-{next(numbers)}", state, *replacements)


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A module that could be imported, and must not be."""
    (tmp_path / "planted.py").write_text(
        "class Evil:\n    def __new__(cls, *args):\n        raise SystemExit\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "planted"
    assert "planted" not in sys.modules


@dataclasses.dataclass
class Config:
    width: int = 3


Point = collections.namedtuple("Point", "x y")


class Counter:
    def __init__(self):
        self.count = 1

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def test_no_class_that_a_tree_names_is_looked_for(forge, planted):
    state = {"config": Config(5), "counter": Counter(), "point": Point(1, 2)}
    here = Config.__module__
    path = forge(
        state,
        (f"dataclass:{here}.Config", "dataclass:planted.Evil"),
        (f"object:{here}.Counter", "object:planted.Evil"),
        ("namedtuple:Point", "namedtuple:Evil"),
    )
    back = pitstop.restore(path)
    assert (back["config"].width, back["counter"], tuple(back["point"])) == (5, {"count": 1}, (1, 2))
    liked = pitstop.restore(path, like={"config": Config(), "counter": Counter(), "point": Point(0, 0)})
    assert liked["config"] == Config(5)
    assert liked["point"] == Point(1, 2)
    filled = {"config": Config(), "counter": Counter(), "point": Point(0, 0)}
    with pytest.warns(pitstop.CheckpointWarning, match=r"planted\.Evil"):
        pitstop.restore(path, into=filled)
    assert filled["config"] == Config(5)


@pytest.mark.parametrize(
    "tag",
    [
        "planted.Evil",
        "builtins.eval:1",
        "collections.defaultdict:planted.Evil",
        "collections.defaultdict:eval",
    ],
)
def test_a_tag_that_nobody_knows_is_refused(forge, planted, tag):
    state = {"a": collections.defaultdict(int, b=1)}
    path = forge(state, ("collections.defaultdict:int", tag))
    with pytest.raises(ValueError, match="does not know"):
        pitstop.restore(path)


@pytest.mark.parametrize("versions", ["{", "5", "[1]", '"{}"', "[" * 10_000])
@pytest.mark.parametrize("into", [None, {"a": collections.OrderedDict(b=0)}], ids=["new", "into"])
def test_versions_of_modules_that_are_none_are_refused(forge, versions, into):
    tag = json.dumps(f"collections.OrderedDict:{versions}")
    path = forge({"a": collections.OrderedDict(b=1)}, ('"collections.OrderedDict"', tag))
    with pytest.raises(ValueError, match="versions of modules"):
        pitstop.restore(path, into=into)


@pytest.mark.parametrize(
    "name", ["__import__('planted')", "a; import planted", "", "class", "a b", "x" * 20_000]
)
def test_names_of_named_tuples_are_names(forge, planted, name):
    """The standard library makes the class from a text."""
    state = {"a": Point(1, 2)}
    quoted = json.dumps(name)
    for replacement in [("namedtuple:Point", f"namedtuple:{quoted[1:-1]}"), ('"x"', quoted)]:
        path = forge(state, replacement)
        with contextlib.suppress(ValueError):
            assert tuple(pitstop.restore(path)["a"]) == (1, 2)


KINDS = [
    "planted",
    "planted:Evil",
    "numpy:planted.Evil",
    "numpy:O",
    "numpy:|O",
    "numpy:[('a', 'O')]",
    "numpy:[('a', '<f4'), ('b', 'O')]",
    "numpy:ml_dtypes.finfo",
    "numpy:ml_dtypes.__loader__",
    "numpy:ml_dtypes._ml_dtypes_ext",
    "numpy:<f8",
    "numpy:<f2",
    "numpy:<c16",
    "numpy:<U5",
    "numpy:|V16",
    "numpy:|V3",
    "numpy:|V2000000000",
    "numpy:i4,i4",
    "numpy:('<f4', (2,))",
    "numpy:('<f4', (1000000, 1000000))",
    "numpy:[__import__('planted')]",
    "numpy:(lambda: 1)()",
    "numpy:" + "[" * 20_000,
    "numpy:(" + "-" * 20_000 + "1)",
    "numpy:(" + "1+" * 10_000 + "1)",
    "numpy:" + "[('a', " * 200 + "'<f4'" + ")]" * 200,
    "numpy:\ud7ff\u0000",
    "array:d",
    "array:w",
    "array:planted",
    "memoryview:d",
    "memoryview:O",
    "memoryview:P",
    "memoryview:100s",
    "bytes:planted",
    "bytearray",
]


@pytest.mark.parametrize("kind", KINDS, ids=range(len(KINDS)))
@pytest.mark.parametrize("shape", [(4,), (1,), (), (2, 2), (0, 3)])
def test_an_array_reaches_no_further_than_its_bytes(forge, planted, kind, shape):
    """A kind whose elements are larger than those stored had arrays show what lies beside them."""
    stored = np.full(shape, 1.5, dtype=np.float32)
    secret = np.full(64, 7, dtype=np.uint8)
    path = forge(
        {"a": stored, "secret": secret},
        ('"tensor":"a","kind":"numpy"', f'"tensor":"a","kind":{json.dumps(kind)}'),
    )
    for how in ({}, {"mmap": True}, {"framework": "numpy"}):
        try:
            back = pitstop.restore(path, **how)["a"]
        except (ValueError, TypeError, ModuleNotFoundError):
            continue  # ml_dtypes may be missing
        assert bytes(back) == stored.tobytes()


def leaf(kind, shape, strides, offset=0):
    view = {"dtype": "U8", "shape": shape, "strides": strides, "offset": offset}
    return f'"kind":"{kind}","view":{json.dumps(view)}'


@pytest.mark.parametrize("kind", ["bytes", "bytearray", "array:B"])
def test_one_byte_does_not_become_a_terabyte(forge, kind):
    """A view that shows one element again and again takes no memory, until it is copied."""
    view = leaf(kind, [1 << 40], [0])
    path = forge({"a": np.zeros(16, dtype=np.uint8)}, ('"kind":"numpy"', view))
    with pytest.raises(ValueError, match="copies"):
        pitstop.restore(path)
    # As an array it takes no more than it says.
    path = forge({"a": np.zeros(16, dtype=np.uint8)}, ('"kind":"numpy"', leaf("numpy", [1 << 40], [0])))
    assert pitstop.restore(path)["a"].strides == (0,)


def test_many_overlapping_copies_are_refused(forge):
    size = 4096
    state = {"a": [np.zeros(size, dtype=np.uint8)]}
    views = [leaf("bytes", [size - i], [1], i) for i in range(400)]
    leaves = ",".join(f'{{"tensor":"a.0",{view}}}' for view in views)
    path = forge(state, ('{"tensor":"a.0","kind":"numpy"}', leaves))
    with pytest.raises(ValueError, match="copies"):
        pitstop.restore(path)


@pytest.mark.parametrize("dtype", ["|V2000000000", "<U500000000", "|S2000000000"])
def test_a_scalar_of_nothing_takes_no_memory(forge, dtype):
    path = forge({"a": np.str_("")}, ("numpy.scalar:<U0", f"numpy.scalar:{dtype}"))
    with pytest.raises(ValueError):
        pitstop.restore(path)


@pytest.mark.parametrize(
    "node",
    [
        '{"items":[[[],1]]}',
        '{"items":[[{"dict":{}},1]]}',
        '{"set":[[]]}',
        '{"tag":"frozenset","value":{"set":[{"set":[]}]}}',
        '{"tag":"str.surrogatepass","value":{"bytes":"//8="}}',
        '{"tag":"collections.deque:0","value":[1]}',
        '{"tag":"collections.deque:99999999999999999999","value":[1]}',
        '{"tag":"numpy.scalar:<f8","value":{"bytes":"aGk="}}',
        '{"tag":"numpy.dtype","value":"O"}',
        '{"tag":"numpy.dtype","value":"planted.Evil"}',
        '{"tag":"types.SimpleNamespace","value":{"items":[[1,2]]}}',
        '{"tag":"namedtuple:A","value":{"items":[[1,2]]}}',
    ],
)
def test_a_tree_that_makes_no_sense_is_an_error_and_nothing_else(forge, planted, node):
    path = forge({"a": 12345}, ("12345", node))
    for how in ({}, {"like": {"a": None}}, {"into": {"a": None}}):
        with pytest.raises((ValueError, TypeError)):
            pitstop.restore(path, **how)


def test_metadata_that_makes_no_sense_hides_no_checkpoint(checkpointer, run):
    """One such step was enough, and no checkpoint of the run could be listed any more."""
    for step in (1, 2):
        checkpointer.save(step, {"w": step}, metadata={"by": 12345}, metrics={"loss": step}).result()
    rewrite(run / "step-1", lambda text: text.replace("12345", '{"set":[[]]}'))
    for infos in (pitstop.checkpoints(run), checkpointer.checkpoints()):
        assert [(info.step, info.metrics) for info in infos] == [(1, {"loss": 1}), (2, {"loss": 2})]
        for _ in range(2):
            with pytest.raises(TypeError):
                infos[0].metadata  # noqa: B018
        assert infos[1].metadata is infos[1].metadata
        assert infos[1].metadata == {"by": 12345}
    assert [decision.step for decision in checkpointer.plan()] == [1, 2]
    assert pitstop.restore(run, 1) == {"w": 1}


def test_deep_and_long_trees_come_back_or_are_refused(forge):
    deep = forge({"a": 12345}, ("12345", "[" * 250 + "]" * 250))
    back = pitstop.restore(deep)["a"]
    for _ in range(249):
        (back,) = back
    assert back == []
    for open_, close in [("[", "]"), ('{"tuple":[', "]}"), ('{"tag":"object:a","value":', "}")]:
        too_deep = forge({"a": 12345}, ("12345", open_ * 1000 + "1" + close * 1000))
        with pytest.raises(pitstop.CorruptCheckpointError, match="too deep"):
            pitstop.restore(too_deep)
