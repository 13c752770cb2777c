"""What can go wrong, as exceptions.

Each is a ``CheckpointError`` and, where there is one, the built-in exception that it stands for.
"""

from __future__ import annotations

__all__ = [
    "CallbackError",
    "CheckpointError",
    "CheckpointNotFoundError",
    "CheckpointWarning",
    "CorruptCheckpointError",
    "DeleteError",
    "DirectoryLockedError",
    "SaveError",
    "StateMismatchError",
    "StepExistsError",
    "TrainingKilled",
    "UnsupportedTypeError",
]


class CheckpointError(Exception):
    """Base of everything that pitstop raises by itself."""


class SaveError(CheckpointError):
    """A save failed. Every older checkpoint is as it was.

    ``__cause__`` holds the ``OSError``, if there was one. Of a save in the background the message names the
    step.
    """


class DeleteError(CheckpointError):
    """A deletion failed. ``__cause__`` holds the ``OSError``, if there was one."""


class CallbackError(CheckpointError):
    """A restore was given up by its caller before the answer came."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no such checkpoint, or none at all."""


class StepExistsError(CheckpointError, FileExistsError):
    """The step was saved before; pass ``overwrite=True`` to replace it."""


class DirectoryLockedError(CheckpointError, BlockingIOError):
    """Another checkpointer writes to this directory.

    Attributes:
        pid: Its process, or ``None`` if that could not be read.
    """

    pid: int | None = None


class UnsupportedTypeError(CheckpointError, TypeError):
    """The state holds an object that cannot be saved.

    The message says where, such as ``state["lr"][0]: function``.
    """


class CorruptCheckpointError(CheckpointError):
    """A checkpoint is not what was saved.

    Attributes:
        path: The checkpoint, or the file in it.
        tensor: The tensor that is damaged, or ``None`` if it is something else.
    """

    path: str = ""
    tensor: str | None = None


class StateMismatchError(CheckpointError, ValueError):
    """What was saved does not fit what is to be filled, or the template ``like``. Nothing was touched.

    Attributes:
        missing: Names that are to be filled, or in the template, and not in the checkpoint.
        unexpected: Names that are in the checkpoint and have no place to go.
        mismatched: Names that differ, each with what was saved and what it does not fit.
    """

    missing: list[str]
    unexpected: list[str]
    mismatched: list[str]

    def __init__(
        self,
        message: str = "",
        missing: list[str] | None = None,
        unexpected: list[str] | None = None,
        mismatched: list[str] | None = None,
    ) -> None:
        super().__init__(message)
        self.missing = missing or []
        self.unexpected = unexpected or []
        self.mismatched = mismatched or []


class TrainingKilled(BaseException):
    """The user killed the training. No ``except Exception`` swallows it, as with ``KeyboardInterrupt``."""

    def __init__(self, message: str = "Killing training from user input.") -> None:
        super().__init__(message)


class CheckpointWarning(UserWarning):
    """Something was passed over: a damaged checkpoint, or a generator that is not there any more."""
