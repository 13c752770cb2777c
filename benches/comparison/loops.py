"""Training loops, and what a checkpoint costs them."""

import time
from collections.abc import Callable
from statistics import median

import torch

from .libraries import Library
from .workloads import State, nbytes, tensors

LOOPS = ("coarse", "fine", "mutating")
SHARES = 64
SAVES = 2  # of each loop in a process
BASE_SECONDS = 0.8  # for which a loop runs without a save, before and after each
AFTER_SECONDS = 1.0  # for which it goes on after the save has ended
LIMIT_SECONDS = 120.0

now = time.perf_counter


class Loop:
    """Something that computes, iteration after iteration."""

    def __init__(self, kind: str, state: State) -> None:
        width = 224 if kind == "fine" else 1024
        self._products = 100 if kind == "fine" else 1
        self._a, self._b, self._out = (torch.randn(width, width) for _ in range(3))
        self._shares = _shares(state) if kind == "mutating" else []
        self._count = 0
        self.before_change: Callable[[], None] | None = None

    def iteration(self) -> None:
        for _ in range(self._products):
            torch.mm(self._a, self._b, out=self._out)
        if self._shares:
            if self.before_change:
                self.before_change()
                self.before_change = None
            for part in self._shares[self._count % SHARES]:
                part.mul_(1.0)  # every byte is read and written; its value stays
        self._count += 1

    def run(self) -> float:
        """Runs alone for a while; median time of an iteration, in seconds."""
        times, start = [], now()
        before = start
        while before - start < BASE_SECONDS:
            self.iteration()
            after = now()
            times.append(after - before)
            before = after
        return median(times)


def _shares(state: State) -> list[list[torch.Tensor]]:
    """The state cut into parts of equal bytes."""
    total = nbytes(state)
    shares: list[list[torch.Tensor]] = [[] for _ in range(SHARES)]
    done = 0
    for tensor in tensors(state):
        for part in tensor.view(-1).split(max(1, total // SHARES // tensor.element_size())):
            shares[min(SHARES - 1, done * SHARES // total)].append(part)
            done += part.numel() * part.element_size()
    return shares


def cost(
    library: Library, state: State, step: int, loop: Loop, ready: Callable[[], None]
) -> dict[str, float]:
    """Saves while the loop runs. Seconds: `extra` as defined for the package, and what it is made of.

    `ready` is called just before the save."""
    before = loop.run()
    ready()
    start = now()
    library.save(step, state)
    returned = now()
    loop.before_change = library.settle
    ended = returned if library.done() else None
    iterations = 0
    while ended is None or now() - ended < AFTER_SECONDS:
        loop.iteration()
        iterations += 1
        if ended is None and library.done():
            ended = now()
        if now() - start > LIMIT_SECONDS:
            raise TimeoutError("the save has not ended")
    stop = now()
    library.wait()
    base = (before + loop.run()) / 2  # processors drift: neither alone is that of the time between
    return {
        "extra": stop - start - iterations * base,
        "stall": returned - start,
        "ended": ended - start,
        "iterations": iterations,
        "iteration": base,
    }
