"""What a manifest says of tensors is checked before torch believes it."""

import json
import sys

import numpy as np
import pitstop
import pytest
from forging import forged

pytestmark = pytest.mark.frameworks

KINDS = [
    "torch:float64",
    "torch:complex64",
    "torch:complex128",
    "torch:complex32",
    "torch:float16",
    "torch:float4_e2m1fn_x2",
    "torch:load",
    "torch:os.system",
    "torch:<c16",
    "jax:<f8",
    "jax:<c16",
    "jax:O",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(4,), (1,), (), (2, 2), (1000,)])
def test_a_tensor_reaches_no_further_than_its_bytes(tmp_path, kind, shape):
    """torch took the word of the manifest, and read and wrote beyond the memory of the tensor."""
    stored = np.full(shape, 1.5, dtype=np.float32)
    old, new = '"tensor":"a","kind":"numpy"', f'"tensor":"a","kind":{json.dumps(kind)}'
    path = forged(tmp_path / "forged", {"a": stored}, (old, new))
    for how in ({}, {"mmap": True}, {"framework": "torch"}, {"framework": "jax"}, {"framework": "numpy"}):
        try:
            back = pitstop.restore(path, **how)["a"]
        except (ValueError, TypeError):
            continue
        assert np.asarray(back).nbytes <= stored.nbytes


@pytest.mark.parametrize("strides", [[-1], [3], [0]])
def test_one_number_does_not_become_a_terabyte(tmp_path, strides):
    shape = [1 << 38] if strides == [0] else [4, 1 << 38]
    strides = strides if strides == [0] else [*strides, 0]
    view = {"dtype": "F32", "shape": shape, "strides": strides, "offset": 12}
    stored = np.zeros(16, dtype=np.float32)
    for kind in ("torch", "jax"):
        leaf = f'"kind":"{kind}","view":{json.dumps(view)}'
        path = forged(tmp_path / f"{kind}{strides[0]}", {"a": stored}, ('"kind":"numpy"', leaf))
        if (kind, strides) == ("torch", [0]):
            assert pitstop.restore(path)["a"].stride() == (0,)
            continue
        with pytest.raises(ValueError, match="copies"):
            pitstop.restore(path)


@pytest.mark.parametrize(
    "node",
    [
        '{"tag":"torch.dtype","value":"load"}',
        '{"tag":"torch.dtype","value":"__loader__"}',
        '{"tag":"torch.device","value":"planted"}',
        '{"tag":"torch.Size","value":{"tuple":["a"]}}',
        '{"tag":"torch.Parameter","value":1}',
        '{"tag":"torch.requires_grad","value":1}',
        '{"tag":"jax.key:planted","value":1}',
    ],
)
def test_a_name_of_torch_or_jax_is_what_it_should_be(tmp_path, node):
    path = forged(tmp_path / "forged", {"a": 12345}, ("12345", node))
    with pytest.raises((ValueError, TypeError, AttributeError, RuntimeError)):
        pitstop.restore(path)
    assert "planted" not in sys.modules
