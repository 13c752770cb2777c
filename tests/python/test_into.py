"""Filling what is there: `into`, `only`, `like`, and the generators of random numbers."""

import collections
import dataclasses
import random

import disk
import numpy as np
import pitstop
import pytest
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from same import assert_same

Pair = collections.namedtuple("Pair", ["left", "right"])


class Scheduler:
    """Something with a state of its own, as optimizers and schedulers have."""

    def __init__(self, rate):
        self.rate = rate
        self.loaded = 0

    def state_dict(self):
        return {"rate": self.rate, "history": np.full(3, self.rate)}

    def load_state_dict(self, state):
        self.rate = state["rate"]
        self.history = np.array(state["history"])
        self.loaded += 1


def made_with(value):
    return {
        "model": {
            "layers": [{"w": np.full((2, 3), value)}, {"w": np.full(4, value)}],
            "pair": (value, [value]),
        },
        "scheduler": Scheduler(value),
        "plain": {"best": value, "name": str(value), "nothing": None if value else 0},
        "history": [value],
    }


@pytest.fixture
def saved(checkpointer):
    """A checkpointer with step 1 in it, made with 1.5."""
    checkpointer.save(1, made_with(1.5), metrics={"loss": 0.5})
    checkpointer.wait()
    return checkpointer


def plain(state):
    return state | {"scheduler": state["scheduler"].state_dict()}


@pytest.mark.parametrize("fill", ["resume", "restore", "restore_step", "pitstop.restore"])
def test_arrays_are_filled_in_place_and_plain_values_replaced(saved, run, fill):
    target = made_with(0.0)
    model, plain_values, scheduler = target["model"], target["plain"], target["scheduler"]
    arrays = [layer["w"] for layer in model["layers"]]
    addresses = [array.ctypes.data for array in arrays]
    if fill == "resume":
        assert saved.resume(into=target) == 1
    elif fill == "restore":
        saved.restore(into=target)
    elif fill == "restore_step":
        saved.restore(1, into=target)
    else:
        pitstop.restore(run, into=target)
    assert_same(plain(made_with(1.5)), plain(target))
    assert target["model"] is model
    assert target["plain"] is plain_values
    assert target["scheduler"] is scheduler
    assert scheduler.loaded == 1
    for layer, array, address in zip(model["layers"], arrays, addresses, strict=True):
        assert layer["w"] is array
        assert array.ctypes.data == address


def test_a_list_of_plain_values_takes_the_saved_length(checkpointer):
    checkpointer.save(1, {"history": [0.5, 0.25], "w": np.ones(2)})
    state = {"history": [], "w": np.zeros(2)}
    checkpointer.resume(into=state)
    assert_same({"history": [0.5, 0.25], "w": np.ones(2)}, state)


def test_a_plain_value_may_change_its_type(checkpointer):
    checkpointer.save(1, {"best": 0.5, "note": None, "list": [1, "a"]})
    state = {"best": None, "note": "old", "list": [None, 0]}
    checkpointer.resume(into=state)
    assert_same({"best": 0.5, "note": None, "list": [1, "a"]}, state)


def test_into_an_array_a_list_or_an_object_at_the_top(tmp_path):
    for name, state in [("array", np.arange(3.0)), ("list", [np.ones(2), 5]), ("object", Scheduler(2.0))]:
        pitstop.save(tmp_path / name, state)
    array, sequence, scheduler = np.zeros(3), [np.zeros(2), None], Scheduler(0.0)
    pitstop.restore(tmp_path / "array", into=array)
    pitstop.restore(tmp_path / "list", into=sequence)
    pitstop.restore(tmp_path / "object", into=scheduler)
    assert_same(np.arange(3.0), array)
    assert_same([np.ones(2), 5], sequence)
    assert scheduler.rate == 2.0


