"""The state of random number generators, as an object that can be saved and filled."""

from __future__ import annotations

import ctypes
import importlib
import random
import struct
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from pitstop.errors import CheckpointWarning

__all__ = ["Rng"]

# Python's Mersenne Twister: 624 words, and the position among them.
_WORDS = struct.Struct("<625I")
_VERSION = 3

_Restore = Callable[[], None]
"""Puts one generator back; made only after everything was checked."""


class Rng:
    """The generators that a training run draws from, as one object with ``state_dict()``.

    It holds no state of its own: ``state_dict()`` reads the generators, ``load_state_dict()`` sets
    them, both at the moment of the call. Included are

    - Python's ``random``;
    - NumPy's global generator, if NumPy has been imported;
    - torch's generators, if torch has been imported: the CPU's, and each GPU's once the GPU is in use;
    - the generators given here, in this order.

    Args:
        *generators: Further ones: ``random.Random``, ``numpy.random.Generator``, ``BitGenerator`` or
            ``RandomState``, ``torch.Generator``.

    Raises:
        TypeError: One of them is of another type.

    Example:
        >>> shuffle = numpy.random.default_rng(0)
        >>> state = {"model": model, "rng": pitstop.Rng(shuffle)}
        >>> checkpointer.save(step, state)
    """

    def __init__(self, *generators: Any) -> None:
        for position, generator in enumerate(generators):
            if _kind(generator) is None:
                raise TypeError(_not_a_generator(generator, position))
        self._generators = generators

    def __repr__(self) -> str:
        return f"Rng({', '.join(map(repr, self._generators))})"

    def state_dict(self) -> dict[str, Any]:
        """What it takes to go on with the same numbers: plain values, and NumPy's arrays as they are.

        Returns:
            ``python``, ``numpy`` and ``torch``, as far as they are in use, and ``generators``, a list
            with an entry for each generator given. Nothing in it changes when numbers are drawn.
        """
        state: dict[str, Any] = {"python": _read_python(random)}
        numpy = _imported("numpy")
        if numpy is not None:
            state["numpy"] = numpy.random.get_state(legacy=False)
        torch = _imported("torch")
        if torch is not None:
            state["torch"] = {"cpu": _read_torch(torch.default_generator)} | _read_gpus(torch)
        state["generators"] = [_read(generator) for generator in self._generators]
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Sets the generators, bit by bit as they were.

        What was not captured, such as NumPy before it was imported, is left alone. A framework that was
        captured and has not been imported yet is imported. If there are fewer GPUs than there were, those
        that exist are set, and a ``CheckpointWarning`` names the others.

        Args:
            state: What ``state_dict()`` returned.

        Raises:
            ValueError: It does not fit the generators given, or is no such state. Nothing was set.
            ImportError: A framework was captured and cannot be imported. Nothing was set.
        """
        unknown = sorted(set(state) - {"python", "numpy", "torch", "generators"})
        if unknown or "python" not in state:
            what = f"holds {unknown[0]!r}" if unknown else "has no 'python'"
            raise ValueError(f"this is no state of pitstop.Rng, or one of a newer pitstop: it {what}")
        restore = self._plan_generators(state.get("generators", ()))
        restore.append(_plan_python(random, state["python"]))
        if "numpy" in state:
            restore.append(_plan_numpy(_require("numpy").random, state["numpy"]))
        if "torch" in state:
            restore += _plan_torch(_require("torch"), state["torch"])
        for step in restore:
            step()

    def _plan_generators(self, saved: Any) -> list[_Restore]:
        if len(saved) != len(self._generators):
            raise ValueError(
                f"Rng() was saved with {_count(len(saved))} and is restored with "
                f"{_count(len(self._generators))}; give it the same ones in the same order"
            )
        return [
            _plan(generator, entry, position)
            for position, (generator, entry) in enumerate(zip(self._generators, saved, strict=True))
        ]


def _count(n: int) -> str:
    return f"{n} generator" if n == 1 else f"{n} generators"


def _imported(name: str) -> Any:
    """The framework if the user has imported it; never imports it."""
    return sys.modules.get(name)


def _require(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = f"the state holds generators of {name}, which cannot be imported here: {error}"
        raise ImportError(message, name=name) from error


def _kind(generator: Any) -> str | None:
    """The name of a generator's type, or ``None`` if it is none."""
    # SystemRandom draws from the operating system: it has no state.
    if isinstance(generator, random.Random):
        return None if isinstance(generator, random.SystemRandom) else "random.Random"
    numpy = _imported("numpy")
    if numpy is not None:
        for name in ("Generator", "BitGenerator", "RandomState"):
            if isinstance(generator, getattr(numpy.random, name)):
                return f"numpy.random.{name}"
    torch = _imported("torch")
    if torch is not None and isinstance(generator, torch.Generator):
        return "torch.Generator"
    return None


def _not_a_generator(given: Any, position: int) -> str:
    kind = type(given)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    hint = "; give the generators one by one" if isinstance(given, list | tuple) else ""
    return (
        f"argument {position} of Rng() is a {name}, not a random.Random, numpy.random.Generator, "
        f"numpy.random.BitGenerator, numpy.random.RandomState or torch.Generator{hint}"
    )


def _read(generator: Any) -> dict[str, Any]:
    kind = _kind(generator)
    match kind:
        case "random.Random":
            return {"kind": kind, "state": _read_python(generator)}
        case "torch.Generator":
            return {"kind": kind, "device": generator.device.type, "state": _read_torch(generator)}
        case "numpy.random.RandomState":
            return {"kind": kind, "state": generator.get_state(legacy=False)}
        case "numpy.random.Generator":
            return {"kind": kind, "state": generator.bit_generator.state}
        case _:
            return {"kind": kind, "state": generator.state}


