"""How pitstop gets at the memory of tensors, and holds it while it reads."""

import gc
import json
import sys
from pathlib import Path

import child
import numpy as np
import pitstop
import pytest
import torch
import torch_kinds

pytestmark = pytest.mark.frameworks


PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch_kinds
torch_kinds.hide_exchange(sys.argv[2])
print(json.dumps(torch_kinds.outcomes(sys.argv[3:])))
"""


@pytest.mark.skipif(not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="of torch 2.10 and later")
@pytest.mark.parametrize(
    ("hidden", "modes"),
    [
        ("none", ["plain", "device", "inference"]),
        ("storage", ["plain", "device", "inference"]),
        ("version", ["plain"]),
        ("function", []),
    ],
)
def test_the_quick_way_to_look_at_tensors_and_the_slow_one_agree_on_every_kind(hidden, modes):
    slow = json.loads(child.run(PROGRAM, Path(torch_kinds.__file__).parent, hidden, *modes))
    assert json.loads(json.dumps(torch_kinds.outcomes(modes))) == slow


def test_kinds_that_only_look_like_plain_tensors_keep_their_values():
    found = torch_kinds.outcomes(["plain"])
    bits = torch.arange(48.0).neg().view(torch.uint8).tolist()
    for name in ("negated without gaps", "negated without history", "negated parameter"):
        assert found[f"{name}, plain"][-1] == bits, name
    conjugated = torch.view_as_real(torch_kinds.COMPLEX.conj().resolve_conj())
    assert found["conjugated, plain"][-1] == conjugated.view(torch.uint8).flatten().tolist()
    for name in (*torch_kinds.OUTGROWN, "torch.int4", "meta", "sparse", "quantized", "nested"):
        assert "Error" in found[f"{name}, plain"], name


def moved_by_data(tensor):
    tensor.data = torch.zeros(3)


def moved_by_set(tensor):
    tensor.set_(torch.zeros(3))


def moved_by_swap(tensor):
    torch.utils.swap_tensors(tensor, torch.zeros(3))


class Mover:
    """Gives a tensor other memory when it is asked for its state, and puts something else in the old."""

    def __init__(self, move, tensor):
        self.move, self.tensor = move, tensor

    def state_dict(self):
        self.move(self.tensor)
        gc.collect()
        self.noise = [torch.full((5000,), -1.0) for _ in range(50)]
        return {}

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize("move", [moved_by_data, moved_by_set, moved_by_swap])
@pytest.mark.parametrize("limit", [None, 1 << 10, 1 << 30])
def test_memory_that_a_tensor_gives_up_is_still_there_to_be_saved(tmp_path, move, limit):
    # Broke: an object that moved tensors when it was asked for its state, as one that swaps in averaged
    # weights may, had freed memory saved in their place.
    tensor = torch.arange(5000.0)
    expected = tensor.clone()
    with pitstop.AsyncCheckpointer(tmp_path / "run", memory_limit=limit) as checkpointer:
        checkpointer.save(1, {"tensor": tensor, "mover": Mover(move, tensor)})
        back = checkpointer.restore()["tensor"]
    assert torch.equal(back, expected)


def test_a_tensor_is_free_again_after_a_save_that_held_it(tmp_path):
    tensor = torch.arange(5000.0)
    with pitstop.AsyncCheckpointer(tmp_path / "run", memory_limit=1) as checkpointer:
        checkpointer.save(1, {"tensor": tensor, "array": tensor.clone()})
    tensor.resize_(10_000)
    assert sys.getrefcount(tensor) == 2


def test_the_tensor_behind_an_array_is_held_as_well(tmp_path):
    tensor = torch.arange(5000.0)
    array = tensor.numpy()
    with pitstop.AsyncCheckpointer(tmp_path / "run", memory_limit=1) as checkpointer:
        checkpointer.save(1, {"array": array, "mover": Mover(moved_by_set, tensor)})
        back = checkpointer.restore()["array"]
    np.testing.assert_array_equal(back, np.arange(5000, dtype=np.float32))