@pytest.mark.parametrize(
    "target",
    [
        np.zeros((4, 6))[:, ::2],
        np.zeros((3, 4)).T,
        np.zeros((4, 3))[::-1, ::-1],
        np.asfortranarray(np.zeros((4, 3))),
        np.zeros((4, 3), dtype=">f8"),
        np.zeros(12 * 8 + 1, np.uint8)[1:].view(np.float64).reshape(4, 3),
    ],
    ids=["strided", "transposed", "reversed", "fortran", "big_endian", "unaligned"],
)
def test_an_array_of_any_layout_is_filled(tmp_path, target):
    values = np.random.default_rng(0).standard_normal((4, 3))
    pitstop.save(tmp_path / "c", {"w": values})
    state = {"w": target}
    pitstop.restore(tmp_path / "c", into=state)
    assert state["w"] is target
    np.testing.assert_array_equal(target, values)


@pytest.mark.parametrize("dtype", ["?", "u1", "i8", "f2", "f4", "c8", "c16", "M8[s]", "S4"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_an_array_of_any_dtype_is_filled(tmp_path, dtype, shape):
    values = np.ones(shape).astype("i8").astype(dtype)
    target = np.zeros(shape).astype("i8").astype(dtype)
    pitstop.save(tmp_path / "c", {"w": values})
    pitstop.restore(tmp_path / "c", into={"w": target})
    assert_same(values, target)


@pytest.mark.parametrize("aligned", [False, True])
def test_an_array_of_structures_is_filled(tmp_path, aligned):
    """It could be saved, but counted as read-only."""
    dtype = np.dtype([("a", "u1"), ("b", "<f4"), ("c", ">i2", (2,))], align=aligned)
    values = np.zeros((3, 2), dtype)
    values["a"], values["b"], values["c"] = 1, 2.5, [3, -4]
    pitstop.save(tmp_path / "c", {"w": values})
    target = np.zeros_like(values)
    pitstop.restore(tmp_path / "c", into={"w": target})
    assert (target == values).all()
    target.flags.writeable = False
    with pytest.raises(pitstop.StateMismatchError, match="read-only"):
        pitstop.restore(tmp_path / "c", into={"w": target})


def test_a_filled_array_shows_through_every_view_of_it(tmp_path):
    weight = np.arange(6.0)
    pitstop.save(tmp_path / "c", {"a": weight, "b": weight[2:]})
    memory = np.zeros(6)
    pitstop.restore(tmp_path / "c", into={"a": memory, "b": memory[2:]})
    assert_same(weight, memory)


def test_bytearrays_and_buffers_take_the_saved_bytes(tmp_path):
    pitstop.save(tmp_path / "c", {"buffer": bytearray(b"saved")})
    state = {"buffer": bytearray(b"fresh")}
    pitstop.restore(tmp_path / "c", into=state)
    assert_same({"buffer": bytearray(b"saved")}, state)


def test_special_containers_are_filled(checkpointer):
    def made(value):
        return {
            "ordered": collections.OrderedDict(b=value, a=np.full(2, value)),
            "queue": collections.deque([value, value], maxlen=3),
            "counter": collections.Counter(x=int(value)),
            "seen": {value},
        }

    checkpointer.save(1, made(2.0))
    state = made(0.0)
    array = state["ordered"]["a"]
    checkpointer.resume(into=state)
    assert_same(made(2.0), state)
    assert state["ordered"]["a"] is array


@dataclasses.dataclass
class Settings:
    rate: float
    weight: np.ndarray


def test_a_dataclass_is_filled_in_place(checkpointer):
    checkpointer.save(1, {"settings": Settings(0.5, np.ones(2))})
    settings = Settings(0.0, np.zeros(2))
    weight = settings.weight
    checkpointer.resume(into={"settings": settings})
    assert settings.rate == 0.5
    assert settings.weight is weight
    assert_same(np.ones(2), weight)


def mismatched():
    state = made_with(0.0)
    state["model"]["layers"][0] = {"w": np.zeros((3, 2)), "unexpected_bias": np.zeros(2)}
    state["model"]["layers"][1]["w"] = np.zeros(4, dtype=np.float32)
    del state["plain"]["best"]
    state["plain"]["unexpected_value"] = 1
    return state


@pytest.mark.parametrize("call", ["resume", "restore"])
def test_every_mismatch_is_named_at_once_and_nothing_is_touched(saved, call):
    target, untouched = mismatched(), mismatched()
    with pytest.raises(pitstop.StateMismatchError) as caught:
        getattr(saved, call)(into=target)
    message = str(caught.value)
    for name in ["layers.0.w", "layers.1.w", "best", "unexpected_bias", "unexpected_value"]:
        assert name in message
    assert_same(plain(untouched), plain(target))
    assert target["scheduler"].loaded == 0
    assert isinstance(caught.value, ValueError)


def test_what_is_only_unexpected_can_be_left_out_as_the_message_says(checkpointer):
    checkpointer.save(1, {"model": {"w": np.ones(3)}, "old": np.ones(2)})
    target = {"model": {"w": np.zeros(3)}}
    with pytest.raises(pitstop.StateMismatchError) as caught:
        checkpointer.resume(into=target)
    assert caught.value.unexpected == ["old"]
    assert 'only=["model.*", ...]' in str(caught.value)
    checkpointer.restore(into=target, only=["model.*"])
    assert_same({"model": {"w": np.ones(3)}}, target)
    with pytest.raises(pitstop.StateMismatchError) as caught:
        checkpointer.resume(into={"wanted": np.zeros(3)})
    assert "only=" not in str(caught.value)


def test_a_hundred_mismatches_are_all_named(checkpointer):
    checkpointer.save(1, {f"saved_{number:03}": np.zeros(1) for number in range(100)})
    with pytest.raises(pitstop.StateMismatchError) as caught:
        checkpointer.resume(into={f"wanted_{number:03}": np.zeros(1) for number in range(100)})
    for number in range(100):
        assert f"saved_{number:03}" in str(caught.value)
        assert f"wanted_{number:03}" in str(caught.value)


@pytest.mark.parametrize(
    "target",
    [
        {"w": 5, "n": 1},
        {"w": np.zeros(3), "n": np.zeros(3)},
        {"w": {"inner": 1}, "n": 1},
        {"w": [np.zeros(3)], "n": 1},
        {"w": np.zeros(3), "n": [1]},
        [np.zeros(3), 1],
    ],
    ids=[
        "value_for_array",
        "array_for_value",
        "dict_for_array",
        "list_for_array",
        "list_for_value",
        "list_for_dict",
    ],
)
def test_a_different_kind_of_thing_is_a_mismatch(checkpointer, target):
    checkpointer.save(1, {"w": np.ones(3), "n": 2})
    before = repr(target)
    with pytest.raises(pitstop.StateMismatchError):
        checkpointer.resume(into=target)
    assert repr(target) == before


def test_a_read_only_target_is_refused_and_nothing_is_touched(checkpointer):
    checkpointer.save(1, {"a": np.ones(3), "b": np.ones(3)})
    target = {"a": np.zeros(3), "b": np.zeros(3)}
    target["b"].flags.writeable = False
    with pytest.raises((ValueError, TypeError, pitstop.CheckpointError)):
        checkpointer.resume(into=target)
    assert_same({"a": np.zeros(3), "b": np.zeros(3)}, target)


@pytest.mark.parametrize("name", ["model.safetensors", "state.safetensors", "manifest.json"])
def test_a_damaged_checkpoint_leaves_into_untouched(run, name):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, {"model": {"w": np.ones(100)}, "loose": np.ones(100), "n": 1})
    disk.flip(run / "step-1" / name, (run / "step-1" / name).stat().st_size - 5)
    target = {"model": {"w": np.zeros(100)}, "loose": np.zeros(100), "n": 0}
    with pytest.raises(pitstop.CorruptCheckpointError):
        pitstop.restore(run, 1, into=target)
    assert_same({"model": {"w": np.zeros(100)}, "loose": np.zeros(100), "n": 0}, target)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (
            "model.*",
            {
                "model": {
                    "layers": [{"w": np.full((2, 3), 1.5)}, {"w": np.full(4, 1.5)}],
                    "pair": (1.5, [1.5]),
                }
            },
        ),
        ("model.layers.1.w", {"model": {"layers": [None, {"w": np.full(4, 1.5)}]}}),
        (["*.best", "model.pair.0"], {"model": {"pair": (1.5, None)}, "plain": {"best": 1.5}}),
        ("plain.n*", {"plain": {"name": "1.5", "nothing": None}}),
        (["scheduler.rate"], {"scheduler": {"rate": 1.5}}),
        ("history.?", {"history": [1.5]}),
    ],
    ids=str,
)
def test_only_restores_what_matches(saved, patterns, expected):
    assert_same(expected, saved.restore(only=patterns))


