"""Directories looked at closely, and disks that are full or read-only."""

import contextlib
import hashlib
import os
import subprocess
from pathlib import Path

import pitstop
import pytest

EVENTS = "events.jsonl"  # what a renderer leaves beside the checkpoints


def visible(directory):
    """Names in `directory` that `ls` shows, but that of the events."""
    names = {entry.name for entry in Path(directory).iterdir() if not entry.name.startswith(".")}
    return names - {EVENTS}


def hidden(directory):
    """Names in `directory` that `ls` does not show."""
    return {entry.name for entry in Path(directory).iterdir() if entry.name.startswith(".")}


def leftovers(directory):
    """Temporary names in `directory`."""
    return {entry.name for entry in Path(directory).iterdir() if entry.name.startswith(".tmp-")}


def files(directory):
    """All files below `directory`, in order."""
    return sorted(path for path in Path(directory).rglob("*") if path.is_file())


def everything(directory):
    """What lies below `directory`, down to contents and times, to prove that nothing changed."""
    found = {}
    for path in sorted(Path(directory).rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        found[str(path.relative_to(directory))] = (status.st_mode, status.st_ino, status.st_mtime_ns, content)
    return found


def whole_steps(run):
    """The committed steps, after proof that each one restores and that nothing half-written is in sight."""
    steps = [info.step for info in pitstop.checkpoints(run)]
    assert visible(run) == {f"step-{step}" for step in steps}
    for step in steps:
        pitstop.restore(run, step)
    return steps


def flip(path, position, mask=None):
    """Flips one bit of the byte at `position`; twice the same call puts it back."""
    with open(path, "r+b", buffering=0) as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ (mask or 1 << position % 8)]))


def rot(path, position):
    """Flips a bit as a disk does: nothing else of the file changes, nor the time of its last change."""
    before = path.stat()
    flip(path, position)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _command(*words):
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=30)


@contextlib.contextmanager
def small(directory, size):
    """A tmpfs of `size` mounted on `directory`."""
    directory.mkdir()
    mounted = _command("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory))
    if mounted.returncode != 0:
        pytest.skip(f"mounting a small file system is not permitted here: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        _command("umount", "--lazy", str(directory))


@contextlib.contextmanager
def read_only(directory):
    """Makes creating, renaming and removing names in `directory` fail, for root too."""
    if os.geteuid() != 0:
        mode = directory.stat().st_mode
        directory.chmod(0o555)
        undo = [lambda: directory.chmod(mode)]
    elif _command("chattr", "+i", str(directory)).returncode == 0:
        undo = [lambda: _command("chattr", "-i", str(directory))]
    elif _command("mount", "--bind", str(directory), str(directory)).returncode == 0:
        # A second mount of the same directory has no open files, so it can be switched to read-only.
        _command("mount", "-o", "remount,ro,bind", str(directory))
        undo = [lambda: _command("umount", "--lazy", str(directory))]
    else:
        pytest.skip("root here may neither set the immutable flag nor bind a directory read-only")
    try:
        with pytest.raises(OSError):  # the fault itself must be real
            (directory / "probe").mkdir()
        yield
    finally:
        for step in undo:
            step()


@contextlib.contextmanager
def replaced_by_a_file(directory):
    """Moves `directory` aside and puts a file in its place."""
    aside = directory.with_name(directory.name + "-aside")
    directory.rename(aside)
    directory.write_text("in the way")
    try:
        yield
    finally:
        directory.unlink()
        aside.rename(directory)
