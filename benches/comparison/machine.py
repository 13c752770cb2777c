"""What is read from, and done to, the machine between measurements (Linux)."""

import ctypes
import mmap
import os
import platform
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)
_TICKS = os.sysconf("SC_CLK_TCK")


class Reserve:
    """Memory that is held between measurements, and let go right before each of them.

    A virtual machine gives pages that stay free for some seconds back to the host, and the first touch of one
    that is gone is 5 to 30 times slower. With a reserve every library meets pages that are there.
    """

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None

    def hold(self, nbytes: int) -> None:
        """Takes so much memory, if it holds none, and touches every page, on all cores at once."""
        if nbytes and not self._memory:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            self._memory = mmap.mmap(-1, nbytes, flags=flags)
            self._memory.madvise(mmap.MADV_HUGEPAGE)
            start = np.frombuffer(self._memory, dtype=np.uint8).ctypes.data
            cores = len(os.sched_getaffinity(0))
            part = nbytes // cores // (2 << 20) * (2 << 20)
            with ThreadPoolExecutor(cores) as pool:
                for core in range(cores):
                    pool.submit(_populate, start + core * part, part)

    def release(self) -> None:
        """Frees it."""
        if self._memory:
            self._memory.close()
            self._memory = None


def _populate(start: int, nbytes: int) -> None:
    populate_write = 23  # MADV_POPULATE_WRITE of Linux 5.14
    _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(nbytes), populate_write)


def trim_heap() -> None:
    """Gives freed memory back, so that a restore starts like one in a new process."""
    _LIBC.malloc_trim(0)


def resident() -> int:
    """Resident memory of this process, in bytes."""
    return _status("VmRSS")


def start_peak() -> int:
    """Starts the measurement of `peak`; resident memory now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def peak() -> int:
    """Largest resident memory since `start_peak`, in bytes."""
    return _status("VmHWM")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


_SAMPLER = """
import select, sys
def memory():
    with open("/proc/meminfo") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith(("AnonPages:", "Shmem:")))
top = memory()
print(flush=True)
while not select.select([sys.stdin], [], [], 0.01)[0]:
    top = max(top, memory())
print(top * 1024)
"""


class MachineMemory:
    """Anonymous and shared memory of the whole machine, sampled by a process of its own; in bytes."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", "-c", _SAMPLER]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._process.stdout.readline()  # it samples

    def peak(self) -> int:
        """The largest since the start; ends the sampling."""
        return int(self._process.communicate("\n")[0])


def cpu_seconds() -> float:
    """User and system time of this process, its children that have ended, and its living descendants."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(usage.ru_utime + usage.ru_stime for usage in used)
    parents, times = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            parents[int(entry.name)] = int(fields[1])
            times[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS
    here, family = os.getpid(), set()
    for process in parents:
        line = [process]
        while line[-1] in parents and line[-1] != here:
            line.append(parents[line[-1]])
        if line[-1] == here:
            family.update(line[:-1])
    return total + sum(times[process] for process in family)


def machine_cpu_seconds() -> float:
    """Busy time of all cores."""
    user, nice, system, _idle, _wait, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / _TICKS


def files(path: Path) -> list[Path]:
    """The files of a checkpoint, which is one file or a directory."""
    return [path] if path.is_file() else [entry for entry in path.rglob("*") if entry.is_file()]


def sync(path: Path) -> None:
    """Makes a checkpoint durable: its files, its directories, and the one it lies in."""
    folders = [path, *path.rglob("*")] if path.is_dir() else []
    for entry in [*files(path), *(folder for folder in folders if folder.is_dir()), path.parent]:
        handle = os.open(entry, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def warm(path: Path) -> None:
    """Reads a checkpoint into the page cache."""
    for file in files(path):
        with open(file, "rb", buffering=0) as reader:
            while reader.read(16 << 20):
                pass


def cool(path: Path) -> float:
    """Drops a checkpoint from the page cache; returns the share of its pages that stayed."""
    pages = stayed = 0
    for file in files(path):
        handle = os.open(file, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        length = os.fstat(handle).st_size
        if length:
            with mmap.mmap(handle, length, prot=mmap.PROT_READ) as view:
                bytes_ = np.frombuffer(view, dtype=np.uint8)
                each = np.zeros(-(-length // mmap.PAGESIZE), dtype=np.uint8)
                pointer = ctypes.c_void_p
                _LIBC.mincore(pointer(bytes_.ctypes.data), ctypes.c_size_t(length), pointer(each.ctypes.data))
                del bytes_
            pages += len(each)
            stayed += int((each & 1).sum())
        os.close(handle)
    return stayed / pages if pages else 0.0


def written() -> int:
    """Bytes that this process has handed to the kernel to write."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def describe(directory: Path) -> dict[str, str]:
    """The machine, for the head of a report."""
    processor = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(": ")[2]
            break
    memory = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    here = directory.resolve()
    inside = [mount for mount in mounts if here.is_relative_to(mount[1])]
    system = max(inside, key=lambda mount: len(mount[1]))[2] if inside else "unknown"
    return {
        "processor": f"{processor}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{memory / 2**30:.0f} GiB",
        "file system": system,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
