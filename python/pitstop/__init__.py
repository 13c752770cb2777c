"""pitstop: an asynchronous training checkpointer."""

from pitstop._native import (
    Decision,
    Interrupter,
    KeepAll,
    KeepBest,
    KeepEvery,
    KeepFor,
    KeepLast,
    Retention,
)
from pitstop._rng import Rng

__all__ = [
    "Decision",
    "Interrupter",
    "KeepAll",
    "KeepBest",
    "KeepEvery",
    "KeepFor",
    "KeepLast",
    "Retention",
    "Rng",
]
