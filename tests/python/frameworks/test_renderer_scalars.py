"""Scalars of PyTorch and JAX as values of metrics."""

import json

import jax
import jax.numpy as jnp
import pitstop
import pytest
import torch

pytestmark = pytest.mark.frameworks

SCALARS = {
    "torch": lambda: torch.tensor(0.5),
    "torch float64": lambda: torch.tensor(0.5, dtype=torch.float64),
    "torch bfloat16": lambda: torch.tensor(0.5, dtype=torch.bfloat16),
    "torch with a gradient": lambda: torch.tensor(0.25, requires_grad=True) * 2,
    "torch of one element": lambda: torch.full((1, 1), 0.5),
    "torch parameter": lambda: torch.nn.Parameter(torch.tensor(0.5)),
    "JAX": lambda: jnp.asarray(0.5),
    "JAX bfloat16": lambda: jnp.asarray(0.5, dtype=jnp.bfloat16),
    "JAX of one element": lambda: jnp.full((1,), 0.5),
    "JAX jitted": lambda: jax.jit(lambda x: x / 2)(jnp.asarray(1.0)),
}


@pytest.mark.parametrize("kind", SCALARS)
@pytest.mark.filterwarnings("error")
def test_a_scalar_is_a_number(run, kind):
    with pitstop.Renderer(directory=run) as screen:
        screen.log(metric=SCALARS[kind]())
    told = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [one["value"] for one in told if one["event"] == "numeric"] == [0.5]


@pytest.mark.parametrize(("value", "kind"), [(torch.zeros(2), "torch.Tensor"), (jnp.zeros(2), "ArrayImpl")])
def test_a_tensor_of_several_elements_is_refused_with_its_shape(value, kind):
    with pitstop.Renderer() as screen, pytest.raises(TypeError) as caught:
        screen.log(losses=value)
    message = str(caught.value)
    assert message.startswith('metric "losses" must be a single number, not a ')
    assert message.endswith("of shape [2]")
    assert kind in message
