"""What pitstop sets out to reach, and whether a run found it so."""

from collections.abc import Iterator
from dataclasses import dataclass

from .libraries import REGISTRY
from .loops import LOOPS
from .results import Results

# What the growth of a process may be without being one: its heap and the kernel's counters wobble by so much.
WOBBLE = 1 << 20
MARGIN = 16 << 20  # bytes that a process may take beyond its `memory_limit`


@dataclass(frozen=True)
class Bar:
    """One figure, what it is compared with, and how they relate."""

    figure: str
    rule: str
    measured: str = ""
    against: str = ""
    ratio: float | None = None
    held: bool | None = None

    @property
    def mark(self) -> str:
        """In words."""
        return {None: "not measured", True: "held", False: "missed"}[self.held]


def seconds(value: float | None) -> str:
    """For people: 1.23 s, 45.6 ms."""
    if value is None:
        return "–"
    return f"{value:.2f} s" if abs(value) >= 0.995 else f"{value * 1e3:.3g} ms"


def size(value: float | None) -> str:
    """For people: 1.49 GB, 268 MB."""
    if value is None:
        return "–"
    return f"{value / 1e9:.2f} GB" if abs(value) >= 1e9 else f"{value / 1e6:.3g} MB"


def _at_most(figure, factor, value, other, name, show=seconds, strictly=False) -> Bar:
    """`value` is at most `factor` times `other`."""
    rule = f"< {factor:g} x {name}" if strictly else f"<= {factor:g} x {name}"
    if value is None or other is None:
        return Bar(figure, rule, show(value), show(other))
    held = value < factor * other if strictly else value <= factor * other
    ratio = value / other if other > 0 else None
    return Bar(figure, rule, show(value), show(other), ratio, held)


def _within(figure, limit, value, show=seconds) -> Bar:
    """`value` is at most a fixed one."""
    ratio = value / limit if value is not None and limit > 0 else None
    held = None if value is None else value <= limit
    return Bar(figure, f"<= {show(limit)}", show(value), show(limit), ratio, held)


def bars(results: Results) -> Iterator[Bar]:
    """All of them, in the order of the table."""
    yield from _stalls(results)
    yield from _loops(results)
    yield from _durable(results)
    yield from _small(results)
    yield from _partial(results)
    yield from _memory(results)
    yield from _restores(results)
    peers = results.peers(asynchronous=True)
    value = results.figure("pitstop", "W1", "cpus")
    yield _against_best(results, "CPU time of one background save, W1", 0.3, value, peers, "W1", "cpus")


def _against_best(results, figure, factor, value, peers, workload, *path, strictly=False) -> Bar:
    best = results.best(peers, workload, *path)
    other, name = best if best else (None, None)
    named = f"best peer ({REGISTRY[name].label})" if name else "best peer"
    return _at_most(figure, factor, value, other, named, strictly=strictly)


def _stalls(results: Results) -> Iterator[Bar]:
    copying = results.figure("pitstop", "W1", "stalls")
    figure = "stall, W1, copying"
    yield _at_most(figure, 1.5, copying, results.limit("copy"), "copy limit")
    yield _against_best(results, figure, 0.4, copying, results.peers(copied=True), "W1", "stalls")
    deferred = results.figure("pitstop_deferred", "W1", "stalls")
    figure = "stall, W1, deferred"
    yield _within(figure, 0.005, deferred)
    yield _against_best(results, figure, 0.3, deferred, results.peers(copied=False), "W1", "stalls")
    yield _deferred_by_size(results)


def _deferred_by_size(results: Results) -> Bar:
    """No larger than what was seen at the smaller size, its scatter included."""
    small, large = (
        [
            stall
            for record in results.of("pitstop_deferred", f"size-{nbytes}")
            for stall in record.get("stalls", [])
        ]
        for nbytes in (400_000_000, 4_000_000_000)
    )
    value = results.figure("pitstop_deferred", "size-4000000000", "stalls")
    other = max(small) if small and large else None
    return _at_most("stall, deferred, 4 GB", 1, value, other, "largest stall at 400 MB")


