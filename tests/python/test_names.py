"""File and tensor names: what a user expects where that is possible, safe and unique where it is not."""

import itertools

import disk
import numpy as np
import pitstop
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from same import assert_same

ODD_KEYS = [
    *("", " ", ".", "..", "...", "a.b", ".hidden", "trailing.", "~", "-rf", "*", "?"),
    *("a:b", "con", "NUL.txt", "a ", " a"),
    *("/", "/etc/passwd", "../escape", "../../escape", "a/../../b", "a/b", "a\\b", "..\\escape", "C:\\x"),
    *("\0", "nul\0inside", "line\nbreak", "\x7f", '"', "'", "{}", "%2e%2e", "%", "tab\t"),
    *("é", "e\u0301", "日本語", "🏁", "\u202e", "\ud800", "\udfff lone", "ß", "ẞ", "ſ", "\u212a"),
    *("Model", "model", "MODEL", "mOdel", "x" * 10_000, "y" * 255, "é" * 200),
    *("__metadata__", "manifest.json", "manifest", "state", "state.safetensors", ".lock", ".tmp-x"),
    *("model.safetensors.index", "model-00001-of-00002", "model-00001-of-00002.safetensors"),
    *("1", 1, "-1", -1, "None", None, "True", "(1,)", (1,)),
    *((), "()", (1, ("a", None)), ("..", "/"), 2**70),
]


def array_for(number):
    return np.full(3, number, dtype=np.int64)


def surroundings(tmp_path):
    return {str(path) for path in tmp_path.rglob("*") if "cage" not in path.relative_to(tmp_path).parts}


def nested_in(wrap):
    return {"model": {key: wrap(number) for number, key in enumerate(ODD_KEYS)}}


def top_level_of(wrap):
    return {key: wrap(number) for number, key in enumerate(ODD_KEYS)}


@pytest.mark.parametrize("shape", [nested_in, top_level_of])
@pytest.mark.parametrize(
    "wrap",
    [array_for, lambda number: {"weight": array_for(number)}, lambda number: number],
    ids=["loose", "in_a_dict", "plain"],
)
def test_odd_keys_come_back_and_stay_inside(tmp_path, shape, wrap):
    before = surroundings(tmp_path)
    state = shape(wrap)
    path = tmp_path / "cage" / "deep" / "checkpoint"
    path.parent.mkdir(parents=True)
    pitstop.save(path, state)
    assert_same(state, pitstop.restore(path))
    assert surroundings(tmp_path) == before
    assert disk.everything(path.parent).keys() == {
        "checkpoint",
        *(f"checkpoint/{file.name}" for file in path.iterdir()),
    }


@pytest.mark.parametrize("key", ODD_KEYS, ids=lambda key: ascii(key)[:30])
def test_each_odd_key_alone_at_each_level(tmp_path, key):
    path = tmp_path / "cage"
    state = {key: {key: array_for(1), "list": [array_for(2)], "plain": key}}
    pitstop.save(path, state)
    assert_same(state, pitstop.restore(path))
    assert disk.visible(tmp_path) == {"cage"}


def test_file_names_are_unique_on_a_disk_that_ignores_case(tmp_path):
    pitstop.save(tmp_path / "all", top_level_of(lambda number: {"weight": array_for(number)}))
    names = [file.name for file in disk.files(tmp_path / "all")]
    assert len({name.casefold() for name in names}) == len(names)
    assert all(len(name.encode()) <= 255 for name in names)
    assert all(name.isprintable() and not set(name) & set('\\:*?"<>|') for name in names)


def tensors_of(directory):
    """All tensors of a checkpoint as the safetensors package reads them."""
    found = []
    for path in disk.files(directory):
        if path.suffix == ".safetensors":
            found += load_file(path).items()
    return found


@pytest.mark.parametrize("shape", [nested_in, top_level_of])
def test_every_tensor_is_in_some_safetensors_file(tmp_path, shape):
    pitstop.save(tmp_path / "all", shape(lambda number: {"weight": array_for(number)}))
    values = sorted(array[0] for _, array in tensors_of(tmp_path / "all"))
    assert values == list(range(len(ODD_KEYS)))


def test_keys_of_a_state_dict_stay_as_they_are(tmp_path):
    names = ["transformer.h.0.attn.weight", "transformer.h.0.attn.bias", "lm_head.weight", "0", "Ünï"]
    state = {"model": {name: array_for(number) for number, name in enumerate(names)}}
    pitstop.save(tmp_path / "c", state)
    with safe_open(tmp_path / "c" / "model.safetensors", "numpy") as file:
        assert sorted(file.keys()) == sorted(names)
        for number, name in enumerate(names):
            assert_same(array_for(number), file.get_tensor(name))


