"""The format page is enough to write a reader, and a writer, from: here are both, without pitstop in them."""

import array
import ast
import base64
import collections
import dataclasses
import json
import re
import struct
import sys
import types
from pathlib import Path

import numpy as np
import pitstop
import pytest
import xxhash
from same import assert_same

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
BLOCK = 64 * 1024


# --- from docs/format.md: checksums -------------------------------------------------------------------


def xxh(data, seed=0):
    return xxhash.xxh3_128(data, seed=seed).digest()


def digest(data):
    if len(data) <= BLOCK:
        return xxh(data)
    return xxh(b"".join(xxh(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK)), len(data))


def file_digest(head, tensors, size):
    return xxh(digest(head) + b"".join(map(digest, tensors)), size)


# --- from docs/format.md: a reader --------------------------------------------------------------------


class Damaged(Exception):
    """The checkpoint is not what the page says it should be."""


def require(condition, what):
    if not condition:
        raise Damaged(what)


DTYPES = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
    "C64": "<c8",
}


class Reader:
    """One checkpoint: everything is verified when it is opened."""

    def __init__(self, path):
        self.path = Path(path)
        self.manifest = self.read_manifest()
        self.bytes = {}  # of each tensor
        self.turned = set()  # tensors whose bytes are in big-endian order by now
        self.arrays = {}  # of each leaf, by tensor, kind and view
        for name, file in self.manifest["files"].items():
            self.verify_file(name, file)
        for name, tensor in self.manifest["tensors"].items():
            self.bytes[name] = self.read_tensor(tensor)

    def read_manifest(self):
        text = (self.path / "manifest.json").read_bytes()
        first = b'{"checksum":"' + digest(text[48:]).hex().encode() + b'",\n'
        require(text[:48] == first, "the manifest's checksum")
        manifest = json.loads(text)
        require(manifest["format"] == "pitstop", "the format")
        require(manifest["version"] == 1, "the version")
        return manifest

    def parts_in(self, file):
        """The parts that lie in a file, as (start, size, checksum), in the order of their bytes."""
        parts = []
        for tensor in self.manifest["tensors"].values():
            for part in tensor.get("pieces", [tensor]):
                if part["file"] == file:
                    size = nbytes(tensor["dtype"], part["shape"])
                    parts.append((part["start"], size, part["checksum"]))
        return sorted(parts)

    def verify_file(self, name, file):
        require(re.fullmatch(r"[^./\\:\x00-\x1f][^/\\:\x00-\x1f]*", name), "a file's name")
        content = (self.path / name).read_bytes()
        require(len(content) == file["size"], "a file's size")
        if "data_start" not in file:
            require(digest(content).hex() == file["checksum"], "a file's checksum")
            return
        at, tensors = file["data_start"], []
        for start, size, checksum in self.parts_in(name):
            require(start == at, "a hole or an overlap")
            at += size
            tensors.append(content[start:at])
            require(digest(tensors[-1]).hex() == checksum, "a tensor's checksum")
        require(at == len(content), "bytes after the last tensor")
        whole = file_digest(content[: file["data_start"]], tensors, len(content))
        require(whole.hex() == file["checksum"], "a file's checksum")

    def read_tensor(self, tensor):
        """The bytes of a tensor, in memory that may be written to."""
        if "pieces" not in tensor:
            return bytearray(self.read_part(tensor["dtype"], tensor))
        whole = np.empty(tensor["shape"], DTYPES[tensor["dtype"]])
        covered = np.zeros(tensor["shape"], int)
        for piece in tensor["pieces"]:
            region = tuple(
                slice(at, at + extent) for at, extent in zip(piece["offset"], piece["shape"], strict=True)
            )
            stored = np.frombuffer(self.read_part(tensor["dtype"], piece), whole.dtype)
            whole[region] = stored.reshape(piece["shape"])
            covered[region] += 1
        require((covered == 1).all(), "pieces that do not tile")
        return bytearray(whole.tobytes())

    def read_part(self, dtype, part):
        with open(self.path / part["file"], "rb") as file:
            file.seek(part["start"])
            return file.read(nbytes(dtype, part["shape"]))

    def state(self):
        return self.node(self.manifest["tree"])

    def node(self, node):
        if isinstance(node, list):
            return [self.node(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "tensor" in node:
            return self.leaf(**node)
        if "tag" in node:
            name, _, argument = node["tag"].partition(":")
            return self.tagged(name, argument, self.node(node["value"]))
        ((key, value),) = node.items()
        match key:
            case "int":
                return int(value, 16)
            case "float":
                return number(value)
            case "complex":
                return complex(*map(number, value))
            case "bytes":
                return base64.b64decode(value, validate=True)
            case "tuple":
                return tuple(self.node(item) for item in value)
            case "set":
                return {self.node(item) for item in value}
            case "dict":
                return {key: self.node(item) for key, item in value.items()}
            case "items":
                return {self.node(key): self.node(item) for key, item in value}
        raise Damaged(f"a node {key!r}")

    def tagged(self, name, argument, value):
        match name:
            case "frozenset":
                return frozenset(value)
            case "str.surrogatepass":
                return value.decode("utf-8", "surrogatepass")
            case "collections.OrderedDict" | "collections.Counter":
                return getattr(collections, name.split(".")[1])(value)
            case "collections.defaultdict":
                factories = {kind.__name__: kind for kind in FACTORIES} | {"None": None}
                return collections.defaultdict(factories[argument], value)
            case "collections.deque":
                return collections.deque(value, int(argument) if argument else None)
            case "types.SimpleNamespace" | "dataclass":
                return types.SimpleNamespace(**value)
            case "namedtuple":
                return collections.namedtuple(argument, value)(**value)
            case "object":
                return value
            case "numpy.scalar":
                dtype = read_dtype(argument)
                return np.frombuffer(value, dtype)[0] if value else np.zeros((), dtype)[()]
            case "numpy.dtype":
                return read_dtype(value)
        raise Damaged(f"a tag {name!r}")

    def leaf(self, tensor, kind="", view=None):
        key = (tensor, kind, json.dumps(view))
        if key not in self.arrays:
            self.arrays[key] = self.array(tensor, kind, view)
        return self.arrays[key]

    def array(self, name, kind, view):
        framework, _, logical = kind.partition(":")
        tensor = self.manifest["tensors"][name]
        window = view or {"dtype": tensor["dtype"], "shape": tensor["shape"], "strides": None, "offset": 0}
        stored, shape, strides = (window[field] for field in ("dtype", "shape", "strides"))
        data = self.bytes[name]
        dtype = np.dtype(DTYPES[stored])
        if framework in ("numpy", "") and logical:
            wanted = read_dtype(logical)
            require(not wanted.hasobject, "an array of objects")
            if wanted.itemsize != dtype.itemsize or stored == "U8":  # the last axis is in the element
                shape, strides = shape[:-1], strides and strides[:-1]
            # Stored the other way round; turned over once for all leaves that show it.
            if stored != "U8" and logical.startswith(">") and name not in self.turned:
                self.turned.add(name)
                data[:] = np.frombuffer(data, dtype).byteswap().tobytes()
            dtype = wanted
        array_of_it = np.ndarray(shape, dtype, data, window["offset"], strides)
        match framework:
            case "bytes":
                return array_of_it.tobytes()
            case "bytearray":
                return bytearray(array_of_it.tobytes())
            case "array":
                return array.array(logical, array_of_it.tobytes())
            case "numpy" | "":
                return array_of_it
        raise Damaged(f"a kind {kind!r}")


FACTORIES = (int, float, complex, bool, str, bytes, list, tuple, dict, set)


def nbytes(dtype, shape):
    return np.dtype(DTYPES[dtype]).itemsize * int(np.prod(shape, dtype=object))


def number(value):
    if isinstance(value, str) and value.startswith("nan:"):
        return struct.unpack(">d", bytes.fromhex(value.removeprefix("nan:")))[0]
    return float(value)


def read_dtype(text):
    if text.startswith(("[", "{", "(")):
        return np.lib.format.descr_to_dtype(ast.literal_eval(text))
    return np.dtype(text)


# --- the reader and pitstop agree ---------------------------------------------------------------------


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Config:
    rate: float
    mask: np.ndarray


class Schedule:
    """An object with a state."""

    def state_dict(self):
        return {"count": 7, "seen": np.arange(3)}

    def load_state_dict(self, state):
        raise AssertionError("nobody asked for that")


def rich_state():
    base = np.arange(12, dtype=np.int32)
    swapped = np.arange(8, dtype=">f4")
    nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
    numbers = [np.arange(6).reshape(2, 3).astype(code) for code in "?bBhHiIlLefdFD"]
    return {
        "model": {"h": [{"weight": array} for array in numbers], "tied": numbers[0]},
        "views": {
            "base": base,
            "head": base[:5],
            "back": base[::-2],
            "columns": base.reshape(3, 4).T[1:],
            "low": swapped[:5],
            "high": swapped[3:],
            "bits": base.view(np.uint8)[3:9],
        },
        "arrays": {
            "empty": np.zeros((0, 3)),
            "scalar": np.array(2.5),
            "fortran": np.ones((2, 3), order="F"),
            "swapped": np.arange(3, dtype=">i8"),
            "swapped_complex": np.array([1 + 2j], ">c16"),
            "swapped_text": np.array(["é"], ">U2"),
            "text": np.array(["a", "bcd"]),
            "raw": np.array([b"ab"]),
            "time": np.array(["2026-11-30T08:41"], "M8[s]"),
            "span": np.array([5, -5], ">m8[us]"),
            "structure": np.array([(1, 2.5)], [("a", "<i2"), ("b", ">f8")]),
            "long": np.ones(2, np.longdouble),
            "large": np.random.default_rng(0).integers(0, 255, 3 * BLOCK + 17, np.uint8),
        },
        "buffers": {
            "bytes": b"\x00\xff" * 5000,
            "bytearray": bytearray(b"abc"),
            "array": array.array("d", [1.5, -0.0]),
        },
        "plain": {
            "none": None,
            "true": True,
            "int": -(2**63),
            "large": 2**64,
            "negative": -(2**200),
            "zero": -0.0,
            "tiny": 5e-324,
            "tenth": 0.1,
            "nan": nan,
            "infinite": float("-inf"),
            "text": 'é"\\\n\0🏁',
            "complex": complex(nan, -0.0),
            "bytes": b"\x00\xff",
            "surrogate": "\ud800",
            "": [[], (), {}, set()],
        },
        "containers": {
            "tuple": (1, (2.0, "x")),
            "set": {1, "a", (2, 3)},
            "frozen": frozenset({b"x"}),
            "ordered": collections.OrderedDict(b=1, a=2),
            "counter": collections.Counter("hello"),
            "default": collections.defaultdict(list, {1: [2]}),
            "plain_default": collections.defaultdict(None),
            "deque": collections.deque([1, 2], 5),
            "endless": collections.deque(),
            "namespace": space(a=1),
            "config": Config(0.1, np.array([True])),
            "object": Schedule(),
            "point": Point(1, np.ones(2)),
        },
        "keys": {
            1: "a",
            "1": "b",
            None: "c",
            (1, ("x",)): "d",
            False: "e",
            2**70: "f",
            "\udfff": "g",
            np.int8(5): "h",
        },
        "scalars": [np.float32(1.5), np.int64(-1), np.datetime64("2026-11-30"), np.str_("é"), np.bool_(True)],
        "types": [np.dtype("<f4"), np.dtype([("a", "i4")]), np.float64(nan), np.complex128(1j)],
        "loose": np.arange(4, dtype=np.float16),
    }


def space(**values):
    return types.SimpleNamespace(**values)


def assert_read_alike(path):
    """The reader written from the page and pitstop give the same state."""
    assert_same(comparable(pitstop.restore(path)), comparable(Reader(path).state()))


def comparable(state):
    """The state with its named tuple taken apart, since each reader makes a class of its own for it."""
    if "containers" in state:
        point = state["containers"].pop("point")
        state["point"] = [type(point).__name__, point._asdict()]
    return state


def test_a_reader_written_from_the_page_gives_what_pitstop_gives(tmp_path):
    path = tmp_path / "checkpoint"
    pitstop.save(path, rich_state(), metrics={"loss": 0.5, "nan": float("nan")}, metadata={"by": ("me", 1)})
    assert_read_alike(path)
    reader = Reader(path)
    assert (reader.manifest["step"], reader.node(reader.manifest["metadata"])) == (0, {"by": ("me", 1)})
    assert number(reader.manifest["metrics"]["loss"]) == 0.5
    assert np.isnan(number(reader.manifest["metrics"]["nan"]))


def test_memory_that_was_shared_is_shared_again_in_both(tmp_path):
    path = tmp_path / "checkpoint"
    pitstop.save(path, rich_state())
    for state in (pitstop.restore(path), Reader(path).state()):
        assert state["model"]["tied"] is state["model"]["h"][0]["weight"]
        for name in ("head", "back", "columns", "bits"):
            assert np.shares_memory(state["views"]["base"], state["views"][name])
        state["views"]["low"][4] = -1.0
        assert state["views"]["high"][1] == -1.0


def test_files_linked_and_in_parts_read_alike(tmp_path):
    run, large = tmp_path / "run", np.random.default_rng(1).random(1 << 17)
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        for step in range(4):
            model = {"frozen": large, "moving": np.full(10, step)}
            checkpointer.save(step, {"model": model, "step": step})
    files = {file.name for file in (run / "step-3").iterdir()}
    assert files == {
        *("manifest.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
        "model.safetensors.index.json",
    }
    assert (run / "step-3" / "model-00001-of-00002.safetensors").stat().st_nlink > 1
    index = json.loads((run / "step-3" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == large.nbytes + 80
    assert sorted(index["weight_map"]) == ["frozen", "moving"]
    for step in range(4):
        assert_read_alike(run / f"step-{step}")


@pytest.mark.parametrize("file", ["manifest.json", "a.safetensors"])
def test_the_reader_finds_a_flipped_bit_as_pitstop_does(tmp_path, file):
    path = tmp_path / "checkpoint"
    pitstop.save(path, {"a": {"w": np.arange(5.0)}, "text": "hello"})
    intact = (path / file).read_bytes()
    for at in range(0, len(intact), 41):
        damaged = bytearray(intact)
        damaged[at] ^= 1 << at % 8
        (path / file).write_bytes(damaged)
        with pytest.raises(Damaged):
            Reader(path)
        with pytest.raises(pitstop.CorruptCheckpointError):
            pitstop.restore(path)


# --- from docs/format.md: a writer, for what the Python front does not write -------------------------------


def write_checkpoint(path, tensors, tree):
    """Writes tensors (name to list of (offset, array), and the whole shape) into one file, by the page."""
    header, body, entries, at = {"__metadata__": {"format": "np"}}, [], {}, 0
    for name, (shape, pieces) in tensors.items():
        entries[name] = {"dtype": "F32", "shape": shape, "pieces": []}
        for i, (offset, piece) in enumerate(pieces):
            local, data = f"{name}.piece{i}", piece.astype("<f4").tobytes()
            span = [at, at + len(data)]
            header[local] = {"dtype": "F32", "shape": piece.shape, "data_offsets": span}
            place = {"file": "model.safetensors", "name": local, "start": 4096 + at}
            entries[name]["pieces"].append(
                {"offset": offset, "shape": piece.shape, **place, "checksum": digest(data).hex()}
            )
            body.append(data)
            at += len(data)
    text = json.dumps(header).encode().ljust(4096 - 8)
    head = len(text).to_bytes(8, "little") + text
    path.mkdir()
    (path / "model.safetensors").write_bytes(head + b"".join(body))
    size = len(head) + at
    checksum = file_digest(head, body, size).hex()
    manifest = {
        "format": "pitstop",
        "version": 1,
        "step": 3,
        "created": "2026-11-30T08:41:24.867Z",
        "writer": "a test",
        "metrics": {},
        "metadata": None,
        "tree": tree,
        "files": {"model.safetensors": {"size": size, "data_start": len(head), "checksum": checksum}},
        "tensors": entries,
        "a field that nobody knows": 1,
    }
    rest = json.dumps(manifest)[1:].encode()
    (path / "manifest.json").write_bytes(b'{"checksum":"' + digest(rest).hex().encode() + b'",\n' + rest)


def test_pitstop_reads_pieces_written_by_the_page(tmp_path):
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    pieces = [([0, 0], whole[:, :4]), ([0, 4], whole[:2, 4:]), ([2, 4], whole[2:, 4:])]
    leaf = {"tensor": "model.w", "kind": "numpy"}
    corner = {"dtype": "F32", "shape": [2, 2], "strides": [24, 4], "offset": 64}
    tree = {"dict": {"model": {"dict": {"w": leaf, "corner": {**leaf, "view": corner}}}}}
    write_checkpoint(tmp_path / "step-3", {"model.w": ([4, 6], pieces)}, tree)
    for state in (pitstop.restore(tmp_path), Reader(tmp_path / "step-3").state()):
        assert_same({"w": whole, "corner": whole[2:, 4:]}, state["model"])
    assert [info.step for info in pitstop.checkpoints(tmp_path)] == [3]


def test_pieces_that_do_not_tile_are_refused(tmp_path):
    tree = {"dict": {"w": {"tensor": "w", "kind": "numpy"}}}
    write_checkpoint(tmp_path / "c", {"w": ([4], [([0], np.ones(2)), ([1], np.ones(2))])}, tree)
    with pytest.raises(Damaged):
        Reader(tmp_path / "c")
    with pytest.raises(pitstop.CorruptCheckpointError):
        pitstop.restore(tmp_path / "c")


# --- the page itself ----------------------------------------------------------------------------------


def test_the_values_on_the_page_are_right(tmp_path):
    page = (ROOT / "docs" / "format.md").read_text()
    path = tmp_path / "checkpoint"
    weights = {"w": np.array([[1, 2], [3, 4]], "<f4"), "b": np.array([0.5], "<f8")}
    pitstop.save(path, {"model": weights})
    content = (path / "model.safetensors").read_bytes()
    head, tensors = content[:4096], [content[4096:4104], content[4104:]]
    digests = [
        digest(data) for data in (b"", b"abc", bytes(BLOCK), bytes(1), bytes(BLOCK + 1), head, *tensors)
    ]
    for value in [*digests, file_digest(head, tensors, 4120), *tensors, content[:8]]:
        assert f"`{value.hex()}`" in page
    assert f"`{head[8:].rstrip(b' ').decode()}`" in page


@pytest.mark.parametrize("version", [1])
def test_a_checkpoint_of_each_released_version_reads_as_it_was_written(version, monkeypatch):
    directory = FIXTURES / f"format-{version}"
    monkeypatch.syspath_prepend(FIXTURES)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    script = __import__(f"make_format_{version}")
    assert [info.step for info in pitstop.checkpoints(directory)] == list(script.STEPS)
    for step in script.STEPS:
        assert_same(script.expected_at(step), pitstop.restore(directory, step))
        assert_same(script.expected_at(step), Reader(directory / f"step-{step}").state())
        info = pitstop.checkpoints(directory / f"step-{step}")[0]
        assert (info.metrics, info.metadata) == (script.metrics_at(step), script.METADATA)
    restored = pitstop.restore(directory)
    assert np.shares_memory(restored["model"]["weight"], restored["model"]["rows"])
    assert restored["model"]["weight"] is restored["model"]["tied"]
