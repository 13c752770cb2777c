"""pitstop, in its ways of saving."""

from pathlib import Path
from typing import Any

from .libraries import Library, Unavailable, register
from .workloads import State, nbytes

# Of `memory_limit`, in bytes: well below the state.
LIMIT = 256 << 20
QUICK_LIMIT = 8 << 20


@register("pitstop", "**pitstop**")
class Pitstop(Library):
    """As it comes. Older checkpoints are removed from outside, so that every save writes new files."""

    modules = ("pitstop",)
    asynchronous = True
    durable = True
    fills = True
    maps = True

    def options(self, state: State) -> dict[str, Any]:
        """Of the checkpointer."""
        return {}

    def open(self, root: Path, state: State) -> None:
        import pitstop

        super().open(root, state)
        self.package = pitstop
        self.checkpointer = pitstop.AsyncCheckpointer(root, **self.options(state))

    def save(self, step: int, state: State) -> None:
        self.handle = self.checkpointer.save(step, state)

    def done(self) -> bool:
        return self.handle.done()

    def wait(self) -> None:
        self.handle.result()

    def restore(self, step: int, like: State) -> Any:
        return self.package.restore(self.root, step)

    def fill(self, step: int, state: State) -> None:
        self.package.restore(self.root, step, into=state)

    def map(self, step: int) -> Any:
        return self.package.restore(self.root, step, mmap=True)

    def close(self) -> None:
        self.checkpointer.close()


@register("pitstop_deferred", "**pitstop**, deferred")
class PitstopDeferred(Pitstop):
    """`save` returns before the copy; the loop waits for that before it changes a tensor."""

    copied = False
    same_restore = "pitstop"

    def load(self) -> None:
        super().load()
        import pitstop

        if "deferred" not in (pitstop.AsyncCheckpointer.save.__text_signature__ or ""):
            raise Unavailable("this pitstop has no deferred saves")

    def save(self, step: int, state: State) -> None:
        self.handle = self.checkpointer.save(step, state, deferred=True)

    def settle(self) -> None:
        self.handle.wait_snapshot()


@register("pitstop_recycled", "**pitstop**, `KeepLast(1)`")
class PitstopRecycled(Pitstop):
    """The files of the checkpoints that go are there for the next ones."""

    retains = True
    same_restore = "pitstop"

    def options(self, state: State) -> dict[str, Any]:
        import pitstop

        return {"retention": pitstop.KeepLast(1)}


@register("pitstop_limited", "**pitstop**, `memory_limit`")
class PitstopLimited(Pitstop):
    """Less memory than the state."""

    same_restore = "pitstop"

    def options(self, state: State) -> dict[str, Any]:
        self.memory_limit = LIMIT if nbytes(state) > 4 * LIMIT else QUICK_LIMIT
        return {"memory_limit": self.memory_limit}
