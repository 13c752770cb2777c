"""pitstop: an asynchronous training checkpointer.

Saves the state of a training run without stopping it, and gives back exactly what was saved.

Example:
    >>> state = {"model": model, "optimizer": optimizer, "rng": pitstop.Rng()}
    >>> with pitstop.AsyncCheckpointer("runs/exp1", retention=pitstop.KeepLast(3)) as ckpt:
    ...     start = ckpt.resume(into=state) or 0
    ...     for step in range(start + 1, 1001):
    ...         train_step()
    ...         if step % 100 == 0:
    ...             ckpt.save(step, state)
"""

from pitstop._native import (
    AsyncCheckpointer,
    CheckpointInfo,
    Decision,
    EveryMinutes,
    EverySteps,
    Interrupter,
    Interval,
    KeepAll,
    KeepBest,
    KeepEvery,
    KeepFor,
    KeepLast,
    Overhead,
    Renderer,
    Retention,
    SaveHandle,
    SaveStats,
    Stats,
    __version__,
    checkpoints,
    restore,
    save,
)
from pitstop._rng import Rng
from pitstop.errors import (
    CallbackError,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointWarning,
    CorruptCheckpointError,
    DeleteError,
    DirectoryLockedError,
    SaveError,
    StateMismatchError,
    StepExistsError,
    TrainingKilled,
    UnsupportedTypeError,
)

__all__ = [
    "AsyncCheckpointer",
    "CallbackError",
    "CheckpointError",
    "CheckpointInfo",
    "CheckpointNotFoundError",
    "CheckpointWarning",
    "CorruptCheckpointError",
    "Decision",
    "DeleteError",
    "DirectoryLockedError",
    "EveryMinutes",
    "EverySteps",
    "Interrupter",
    "Interval",
    "KeepAll",
    "KeepBest",
    "KeepEvery",
    "KeepFor",
    "KeepLast",
    "Overhead",
    "Renderer",
    "Retention",
    "Rng",
    "SaveError",
    "SaveHandle",
    "SaveStats",
    "StateMismatchError",
    "Stats",
    "StepExistsError",
    "TrainingKilled",
    "UnsupportedTypeError",
    "__version__",
    "checkpoints",
    "restore",
    "save",
]