def test_only_distinguishes_case_and_takes_dots_in_keys(checkpointer):
    model = {"h.0.W": np.ones(1), "h.0.w": np.zeros(1)}
    checkpointer.save(1, {"model": model})
    assert_same({"model": {"h.0.w": np.zeros(1)}}, checkpointer.restore(only="model.h.*.w"))


def test_only_with_into_fills_what_matches_and_nothing_else(saved):
    target = made_with(0.0)
    saved.restore(into=target, only=["model.layers.1.*", "plain.best"])
    expected = made_with(0.0)
    expected["model"]["layers"][1]["w"][:] = 1.5
    expected["plain"]["best"] = 1.5
    assert_same(plain(expected), plain(target))
    assert target["scheduler"].loaded == 0


def test_only_reads_around_damage_elsewhere(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, {"model": {"w": np.ones(100)}, "other": {"w": np.ones(100)}})
    damaged = run / "step-1" / "other.safetensors"
    disk.flip(damaged, damaged.stat().st_size - 1)
    assert_same({"model": {"w": np.ones(100)}}, pitstop.restore(run, 1, only="model.*"))
    with pytest.raises(pitstop.CorruptCheckpointError):
        pitstop.restore(run, 1)


def test_like_gives_container_types_back(checkpointer):
    state = {"pair": Pair(1, np.ones(2)), "settings": Settings(0.5, np.ones(2)), "plain": [1, 2]}
    checkpointer.save(1, state)
    template = {"pair": Pair(None, None), "settings": Settings(0.0, np.zeros(0)), "plain": []}
    back = checkpointer.restore(like=template)
    assert_same({"pair": state["pair"], "plain": [1, 2]}, {"pair": back["pair"], "plain": back["plain"]})
    assert type(back["settings"]) is Settings
    assert back["settings"].rate == 0.5
    assert_same(np.ones(2), back["settings"].weight)
    assert_same(np.zeros(0), template["settings"].weight)


