"""What is saved is the state at the moment `save` was called, whatever the caller does next."""

import array
import collections

import numpy as np
import pitstop
import pytest
from same import assert_same

SIZE = 4 << 20  # elements: 32 MiB, long enough in flight to be changed meanwhile


def test_an_array_changed_right_after_save_is_saved_as_it_was(checkpointer):
    weight = np.zeros(SIZE)
    handles = []
    for step in range(1, 6):
        weight[:] = step
        handles.append(checkpointer.save(step, {"model": {"w": weight}}))
        weight[:] = -step
    for handle in handles:
        assert (checkpointer.restore(handle.result().step)["model"]["w"] == handle.step).all()


@pytest.mark.parametrize(
    "view",
    [
        lambda base: base[::2],
        lambda base: base[::-1],
        lambda base: base.reshape(2, -1).T,
        lambda base: np.broadcast_to(base, (2, SIZE)),
        lambda base: base.astype(">f8"),
    ],
    ids=["strided", "reversed", "transposed", "broadcast", "big_endian"],
)
def test_a_view_changed_right_after_save_is_saved_as_it_was(checkpointer, view):
    base = np.arange(SIZE, dtype=np.float64)
    seen = view(base)
    expected = seen.copy()
    checkpointer.save(1, {"w": seen})
    base[:] = -1
    if seen.flags.writeable:
        seen[...] = -1
    np.testing.assert_array_equal(checkpointer.restore(1)["w"], expected)


def test_a_read_only_view_of_writable_memory_is_copied(checkpointer):
    """A read-only view was borrowed like an array that nobody can change; its base could."""
    base = np.arange(SIZE, dtype=np.float64)
    frozen = base.view()
    frozen.flags.writeable = False
    checkpointer.save(1, {"w": frozen})
    base[:] = -1
    assert_same(np.arange(SIZE, dtype=np.float64), checkpointer.restore(1)["w"])


def test_a_read_only_array_made_writable_again_is_saved_as_it_was(checkpointer):
    weight = np.arange(SIZE, dtype=np.float64)
    weight.flags.writeable = False
    checkpointer.save(1, {"w": weight})
    weight.flags.writeable = True
    weight[:] = -1
    assert_same(np.arange(SIZE, dtype=np.float64), checkpointer.restore(1)["w"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytearray(b"a" * SIZE),
        lambda: array.array("b", b"a" * SIZE),
        lambda: memoryview(bytearray(b"a" * SIZE)),
        lambda: memoryview(bytearray(b"a" * SIZE)).toreadonly(),
    ],
    ids=["bytearray", "array", "memoryview", "readonly_memoryview"],
)
def test_a_buffer_changed_right_after_save_is_saved_as_it_was(checkpointer, make):
    buffer = make()
    checkpointer.save(1, {"b": buffer})
    writable = buffer.obj if isinstance(buffer, memoryview) else buffer
    memoryview(writable).cast("B")[:] = b"z" * SIZE
    assert bytes(memoryview(checkpointer.restore(1)["b"]).cast("B")) == b"a" * SIZE


def test_a_bytearray_may_change_its_size_right_after_save(checkpointer):
    """An exported buffer kept the bytearray from growing: BufferError in the training loop."""
    buffer = bytearray(b"a" * SIZE)
    checkpointer.save(1, {"b": buffer})
    buffer.extend(b"more")
    buffer.clear()
    assert checkpointer.restore(1)["b"] == b"a" * SIZE


def test_containers_changed_right_after_save_are_saved_as_they_were(checkpointer):
    state = {
        "list": [1, [2, 3]],
        "dict": {"a": {"b": 1}},
        "deque": collections.deque([1]),
        "set": {1},
        "big": np.zeros(SIZE),
    }
    checkpointer.save(1, state)
    state["list"][1].append(4)
    state["dict"]["a"]["b"] = 2
    state["deque"].append(2)
    state["set"].add(2)
    state["new"] = 1
    del state["big"]
    expected = {"list": [1, [2, 3]], "dict": {"a": {"b": 1}}, "deque": collections.deque([1]), "set": {1}}
    assert_same(expected | {"big": np.zeros(SIZE)}, checkpointer.restore(1))


def test_the_last_reference_may_go_right_after_save(checkpointer):
    for step in range(1, 4):
        checkpointer.save(step, {"w": np.full(SIZE, step), "text": "x" * 1000})
        np.full(SIZE, -1)  # likely to get the memory that was just freed
    for step in range(1, 4):
        assert (checkpointer.restore(step)["w"] == step).all()


def test_a_state_dict_is_asked_once_and_before_save_returns(checkpointer):
    class Counter:
        asked = 0

        def state_dict(self):
            self.asked += 1
            return {"asked": self.asked}

        def load_state_dict(self, state):
            pass

    counter = Counter()
    checkpointer.save(1, {"counter": counter})
    assert counter.asked == 1
    checkpointer.wait()
    assert counter.asked == 1
    assert checkpointer.restore(1) == {"counter": {"asked": 1}}


def test_metrics_and_metadata_are_taken_when_save_is_called(checkpointer):
    metrics, metadata = {"loss": 0.5}, {"tags": ["a"]}
    handle = checkpointer.save(1, {"w": np.zeros(SIZE)}, metrics=metrics, metadata=metadata)
    metrics["loss"] = 9.0
    metadata["tags"].append("b")
    assert handle.result().metrics == {"loss": 0.5}
    assert checkpointer.info(1).metadata == {"tags": ["a"]}


def test_what_is_restored_does_not_change_the_checkpoint(checkpointer):
    checkpointer.save(1, {"w": np.ones(1000)}).result()
    back = checkpointer.restore(1)
    back["w"][:] = 5
    assert_same({"w": np.ones(1000)}, checkpointer.restore(1))
    mapped = checkpointer.restore(1, mmap=True)["w"]
    if mapped.flags.writeable:
        mapped[:] = 5
    assert_same({"w": np.ones(1000)}, pitstop.restore(checkpointer.info(1).path))


@pytest.mark.parametrize("limit", [None, 1])
def test_an_array_cannot_be_resized_while_its_memory_is_read_and_can_be_afterwards(run, limit):
    # Broke: an object that resized arrays when it was asked for its state had freed memory saved instead.
    refused = []

    class Resizer:
        def state_dict(self):
            for owner in (whole, viewed):
                with pytest.raises(ValueError, match="resize"):
                    owner.resize(1_000_000, refcheck=False)
                refused.append(owner)
            return {}

        def load_state_dict(self, state):
            pass

    whole, viewed = np.arange(1000.0), np.arange(1000.0)
    state = {"whole": whole, "view": viewed[10:][::2], "resizer": Resizer()}
    with pitstop.AsyncCheckpointer(run, memory_limit=limit) as checkpointer:
        checkpointer.save(1, state)
        back = checkpointer.restore()
    assert len(refused) == 2
    np.testing.assert_array_equal(back["whole"], whole)
    np.testing.assert_array_equal(back["view"], state["view"])
    whole.resize(2000, refcheck=False)
    viewed.resize(2000, refcheck=False)