def _loops(results: Results) -> Iterator[Bar]:
    for library, label, factor in (("pitstop_deferred", "deferred", 0.5), ("pitstop", "copying", 0.8)):
        for loop in LOOPS:
            path = ("extra", loop, "extra")
            value = results.figure(library, "W1", *path)
            figure = f"extra time of a {loop} loop, W1, {label}"
            yield _against_best(results, figure, factor, value, results.peers(), "W1", *path)


def _durable(results: Results) -> Iterator[Bar]:
    value, limit = results.figure("pitstop", "W1", "durables"), results.limit("write_new")
    figure = "call to durable, W1, new files"
    yield _at_most(figure, 1.15, value, limit, "disk limit")
    yield _against_best(results, figure, 1, value, results.peers(), "W1", "durables", strictly=True)
    value = results.figure("pitstop_recycled", "W1", "durables")
    yield _at_most("call to durable, W1, recycled files", 0.75, value, limit, "disk limit")


def _small(results: Results) -> Iterator[Bar]:
    value = results.figure("pitstop", "W2", "stalls")
    peers = results.peers(asynchronous=True)
    yield _against_best(results, "stall, W2", 0.5, value, peers, "W2", "stalls")
    value = results.figure("pitstop", "W2", "durables")
    yield _against_best(results, "call to durable, W2", 0.6, value, results.peers(), "W2", "durables")


def _partial(results: Results) -> Iterator[Bar]:
    state = results.figure("pitstop", "W5", "state_bytes")
    counted = [results.figure("pitstop", "W5", "partial", key) for key in ("new_bytes", "written_bytes")]
    value = None if None in counted else max(counted)
    yield _at_most("bytes written, W5, 2 % changed", 0.04, value, state, "state", show=size)
    value = results.figure("pitstop", "W5", "partial", "durable")
    full = results.figure("pitstop", "W5", "durables")
    yield _at_most("call to durable, W5, 2 % changed", 0.15, value, full, "a full save")


def _memory(results: Results) -> Iterator[Bar]:
    value, state = (results.figure("pitstop", "W1", key) for key in ("memory", "state_bytes"))
    yield _at_most("peak extra memory, W1, copying", 1.05, value, state, "state", show=size)
    value, limit = (results.figure("pitstop_limited", "W1", key) for key in ("memory", "memory_limit"))
    bound = None if limit is None else limit + MARGIN
    yield _at_most("peak extra memory, W1, `memory_limit`", 1, value, bound, "(limit + 16 MiB)", show=size)
    value = results.figure("pitstop_recycled", "W1", "growth")
    held = None if value is None else value <= WOBBLE
    yield Bar("growth of memory, W1, save 2 to 50", "0, give or take 1 MiB", size(value), "0", None, held)


def _restores(results: Results) -> Iterator[Bar]:
    def restore(library: str, way: str, until: str) -> float | None:
        return results.figure(library, "W1", "restores", way, until)

    path = ("restores", "into.warm", "returned")
    value = results.figure("pitstop", "W1", *path)
    figure = "restore, W1, in place, warm, verified"
    yield _against_best(results, figure, 1.3, value, results.peers(fills=True), "W1", *path)
    path = ("restores", "fresh.warm", "touched")
    value = results.figure("pitstop", "W1", *path)
    figure = "restore, W1, new memory, warm, verified, every page touched"
    yield _against_best(results, figure, 0.5, value, results.peers(owns=True), "W1", *path)
    limit = results.limit("read_buffered", "read_direct")
    for way, label, until in (("into", "in place", "returned"), ("fresh", "new memory", "touched")):
        value = restore("pitstop", f"{way}.cold", until)
        yield _at_most(f"restore, W1, {label}, cold, verified", 1.15, value, limit, "disk limit")
    yield _within("restore, W1, `mmap=True`", 0.020, restore("pitstop", "mmap.warm", "returned"))