def test_like_that_does_not_fit_is_a_mismatch(checkpointer):
    checkpointer.save(1, {"pair": Pair(1, 2)})
    with pytest.raises(pitstop.StateMismatchError, match="other"):
        checkpointer.restore(like={"other": Pair(0, 0)})


def test_what_a_template_has_no_place_for_is_told_in_terms_of_like(checkpointer):
    # The advice was to pass `into`.
    checkpointer.save(1, {"pair": Pair(1, 2)})
    Left = collections.namedtuple("Left", ["left"])
    with pytest.raises(pitstop.StateMismatchError, match="does not fit the template") as caught:
        checkpointer.restore(like={"pair": Left(0)})
    assert caught.value.unexpected == ["pair.right"]
    assert "restore(like=..., only=" in str(caught.value)
    assert "into" not in str(caught.value)
    assert checkpointer.restore(like={"pair": Left(0)}, only="pair.left") == {"pair": Left(1)}


MISFITS = {
    "dict for a dataclass": ({"rate": 0.5, "weight": 1}, Settings(0.0, 0)),
    "dict for a named tuple": ({"left": 1, "right": 2}, Pair(0, 0)),
    "dict for a list": ({"a": 1}, [0]),
    "list for a dict": ([1, 2], {"a": 0}),
    "tuple for a longer named tuple": ((1,), Pair(0, 0)),
    "array for a dict": (np.ones(2), {"a": 0}),
    "array for a dataclass": (np.ones(2), Settings(0.0, 0)),
    "dataclass for a dict": (Settings(0.5, 1), {"rate": 0.0}),
    "number for a list": (3, [0]),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_container_of_the_template_that_was_saved_as_something_else_is_a_mismatch(checkpointer, name):
    # It came back as what was saved, without the type that was asked for.
    saved, template = MISFITS[name]
    checkpointer.save(1, {"a": [0, saved]})
    with pytest.raises(pitstop.StateMismatchError) as caught:
        checkpointer.restore(like={"a": [None, template]})
    [mismatched] = caught.value.mismatched
    assert mismatched.startswith("a.1 (saved: ")
    assert caught.value.missing == caught.value.unexpected == []


def test_values_of_the_template_do_not_count_and_nothing_fits_any_container(checkpointer):
    state = {"a": None, "b": np.arange(3), "c": [1, {"d": 2.5}], "e": Pair(1, 2)}
    checkpointer.save(1, state)
    template = {"a": Settings(0.0, 0), "b": np.zeros((2, 2), np.int8), "c": None, "e": (0, 0)}
    back = checkpointer.restore(like=template)
    assert_same(state | {"e": None}, back | {"e": None})
    assert tuple(back["e"]) == (1, 2)


def draws():
    return [random.random(), random.gauss(0, 1), *np.random.random(3), np.random.standard_normal()]


def test_rng_continues_python_and_numpy_where_they_were(checkpointer):
    random.seed(1)
    np.random.seed(2)
    draws()  # leaves a second Gaussian waiting in both generators
    state = {"rng": pitstop.Rng(), "step": 1}
    checkpointer.save(1, state)
    expected = [draws(), draws()]
    random.seed(3)
    np.random.seed(4)
    checkpointer.resume(into={"rng": pitstop.Rng(), "step": 0})
    assert [draws(), draws()] == expected


def test_rng_is_taken_when_save_is_called(checkpointer, big_state):
    random.seed(1)
    checkpointer.save(1, big_state | {"rng": pitstop.Rng()})
    expected = draws()
    checkpointer.restore(into=big_state | {"rng": pitstop.Rng()})
    assert draws() == expected


def test_rng_restored_without_into_does_not_touch_the_generators(checkpointer):
    checkpointer.save(1, {"rng": pitstop.Rng()}).result()
    random.seed(5)
    expected = random.random()
    random.seed(5)
    checkpointer.restore()
    assert random.random() == expected


def test_rng_has_a_state_to_save_and_load():
    rng = pitstop.Rng()
    before = rng.state_dict()
    expected = draws()
    rng.load_state_dict(before)
    assert draws() == expected


def test_a_dict_in_two_places_that_were_saved_apart_becomes_two(run):
    # Both places got the last value, in silence: {"params": params, "target": params} before the first step.
    def new():
        shared = {"rate": 0.0}
        return {"params": shared, "target": shared}

    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, {"params": {"rate": 1.0}, "target": {"rate": 2.0}})
        checkpointer.wait()
        target = new()
        assert checkpointer.resume(into=target) == 1
    assert target == {"params": {"rate": 1.0}, "target": {"rate": 2.0}}


