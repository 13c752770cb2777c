"""The states that are saved."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

State = dict[str, Any]

# Normal numbers, as weights are: they do not compress. Tensors are scaled stretches of it.
_BLOCK: list[torch.Tensor] = []


def _tensor(shape: Iterable[int], seed: int) -> torch.Tensor:
    if not _BLOCK:
        _BLOCK.append(torch.randn(4 << 20, generator=torch.Generator().manual_seed(1)) * 0.02)
    block = _BLOCK[0]
    out = torch.empty(tuple(shape))
    flat = out.view(-1)
    start, offset = 0, seed * 7919 % (len(block) // 2)
    while start < len(flat):
        length = min(len(flat) - start, len(block) - offset)
        scale = 1 + (seed * 31 + start) % 1009 * 1e-4
        torch.mul(block[offset : offset + length], scale, out=flat[start : start + length])
        start, offset = start + length, 0
    return out


def _gpt(layers: int, width: int, vocabulary: int, context: int) -> State:
    """A GPT and the state of its Adam: three tensors for each parameter."""
    shapes = {"wte.weight": (vocabulary, width), "wpe.weight": (context, width)}
    for layer in range(layers):
        shapes[f"h.{layer}.attn.qkv.weight"] = (3 * width, width)
        shapes[f"h.{layer}.attn.proj.weight"] = (width, width)
        shapes[f"h.{layer}.mlp.fc.weight"] = (4 * width, width)
        shapes[f"h.{layer}.mlp.proj.weight"] = (width, 4 * width)
    model = {name: _tensor(shape, 3 * i) for i, (name, shape) in enumerate(shapes.items())}
    moments = {
        i: {
            "step": 1000.0 + i % 3,
            "exp_avg": _tensor(shape, 3 * i + 1),
            "exp_avg_sq": _tensor(shape, 3 * i + 2),
        }
        for i, shape in enumerate(shapes.values())
    }
    group = {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "fused": 0}
    groups = [{**group, "params": list(range(len(shapes)))}]
    return {
        "model": model,
        "optimizer": {"state": moments, "param_groups": groups},
        "step": 1000,
        "epoch": 1.5,
    }


def _many(count: int) -> State:
    """Tensors of 1 to 4 KB."""
    names = (f"blocks.{i // 20}.p{i % 20}" for i in range(count))
    return {"model": {name: _tensor((256 + i * 37 % 769,), i) for i, name in enumerate(names)}, "step": 1000}


def _equal(count: int, nbytes: int) -> State:
    """So many tensors, so many bytes in all."""
    elements = max(1, nbytes // count // 4)
    return {"model": {f"t{i:06d}": _tensor((elements,), i) for i in range(count)}, "step": 1000}


# Name: the state, and a small one in its place with --quick.
WORKLOADS: dict[str, tuple[Callable[[], State], Callable[[], State]]] = {
    # 150 tensors, 1.49 GB.
    "W1": (lambda: _gpt(12, 768, 50257, 1024), lambda: _gpt(2, 256, 2000, 128)),
    # 20,000 tensors, 51 MB.
    "W2": (lambda: _many(20_000), lambda: _many(1_000)),
    # 100 tensors of 10 MB.
    "W5": (lambda: _equal(100, 1_048_576_000), lambda: _equal(100, 20_000_000)),
}

SIZES = (1_000_000, 8_000_000, 64_000_000, 400_000_000, 1_500_000_000, 4_000_000_000)
COUNTS = (1, 10, 100, 1_000, 10_000, 100_000)
SWEPT_BYTES = 256_000_000  # of all tensors together, while their number changes
QUICK_SIZES, QUICK_COUNTS, QUICK_BYTES = SIZES[:3], COUNTS[:4], 16_000_000


def points(workload: str, quick: bool) -> list[str]:
    """The workloads that a name on the command line stands for."""
    if workload == "sizes":
        return [f"size-{nbytes}" for nbytes in (QUICK_SIZES if quick else SIZES)]
    if workload == "counts":
        return [f"count-{count}" for count in (QUICK_COUNTS if quick else COUNTS)]
    if workload not in WORKLOADS:
        raise SystemExit(f"no workload {workload!r}; there are {', '.join(WORKLOADS)}, sizes, counts")
    return [workload]


def make(workload: str, quick: bool) -> State:
    """The state of a workload."""
    kind, _, number = workload.partition("-")
    if kind == "size":
        return _equal(100, int(number))
    if kind == "count":
        return _equal(int(number), QUICK_BYTES if quick else SWEPT_BYTES)
    return WORKLOADS[kind][quick]()


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and value of everything in it that is no container."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*path, str(key)))
    elif isinstance(tree, (list, tuple)):
        for i, value in enumerate(tree):
            yield from leaves(value, (*path, str(i)))
    else:
        yield path, tree


def tensors(tree: Any) -> list[torch.Tensor]:
    """Its tensors, in order."""
    return [leaf for _, leaf in leaves(tree) if isinstance(leaf, torch.Tensor)]


def nbytes(tree: Any) -> int:
    """Size of its tensors, in bytes."""
    return sum(math.prod(tensor.shape) * tensor.element_size() for tensor in tensors(tree))


def mapped(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """The same tree, with each tensor replaced."""
    if isinstance(tree, dict):
        return {key: mapped(function, value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(mapped(function, value) for value in tree)
    return function(tree) if isinstance(tree, torch.Tensor) else tree


def change_all(state: State) -> None:
    """Changes one number in every tensor, in place, so that none of them is as it was saved."""
    for tensor in tensors(state):
        tensor.view(-1)[0] += 1


def change_some(state: State) -> None:
    """Changes two tensors of W5 in place."""
    for name in ("t000003", "t000057"):
        state["model"][name].add_(1)
