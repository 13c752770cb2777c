"""PyTorch: restored tensors own their memory, one by one."""

import gc
import io
import threading

import pytest
import torch

pytestmark = pytest.mark.frameworks


@pytest.fixture
def many():
    """Small tensors, as an optimizer has them, and large ones."""
    small = {f"small{i}": torch.arange(i + 1, dtype=torch.float32) for i in range(300)}
    return small | {"large": torch.arange(1 << 20), "flags": torch.ones(5, dtype=torch.bool)}


def test_each_tensor_has_a_storage_of_its_own(many, round_trip):
    for name, tensor in round_trip(many).items():
        assert tensor.untyped_storage().nbytes() == tensor.nbytes, name
        assert tensor.storage_offset() == 0
        assert tensor.data_ptr() % 64 == 0


def test_saving_one_tensor_writes_that_one_alone(many, round_trip):
    file = io.BytesIO()
    torch.save(round_trip(many)["small7"], file)
    assert file.tell() < 4096


def test_a_tensor_outlives_the_state_it_came_with(many, round_trip):
    kept = [round_trip(many)[f"small{i}"] for i in range(0, 300, 7)]
    gc.collect()
    for i, tensor in zip(range(0, 300, 7), kept, strict=True):
        tensor += 1
        assert torch.equal(tensor, many[f"small{i}"] + 1)


def test_a_tensor_may_end_on_any_thread(many, round_trip):
    restored = round_trip(many)
    thread = threading.Thread(target=restored.clear)
    thread.start()
    thread.join()
    assert not restored


def test_a_restored_tensor_works_as_any_other(round_trip):
    weight = round_trip({"w": torch.ones(3, 4)})["w"]
    weight.requires_grad_()
    (weight * 2).sum().backward()
    assert torch.equal(weight.grad, torch.full((3, 4), 2.0))
    assert weight.is_contiguous()
    assert weight.T.shape == (4, 3)
    weight.detach().share_memory_()
    assert torch.equal(weight, torch.ones(3, 4))