def test_a_dict_in_two_places_that_were_saved_alike_stays_one(checkpointer):
    shared = {"w": np.ones(2)}
    checkpointer.save(1, {"a": shared, "b": shared})
    fresh = {"w": np.zeros(2)}
    target = {"a": fresh, "b": fresh}
    checkpointer.resume(into=target)
    assert target["a"] is target["b"] is fresh
    assert_same(np.ones(2), fresh["w"])


@pytest.mark.parametrize("overlap", ["same", "part"])
def test_arrays_that_share_memory_are_not_given_different_values(checkpointer, overlap):
    checkpointer.save(1, {"a": np.ones(4), "b": np.zeros(4 if overlap == "same" else 2)})
    memory = np.full(4, 7.0)
    target = {"a": memory, "b": memory if overlap == "same" else memory[1:3]}
    with pytest.raises(pitstop.StateMismatchError, match=r"b \(shares memory with a"):
        checkpointer.resume(into=target)
    assert_same(np.full(4, 7.0), memory)


@pytest.mark.parametrize("verify", [True, False])
def test_tied_arrays_take_what_was_saved_apart_but_alike(tmp_path, verify):
    # Without verify they took anything: nobody knew the checksums.
    pitstop.save(tmp_path / "alike", {"a": np.ones(4), "b": np.ones((2, 2))})
    pitstop.save(tmp_path / "different", {"a": np.ones(4), "b": np.full((2, 2), 2.0)})
    memory = np.zeros(4)
    target = {"a": memory, "b": memory.reshape(2, 2)}
    with pytest.raises(pitstop.StateMismatchError, match=r"b \(shares memory with a"):
        pitstop.restore(tmp_path / "different", into=target, verify=verify)
    assert_same(np.zeros(4), memory)
    pitstop.restore(tmp_path / "alike", into=target, verify=verify)
    assert_same(np.ones(4), memory)


