"""What a library has to offer to be measured, and the list of those that do."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .workloads import State

REGISTRY: dict[str, type["Library"]] = {}


class Unavailable(Exception):
    """The library cannot be measured here; the message says why."""


def register(name: str, label: str) -> Callable[[type["Library"]], type["Library"]]:
    """Puts a class on the list."""

    def add(library: type["Library"]) -> type["Library"]:
        library.name, library.label = name, label
        REGISTRY[name] = library
        return library

    return add


class Library:
    """One way of saving a state. Its methods are called by one thread."""

    name: str  # on the command line
    label: str  # in tables
    modules: tuple[str, ...] = ()  # imported before anything is measured
    asynchronous = False  # the call that saves returns before the save has ended
    copied = True  # when it returns, all of the state has been copied or written
    durable = False  # a save that has ended survives a power cut
    fills = False  # `fill` is its own
    owns = True  # what `restore` returns lies in memory of its own, not in a mapped file
    same_restore: str | None = None  # a library whose files and restore are the same
    retains = False  # it removes older checkpoints itself
    maps = False  # `map` is its own
    memory_limit: int | None = None  # bytes that it was told to stay within, once it is open

    def load(self) -> None:
        """Imports what it needs."""
        try:
            for module in self.modules:
                importlib.import_module(module)
        except ImportError as error:
            raise Unavailable(f"{type(error).__name__}: {error}") from error

    def open(self, root: Path, state: State) -> None:
        """Makes the checkpointer for the directory."""
        self.root = root

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step lies."""
        return self.root / f"step-{step}"

    def prepare(self, state: State) -> None:
        """Called before a save and not measured: brings the state into the form that is the library's own."""

    def save(self, step: int, state: State) -> None:
        """The call that blocks training."""
        raise NotImplementedError

    def settle(self) -> None:
        """Called before training changes a tensor in place; returns when it may."""

    def done(self) -> bool:
        """Whether the save has ended."""
        return True

    def wait(self) -> None:
        """Waits for the end of the save, and raises its error."""

    def restore(self, step: int, like: State) -> Any:
        """The state in new memory."""
        raise NotImplementedError

    def fill(self, step: int, state: State) -> None:
        """The state into tensors that exist."""
        raise NotImplementedError

    def map(self, step: int) -> Any:
        """The state, read when it is touched."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends threads and processes."""
