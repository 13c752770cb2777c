"""What one process measures: one library, one workload, once."""

import gc
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import machine, ours, peers  # noqa: F401  (they fill the list of libraries)
from .libraries import REGISTRY, Library, Unavailable
from .loops import LOOPS, SAVES, Loop, cost
from .workloads import State, change_all, change_some, leaves, make, mapped, nbytes, tensors

# Bytes at most that are held between measurements: a cold restore fills the page cache and new memory.
RESERVE = 3 << 30
FRESH = ("partial", "growth")  # phases that begin with the first save of a checkpointer
GROWING_SAVES = 50
PARTIAL_SAVES = 6

now = time.perf_counter


class Measurement:
    """One library with one state, in a directory of their own."""

    def __init__(self, library: Library, state: State, root: Path, options: dict[str, Any]) -> None:
        self.library, self.state, self.root = library, state, root
        self.step = 0
        self.record: dict[str, Any] = {}
        self._reserve = machine.Reserve()
        self._reserved = min(2 * nbytes(state), RESERVE) if options["reserve"] else 0
        self._reserve.hold(self._reserved)
        self._saves, self._cold = options["saves"], options["cold"]

    def ready(self) -> None:
        """Brings memory and disk to rest right before something is measured: what it needs is free now."""
        gc.collect()
        if not self.library.retains:
            for entry in self.root.iterdir():
                if entry not in self._kept and not entry.name.startswith("."):
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        os.sync()
        self._reserve.release()

    @property
    def _kept(self) -> list[Path]:
        """The newest checkpoint, and the one that comes next."""
        return [self.library.path(step) for step in (self.step - 1, self.step)]

    def rest(self) -> None:
        """Holds what has become free, before the host takes it."""
        self._reserve.hold(self._reserved)

    def open(self) -> None:
        start = now()
        self.library.open(self.root, self.state)
        self.record.setdefault("setup", now() - start)
        self.record["memory_limit"] = self.library.memory_limit

    def save(self, change: Any = change_all, watch: bool = False) -> dict[str, float]:
        """One save without a loop: how long it blocks, until it is durable, its CPU time, and, if watched,
        the peak of the memory."""
        change(self.state)
        self.library.prepare(self.state)
        self.step += 1
        self.ready()
        sampler = machine.MachineMemory() if watch else None
        machine.start_peak()
        cpu, machine_cpu, start = machine.cpu_seconds(), machine.machine_cpu_seconds(), now()
        self.library.save(self.step, self.state)
        returned = now()
        self.library.wait()
        if not self.library.durable and self.library.path(self.step).exists():
            machine.sync(self.library.path(self.step))
        end = now()
        measured = {
            "stall": returned - start,
            "durable": end - start,
            "cpu": machine.cpu_seconds() - cpu,
            "machine_cpu": machine.machine_cpu_seconds() - machine_cpu,
        }
        if sampler:
            measured |= {"peak": machine.peak(), "machine_peak": sampler.peak()}
        self.rest()
        return measured

    def saves(self) -> None:
        """The first save with its memory, and some more."""
        self.ready()
        before, machine_before = machine.start_peak(), machine.MachineMemory().peak()
        self.open()
        opened = machine.peak()
        first, second = self.save(watch=True), self.save(watch=True)
        self.record["memory"] = max(opened, first["peak"], second["peak"]) - before
        self.record["machine_memory"] = max(first["machine_peak"], second["machine_peak"]) - machine_before
        self.record["first_stall"], self.record["first_durable"] = first["stall"], first["durable"]
        # The first saves of one that recycles have no old files to write over yet.
        skipped = 2 if self.library.retains else 0
        later = [second, *(self.save() for _ in range(self._saves + skipped - 1))]
        measured = later[skipped:]
        for figure in ("stall", "durable", "cpu", "machine_cpu"):
            self.record[figure + "s"] = [save[figure] for save in measured]

    def loops(self) -> None:
        """What a checkpoint costs each training loop."""
        self.record["extra"] = {}
        # Nothing runs beside a save that blocks to its end, so one loop tells all.
        for kind in LOOPS if self.library.asynchronous else LOOPS[:1]:
            loop = Loop(kind, self.state)
            each = []
            for _ in range(SAVES):
                change_all(self.state)
                self.library.prepare(self.state)
                self.step += 1
                each.append(cost(self.library, self.state, self.step, loop, self.ready))
                self.rest()
            self.record["extra"][kind] = {figure: [one[figure] for one in each] for figure in each[0]}

    def restores(self) -> None:
        """The newest checkpoint, in each way that the library has."""
        self.record["restores"], self.record["wrong"] = {}, {}
        ways = ["fresh"] + ["into"] * self.library.fills + ["mmap"] * self.library.maps
        for way in ways:
            for heat in ("warm", "cold") if self._cold and way != "mmap" else ("warm",):
                path = self.library.path(self.step)
                machine.warm(path) if heat == "warm" else self._cool(path)
                machine.trim_heap()
                self.ready()
                target = mapped(torch.zeros_like, self.state) if way == "into" else None
                start = now()
                result = self._restore(way, target)
                returned = now()
                _touch(result)
                self.record["restores"][f"{way}.{heat}"] = {
                    "returned": returned - start,
                    "touched": now() - start,
                }
                if heat == "warm":
                    self.record["wrong"][way] = _differences(self.state, result)
                del result, target
                self.rest()

    def _cool(self, path: Path) -> None:
        self.record["resident"] = max(machine.cool(path), self.record.get("resident", 0))

    def _restore(self, way: str, target: State | None) -> Any:
        if way == "into" and target is not None:
            self.library.fill(self.step, target)
            return target
        if way == "mmap":
            return self.library.map(self.step)
        return self.library.restore(self.step, self.state)

    def growth(self) -> None:
        """Resident memory from the second save to the last of many, which take no time to rest."""
        while self.step < GROWING_SAVES:
            change_all(self.state)
            self.library.prepare(self.state)
            self.step += 1
            self.library.save(self.step, self.state)
            self.library.wait()
            if self.step == 2:
                gc.collect()
                second = machine.resident()
        gc.collect()
        self.record["growth"] = machine.resident() - second

    def partial(self) -> None:
        """Saves of a state of which little changes."""
        self.save()
        each = []
        for _ in range(PARTIAL_SAVES - 1):
            before = {entry.stat().st_ino for entry in machine.files(self.library.path(self.step))}
            handed = machine.written()
            save = self.save(change_some)
            new = [entry.stat() for entry in machine.files(self.library.path(self.step))]
            save["new_bytes"] = sum(entry.st_size for entry in new if entry.st_ino not in before)
            save["written_bytes"] = machine.written() - handed
            each.append(save)
        self.record["partial"] = {figure: [save[figure] for save in each[1:]] for figure in each[0]}


