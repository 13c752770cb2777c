import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, SupportsFloat, SupportsIndex, TypeAlias, TypeVar, final, overload

from typing_extensions import disjoint_base

__all__ = [
    "AsyncCheckpointer",
    "CheckpointInfo",
    "Decision",
    "Interrupter",
    "KeepAll",
    "KeepBest",
    "KeepEvery",
    "KeepFor",
    "KeepLast",
    "Memory",
    "Retention",
    "SaveHandle",
    "checkpoints",
    "restore",
    "save",
]

__version__: str

_T = TypeVar("_T")

_Path: TypeAlias = str | os.PathLike[str]
_Mode: TypeAlias = Literal["min", "max"]
_OnBusy: TypeAlias = Literal["wait", "skip", "raise"]
_Framework: TypeAlias = Literal["numpy", "torch", "jax"]
_Metrics: TypeAlias = Mapping[str, SupportsFloat | SupportsIndex]
_Patterns: TypeAlias = str | Sequence[str]
_Choose: TypeAlias = Callable[[list[CheckpointInfo]], Iterable[SupportsIndex | CheckpointInfo]]

@final
class AsyncCheckpointer:
    def __new__(
        cls,
        directory: _Path,
        *,
        retention: Retention | _Choose | None = None,
        interrupter: Interrupter | None = None,
        on_busy: _OnBusy = "wait",
        memory_limit: SupportsIndex | None = None,
        verify: bool = True,
        incremental: bool = True,
        fsync: bool = True,
    ) -> Self: ...
    def save(
        self,
        step: SupportsIndex,
        state: object,
        *,
        metrics: _Metrics | None = None,
        metadata: object = None,
        overwrite: bool = False,
    ) -> SaveHandle: ...
    @overload
    def restore(
        self,
        step: SupportsIndex | None = None,
        *,
        into: None = None,
        like: object = None,
        only: _Patterns | None = None,
        framework: _Framework | None = None,
        mmap: bool = False,
    ) -> Any: ...
    @overload
    def restore(
        self,
        step: SupportsIndex | None = None,
        *,
        into: _T,
        like: None = None,
        only: _Patterns | None = None,
        framework: None = None,
        mmap: Literal[False] = False,
    ) -> _T: ...
    def resume(self, *, into: object) -> int | None: ...
    def latest(self) -> int | None: ...
    def best(self, metric: str, mode: _Mode = "min") -> int | None: ...
    def steps(self) -> list[int]: ...
    def checkpoints(self) -> list[CheckpointInfo]: ...
    def info(self, step: SupportsIndex) -> CheckpointInfo: ...
    def delete(self, step: SupportsIndex) -> None: ...
    def wait(self, timeout: float | None = None) -> None: ...
    def check(self) -> None: ...
    def plan(self) -> list[Decision]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> Literal[False]: ...

@final
class SaveHandle:
    @property
    def step(self) -> int: ...
    @property
    def skipped(self) -> bool: ...
    def done(self) -> bool: ...
    def wait_snapshot(self) -> None: ...
    def result(self, timeout: float | None = None) -> CheckpointInfo: ...
    def progress(self) -> tuple[int, int]: ...

@final
class CheckpointInfo:
    @property
    def step(self) -> int: ...
    @property
    def path(self) -> Path: ...
    @property
    def created(self) -> datetime: ...
    @property
    def metrics(self) -> dict[str, float]: ...
    @property
    def metadata(self) -> Any: ...
    @property
    def nbytes(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Interrupter:
    def __new__(cls) -> Self: ...
    @classmethod
    def on_signals(cls, signals: Iterable[SupportsIndex] | None = None) -> Self: ...
    def stop(self, reason: str | None = None) -> None: ...
    def should_stop(self) -> bool: ...
    def reset(self) -> None: ...
    def get_message(self) -> str | None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@disjoint_base
class Retention:
    def __or__(self, other: Retention | _Choose, /) -> Retention: ...
    def __ror__(self, other: _Choose, /) -> Retention: ...
    def __and__(self, other: Retention | _Choose, /) -> Retention: ...
    def __rand__(self, other: _Choose, /) -> Retention: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object) -> Self: ...

@final
class KeepLast(Retention):
    def __new__(cls, n: SupportsIndex) -> Self: ...
    @property
    def n(self) -> int: ...

@final
class KeepBest(Retention):
    def __new__(cls, metric: str, mode: _Mode = "min", n: SupportsIndex = 1) -> Self: ...
    @property
    def metric(self) -> str: ...
    @property
    def mode(self) -> _Mode: ...
    @property
    def n(self) -> int: ...

@final
class KeepEvery(Retention):
    def __new__(cls, steps: SupportsIndex) -> Self: ...
    @property
    def steps(self) -> int: ...

@final
class KeepFor(Retention):
    def __new__(cls, seconds: float) -> Self: ...
    @property
    def seconds(self) -> float: ...

@final
class KeepAll(Retention):
    def __new__(cls) -> Self: ...

@final
class Decision:
    @property
    def step(self) -> int: ...
    @property
    def keep(self) -> bool: ...
    @property
    def reasons(self) -> tuple[str, ...]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Memory:
    def __len__(self) -> int: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...

@overload
def restore(
    path: _Path,
    step: SupportsIndex | None = None,
    *,
    into: None = None,
    like: object = None,
    only: _Patterns | None = None,
    framework: _Framework | None = None,
    mmap: bool = False,
    verify: bool = True,
) -> Any: ...
@overload
def restore(
    path: _Path,
    step: SupportsIndex | None = None,
    *,
    into: _T,
    like: None = None,
    only: _Patterns | None = None,
    framework: None = None,
    mmap: Literal[False] = False,
    verify: bool = True,
) -> _T: ...
def checkpoints(path: _Path) -> list[CheckpointInfo]: ...
def save(
    path: _Path,
    state: object,
    *,
    step: SupportsIndex | None = None,
    metrics: _Metrics | None = None,
    metadata: object = None,
    overwrite: bool = False,
    fsync: bool = True,
) -> CheckpointInfo: ...