@pytest.mark.parametrize("turned", [lambda memory: memory.T, lambda memory: memory[::-1, ::-1]])
def test_the_same_bytes_in_another_order_are_different_values(checkpointer, turned):
    # What was filled last won, in silence.
    values = np.arange(1.0, 5.0).reshape(2, 2)
    checkpointer.save(1, {"a": values, "b": values.copy()})
    memory = np.zeros((2, 2))
    with pytest.raises(pitstop.StateMismatchError, match="shares memory with"):
        checkpointer.resume(into={"a": memory, "b": turned(memory)})
    assert not memory.any()


def halves(whole):
    return {"whole": whole, "left": whole[:4], "right": whole[4:]}


@pytest.mark.parametrize(
    "target",
    [
        lambda memory: {"whole": np.zeros(8), "left": memory[:4], "right": memory[:4]},
        lambda memory: {"whole": memory, "left": memory[1:5], "right": np.zeros(4)},
        lambda memory: {"whole": memory, "left": memory[3::-1], "right": np.zeros(4)},
        lambda memory: {"whole": memory, "left": memory[4:], "right": memory[:4]},
    ],
    ids=["one_for_both", "shifted", "reversed", "exchanged"],
)
def test_views_of_one_array_are_not_given_the_values_of_others(checkpointer, target):
    # All of them were saved as one array, and so everything they shared was taken to be alike.
    checkpointer.save(1, halves(np.arange(1.0, 9.0)))
    memory = np.zeros(8)
    with pytest.raises(pitstop.StateMismatchError, match="shares memory with"):
        checkpointer.resume(into=target(memory))
    assert not memory.any()


def test_tied_arrays_are_not_given_to_arrays_that_overlap(checkpointer):
    tied = np.arange(1.0, 5.0)
    checkpointer.save(1, {"a": tied, "b": tied})
    memory = np.zeros(5)
    with pytest.raises(pitstop.StateMismatchError, match=r"b \(shares memory with a"):
        checkpointer.resume(into={"a": memory[:4], "b": memory[1:]})
    assert not memory.any()


@pytest.mark.parametrize(
    "whole",
    [
        np.zeros((4, 6)),
        np.zeros((4, 9))[:, :6],
        np.zeros((6, 4)).T,
        np.zeros((4, 6))[::-1, ::-1],
        np.zeros((8, 12))[::2, ::2],
        np.zeros((4, 6), ">f8"),
    ],
    ids=["same", "padded", "fortran", "reversed", "strided", "big_endian"],
)
def test_views_are_filled_where_they_share_memory_as_they_did(checkpointer, whole):
    def views(whole):
        return {
            "whole": whole,
            "again": whole,
            "row": whole[1],
            "columns": whole[:, 2:4],
            "turned": whole.T,
            "corner": whole[2:, ::-2],
            "even": whole[::2],
        }

    saved = views(np.arange(1.0, 25.0).reshape(4, 6))
    target = views(whole)
    checkpointer.save(1, saved)
    checkpointer.resume(into=target)
    for name, values in saved.items():
        np.testing.assert_array_equal(target[name], values, name)


def test_views_between_each_other_are_filled_with_other_gaps(checkpointer):
    # They share a stretch of memory, and not one byte of it.
    def columns(matrix):
        return {"first": matrix[:, 0], "second": matrix[:, 1]}

    values = np.arange(1.0, 9.0).reshape(4, 2)
    checkpointer.save(1, columns(values))
    matrix = np.zeros((4, 3))
    checkpointer.resume(into=columns(matrix))
    np.testing.assert_array_equal(matrix, np.column_stack([values, np.zeros(4)]))


def test_an_object_in_two_places_is_not_given_two_states(checkpointer):
    class Counter:
        def __init__(self, count):
            self.count = count

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]

    checkpointer.save(1, {"a": Counter(1), "b": Counter(2)})
    one = Counter(0)
    with pytest.raises(pitstop.StateMismatchError, match="the same object as a"):
        checkpointer.resume(into={"a": one, "b": one})
    assert one.count == 0