def _touch(tree: Any) -> None:
    """Reads one byte of each page."""
    total = 0
    for _, leaf in leaves(tree):
        array = _bytes(leaf)
        if array is not None:
            total += int(array[:: os.sysconf("SC_PAGE_SIZE")].sum())


def _bytes(leaf: Any) -> np.ndarray | None:
    if hasattr(leaf, "__array__") and getattr(leaf, "nbytes", 0):
        return np.ascontiguousarray(np.asarray(leaf)).reshape(-1).view(np.uint8)
    return None


def _differences(expected: Any, found: Any) -> list[str]:
    """The first leaves, by name, that are not as they were saved; some libraries have a flat result."""
    by_name = {"/".join(path): leaf for path, leaf in leaves(found)}
    wrong = []
    for path, leaf in leaves(expected):
        other = by_name.get("/".join(path))
        if isinstance(leaf, torch.Tensor):
            same = other is not None and np.array_equal(_bytes(leaf), _bytes(other))
        else:
            same = other is not None and bool(np.asarray(leaf) == np.asarray(other))
        if not same:
            wrong.append("/".join(path))
    return wrong[:3]


def measure(options: dict[str, Any]) -> dict[str, Any]:
    """Runs the phases that `options` names; returns the record, with what went wrong in it."""
    record: dict[str, Any] = {key: options[key] for key in ("library", "workload", "round")}
    library = REGISTRY[options["library"]]()
    root = Path(tempfile.mkdtemp(prefix=f"{options['library']}-", dir=options["root"]))
    try:
        library.load()
        state = make(options["workload"], options["quick"])
        record["state_bytes"], record["tensors"] = nbytes(state), len(tensors(state))
        run = Measurement(library, state, root, options)
        run.record = record
        if options["phases"][0] != "saves":
            run.open()
        for phase in options["phases"]:
            if phase in FRESH:
                library.close()
                library = REGISTRY[options["library"]]()
                run = Measurement(library, state, root / phase, options)
                run.record = record
                run.root.mkdir()
                run.open()
            getattr(run, phase)()
        library.close()
    except Unavailable as error:
        record["unavailable"] = str(error)
    except Exception as error:
        record["error"] = f"{type(error).__name__}: {error}"[:300]
        record["traceback"] = traceback.format_exc()[-1500:]
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return record


def main() -> None:
    """`python -m comparison.process '{"library": ...}'` says that it is ready, waits for a line, and prints
    its record."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    torch.set_num_threads(1)
    print("ready", flush=True)
    sys.stdin.readline()
    record = measure(json.loads(sys.argv[1]))
    print(json.dumps(record), flush=True)
    os._exit(0)  # some libraries leave threads or processes behind that would not let it end


if __name__ == "__main__":
    main()