def _plan(generator: Any, saved: Any, position: int) -> _Restore:
    kind = _kind(generator)
    if not isinstance(saved, Mapping) or "kind" not in saved or "state" not in saved:
        raise ValueError(f"generator {position} of Rng() is damaged: it has no state")
    if kind != saved["kind"]:
        raise ValueError(f"generator {position} of Rng() was a {saved['kind']} and is now a {kind}")
    state = saved["state"]
    match kind:
        case "random.Random":
            return _plan_python(generator, state)
        case "torch.Generator":
            return _plan_torch_generator(generator, saved, position)
        case "numpy.random.RandomState":
            return _plan_numpy(generator, state, f"generator {position} of Rng()")
        case _:
            bits = generator.bit_generator if kind == "numpy.random.Generator" else generator
            _check_bit_generator(bits, state, f"generator {position} of Rng()")
            return lambda: setattr(bits, "state", state)


# Python


def _read_python(generator: Any) -> dict[str, Any]:
    version, words, gauss_next = generator.getstate()
    if version != _VERSION:
        raise TypeError(f"random.Random keeps its state in version {version}; version {_VERSION} is known")
    return {"words": _WORDS.pack(*words), "gauss_next": gauss_next}


def _plan_python(generator: Any, saved: Any) -> _Restore:
    try:
        words, gauss_next = _WORDS.unpack(saved["words"]), saved["gauss_next"]
    except (KeyError, TypeError, struct.error) as error:
        raise ValueError(f"the state of Python's random is damaged: {error}") from error
    return lambda: generator.setstate((_VERSION, words, gauss_next))


# NumPy


def _plan_numpy(target: Any, saved: Any, name: str = "numpy.random") -> _Restore:
    """Sets a ``RandomState``, or the global one where ``target`` is the module ``numpy.random``."""
    _check_bit_generator(_legacy_bits(target), saved, name)
    return lambda: target.set_state(saved)


def _legacy_bits(target: Any) -> Any:
    """The bit generator behind a ``RandomState`` or behind the module ``numpy.random``."""
    if hasattr(target, "get_bit_generator"):
        return target.get_bit_generator()
    return getattr(target, "_bit_generator", None)


def _check_bit_generator(bits: Any, saved: Any, name: str) -> None:
    if not isinstance(saved, Mapping) or "bit_generator" not in saved:
        raise ValueError(f"the state of {name} is damaged: it names no bit generator")
    own = type(bits).__name__
    if bits is not None and own != saved["bit_generator"]:
        raise ValueError(f"the bit generator of {name} was a {saved['bit_generator']} and is now a {own}")


# torch


def _read_torch(generator: Any) -> bytes:
    return _to_bytes(generator.get_state())


def _to_bytes(state: Any) -> bytes:
    """The bytes of a contiguous uint8 tensor on the CPU; without NumPy, which torch may lack."""
    return ctypes.string_at(state.data_ptr(), state.numel())


def _to_tensor(torch: Any, state: bytes) -> Any:
    # A copy that torch may write to, or it warns.
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def _read_gpus(torch: Any) -> dict[str, list[bytes]]:
    """The generators of all GPUs, by kind of GPU. A GPU that is not in use yet is not woken up for it."""
    states = {}
    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available() and module.is_initialized():
            count = module.device_count()
            states[kind] = [_to_bytes(module.get_rng_state(index)) for index in range(count)]
    if torch.backends.mps.is_available():
        states["mps"] = [_to_bytes(torch.mps.get_rng_state())]
    return states


def _plan_torch(torch: Any, saved: Any) -> list[_Restore]:
    if not isinstance(saved, Mapping) or "cpu" not in saved:
        raise ValueError("the state of torch's generators is damaged: it has no 'cpu'")
    cpu = _to_tensor(torch, saved["cpu"])
    restore: list[_Restore] = [lambda: torch.default_generator.set_state(cpu)]
    for kind in saved:
        if kind != "cpu":
            restore += _plan_gpus(torch, kind, saved[kind])
    return restore


def _plan_gpus(torch: Any, kind: str, saved: list[bytes]) -> list[_Restore]:
    if kind == "mps":
        count = int(torch.backends.mps.is_available())
    else:
        module = getattr(torch, kind, None)
        count = module.device_count() if module is not None and module.is_available() else 0
    states = [_to_tensor(torch, state) for state in saved[:count]]

    def restore() -> None:
        if count < len(saved):
            lost = ", ".join(f"{kind}:{index}" for index in range(count, len(saved)))
            message = f"the generators of {lost} were saved and are not restored: there is no such GPU here"
            warnings.warn(message, CheckpointWarning, stacklevel=3)
        for index, state in enumerate(states):
            if kind == "mps":
                torch.mps.set_rng_state(state)
            else:
                getattr(torch, kind).set_rng_state(state, index)

    return [restore]


def _plan_torch_generator(generator: Any, saved: Mapping[str, Any], position: int) -> _Restore:
    device = generator.device.type
    if device != saved.get("device"):
        before = saved.get("device")
        raise ValueError(
            f"generator {position} of Rng() was a torch.Generator on {before} and is now on {device}"
        )
    state = _to_tensor(_imported("torch"), saved["state"])
    return lambda: generator.set_state(state)