@pytest.mark.parametrize(
    ("saved", "target"),
    [
        (Pair(1, np.ones(2)), Pair(0, np.zeros(2))),
        ((1, 2), (0, 0)),
        (5, 3),
        (None, None),
    ],
    ids=["namedtuple", "tuple", "int", "None"],
)
def test_resume_refuses_what_cannot_be_filled_in_place(checkpointer, saved, target):
    # It returned the step, with the target as it was or half filled.
    checkpointer.save(1, saved)
    with pytest.raises(TypeError, match="put it into a dict"):
        checkpointer.resume(into=target)
    assert_same(saved, checkpointer.restore(into=target))


def test_only_that_matches_nothing_says_so(checkpointer):
    checkpointer.save(1, {"model": {"w": np.ones(2)}, "step": 1})
    for only in ["model", "model.boddy.*", ["model.*", "optimiser.*"]]:
        with pytest.raises(ValueError, match="matches no name"):
            checkpointer.restore(only=only)
    with pytest.raises(ValueError, match="only is empty"):
        checkpointer.restore(only=[])


def test_only_fills_nothing_that_has_no_place(checkpointer):
    # It added the entries to the target, which is not what filling means.
    checkpointer.save(1, {"m": {"w": np.ones(2), "x": np.ones(3)}})
    target = {"m": {"w": np.zeros(2)}}
    with pytest.raises(pitstop.StateMismatchError, match="x"):
        checkpointer.restore(into=target, only="m.*")
    assert_same({"m": {"w": np.zeros(2)}}, target)
    checkpointer.restore(into=target, only="m.w")
    assert_same(np.ones(2), target["m"]["w"])


def test_an_error_of_load_state_dict_says_whose_it_is(checkpointer):
    class Picky:
        def state_dict(self):
            return {"n": 1}

        def load_state_dict(self, state):
            raise LookupError("boom")

    checkpointer.save(1, {"optimizer": Picky()})
    with pytest.raises(LookupError, match="boom") as caught:
        checkpointer.resume(into={"optimizer": Picky()})
    assert "load_state_dict of optimizer" in caught.value.__notes__[0]


@pytest.mark.parametrize("where", ["dict", "list", "extra key"])
def test_a_target_that_holds_itself_is_refused(checkpointer, where):
    # It was walked through until the stack ran out, and the process died.
    checkpointer.save(1, {"a": np.ones(3)})
    loop = {}
    loop["loop"] = loop
    items = []
    items.append(items)
    target = {"dict": {"a": loop}, "list": {"a": items}, "extra key": {"a": np.zeros(3), "x": loop}}[where]
    with pytest.raises(ValueError, match="holds itself"):
        checkpointer.resume(into=target)


@pytest.mark.parametrize(
    "view",
    [
        lambda base: as_strided(base, (3,), (0,)),
        lambda base: as_strided(base, (3,), (4,)),
        lambda base: sliding_window_view(base, 3, writeable=True),
        lambda base: sliding_window_view(base, 3, writeable=True)[::-1, ::2].T,
    ],
    ids=["broadcast", "halves", "windows", "windows_turned"],
)
def test_a_target_whose_elements_share_memory_is_refused(checkpointer, view):
    # Elements that are one in memory took the value of the last of them, in silence.
    target = view(np.zeros(9))
    checkpointer.save(1, {"a": np.arange(1.0, target.size + 1).reshape(target.shape)})
    with pytest.raises(pitstop.StateMismatchError, match="share memory"):
        checkpointer.resume(into={"a": target})
    assert not target.any()


@pytest.mark.parametrize(
    "view",
    [
        lambda base: base[:, 1::2],
        lambda base: base[::-1, ::-2],
        lambda base: base.T[1:],
        lambda base: base.reshape(2, 2, 5).transpose(1, 2, 0),
        lambda base: sliding_window_view(base, 2, axis=1, writeable=True)[:, ::2],
    ],
    ids=["interleaved", "reversed", "transposed", "three_axes", "windows_side_by_side"],
)
def test_a_target_with_gaps_is_filled_and_nothing_between(checkpointer, view):
    base = np.zeros((4, 5))
    target = view(base)
    values = np.arange(1.0, target.size + 1).reshape(target.shape)
    checkpointer.save(1, {"a": values})
    assert checkpointer.resume(into={"a": target}) == 1
    assert_same(values, target)
    assert np.count_nonzero(base) == target.size