def test_nested_containers_are_joined_by_dots(tmp_path):
    blocks = [{"attn": {"weight": array_for(0)}}, {"attn": {"weight": array_for(1)}}]
    pitstop.save(tmp_path / "c", {"model": {"transformer": {"h": blocks, "pair": (array_for(2), 5)}}})
    loaded = load_file(tmp_path / "c" / "model.safetensors")
    expected = ["transformer.h.0.attn.weight", "transformer.h.1.attn.weight", "transformer.pair.0"]
    assert sorted(loaded) == expected
    for number, name in enumerate(expected):
        assert_same(array_for(number), loaded[name])


def test_each_top_level_entry_has_its_file(tmp_path):
    state = {"model": {"w": array_for(0)}, "optimizer": {"state": {0: {"exp_avg": array_for(1)}}}, "step": 3}
    pitstop.save(tmp_path / "c", state)
    assert disk.visible(tmp_path / "c") == {"manifest.json", "model.safetensors", "optimizer.safetensors"}
    assert list(load_file(tmp_path / "c" / "optimizer.safetensors")) == ["state.0.exp_avg"]


def test_loose_arrays_share_one_file(tmp_path):
    pitstop.save(tmp_path / "c", {"w": array_for(0), "b": array_for(1), "model": {"w": array_for(2)}})
    assert sorted(load_file(tmp_path / "c" / "state.safetensors")) == ["b", "w"]
    assert list(load_file(tmp_path / "c" / "model.safetensors")) == ["w"]


def test_loose_arrays_and_an_entry_named_state_get_along(tmp_path):
    state = {"w": array_for(0), "state": {"w": array_for(1)}}
    pitstop.save(tmp_path / "c", state)
    assert_same(state, pitstop.restore(tmp_path / "c"))
    assert sorted(array[0] for _, array in tensors_of(tmp_path / "c")) == [0, 1]


def test_names_that_collide_after_joining_stay_apart(tmp_path):
    state = {"model": {"a.b": array_for(0), "a": {"b": array_for(1)}, "a.b.0": array_for(2)}}
    state["model"]["x"] = {"0": array_for(3), 0: array_for(4), None: array_for(5), "None": array_for(6)}
    pitstop.save(tmp_path / "c", state)
    assert_same(state, pitstop.restore(tmp_path / "c"))
    assert len(load_file(tmp_path / "c" / "model.safetensors")) == 7


def test_the_reserved_name_of_the_header_is_not_taken(tmp_path):
    pitstop.save(tmp_path / "c", {"model": {"__metadata__": array_for(0), "w": array_for(1)}})
    loaded = load_file(tmp_path / "c" / "model.safetensors")
    assert sorted(array[0] for array in loaded.values()) == [0, 1]


def test_every_dtype_opens_in_safetensors_as_itself(tmp_path):
    names = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    names += ["float16", "float32", "float64", "complex64"]
    model = {name: np.array([[0, 1, 2], [3, 4, 5]]).astype(name) for name in names}
    model |= {"scalar": np.array(3.5), "empty": np.zeros((0, 2)), "strided": np.arange(10)[::-3]}
    pitstop.save(tmp_path / "c", {"model": model})
    loaded = load_file(tmp_path / "c" / "model.safetensors")
    assert loaded.keys() == model.keys()
    for name, array in model.items():
        assert_same(np.ascontiguousarray(array).reshape(array.shape), loaded[name], name)


def test_what_safetensors_writes_is_no_checkpoint(tmp_path):
    from safetensors.numpy import save_file

    (tmp_path / "c").mkdir()
    save_file({"w": array_for(0)}, tmp_path / "c" / "model.safetensors")
    with pytest.raises(pitstop.CheckpointNotFoundError):
        pitstop.restore(tmp_path / "c")


def test_many_entries_with_one_long_prefix_get_files_of_their_own(tmp_path):
    keys = ["".join(pair) for pair in itertools.product(["p" * 300], "abcdefgh")]
    state = {key: {"w": array_for(number)} for number, key in enumerate(keys)}
    pitstop.save(tmp_path / "c", state)
    assert_same(state, pitstop.restore(tmp_path / "c"))
    assert len(tensors_of(tmp_path / "c")) == len(keys)
