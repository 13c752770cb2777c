"""A block device that remembers: every write and every flush, in order, so that power can be cut afterwards.

Run as a program it is a file system in user space with a single file, which keeps a log of what is done to
it; a loop device on that file is the disk. A flush of the device arrives as an fsync of the file. What was
written since the last flush may or may not be there after a power cut.
"""

import contextlib
import ctypes
import errno
import os
import random
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

# --- the server: just enough of the FUSE protocol for one regular file -------------------------------------

GETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT, FALLOCATE = (
    3,
    14,
    15,
    16,
    17,
    18,
    20,
    25,
    26,
    43,
)
UNANSWERED = {2, 36, 42}  # FORGET, INTERRUPT, BATCH_FORGET
REQUEST = struct.Struct("<IIQQIIIHH")
ANSWER = struct.Struct("<IiQ")
LARGEST = 1 << 20

# A record of the log: what, offset, length; after a write come its bytes.
RECORD = struct.Struct("<cQQ")
WROTE, ZEROED, FLUSHED = b"w", b"z", b"f"


class Server:
    """Serves `image` as the file `target`, and writes down in `log` what is done to it."""

    def __init__(self, target, image, log):
        self.image = os.open(image, os.O_RDWR)
        self.log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.size = os.fstat(self.image).st_size
        self.failing = f"{log}.failing"
        self.device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.device},rootmode=100600,user_id=0,group_id=0,max_read={LARGEST}"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"volatile", os.fsencode(target), b"fuse", 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "mounting a file system in user space")

    def serve(self):
        """Answers until the file system is unmounted."""
        while True:
            try:
                request = os.read(self.device, LARGEST + 4096)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                if error.errno == errno.ENODEV:
                    return
                raise
            _, operation, unique, *_ = REQUEST.unpack_from(request)
            if operation in UNANSWERED:
                continue
            try:
                code, answer = 0, self.answer(operation, request[REQUEST.size :])
            except OSError as error:
                code, answer = -error.errno, b""
            os.write(self.device, ANSWER.pack(ANSWER.size + len(answer), code, unique) + answer)

    def answer(self, operation, body):
        """What is said to one request."""
        if operation == INIT:
            major, minor, readahead, _ = struct.unpack_from("<IIII", body)
            flags = 1 << 0 | 1 << 5 | 1 << 22  # ASYNC_READ, BIG_WRITES, MAX_PAGES
            return struct.pack(
                "<IIIIHHIIHHI28x",
                major,
                min(minor, 31),
                readahead,
                flags,
                16,
                12,
                LARGEST,
                1,
                LARGEST // 4096,
                0,
                0,
            )
        if operation == GETATTR:
            return struct.pack(
                "<QIIQQQQQQIIIIIIIIII",
                3600,
                0,
                0,
                1,
                self.size,
                self.size // 512,
                *[0] * 6,
                0o100600,
                1,
                0,
                0,
                0,
                4096,
                0,
            )
        if operation == OPEN:
            return struct.pack("<QII", 1, 1, 0)  # past the page cache
        if operation == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            return os.pread(self.image, size, offset)
        if operation in (WRITE, FSYNC, FALLOCATE) and os.path.exists(self.failing):
            raise OSError(errno.EIO, "as asked for")
        if operation == WRITE:
            _, offset, size = struct.unpack_from("<QQI", body)
            self.note(WROTE, offset, size, body[40 : 40 + size])
            return struct.pack("<II", size, 0)
        if operation == FALLOCATE:
            _, offset, length, _ = struct.unpack_from("<QQQI", body)
            self.note(ZEROED, offset, length)
            return b""
        if operation == FSYNC:
            self.note(FLUSHED, 0, 0)
            return b""
        if operation == STATFS:
            return struct.pack("<5Q10I", *[0] * 5, 4096, 255, 4096, *[0] * 7)
        if operation in (RELEASE, FLUSH):
            return b""
        raise OSError(errno.ENOSYS, "not needed here")

    def note(self, what, offset, length, content=b""):
        """Does it to the image, and writes it down in one go."""
        apply(self.image, what, offset, length, content)
        os.write(self.log, RECORD.pack(what, offset, length) + content)


def apply(image, what, offset, length, content):
    """Does to a file what a record says."""
    if what == WROTE:
        os.pwrite(image, content, offset)
    elif what == ZEROED:
        for at in range(offset, offset + length, LARGEST):
            os.pwrite(image, bytes(min(LARGEST, offset + length - at)), at)


# --- the disk -----------------------------------------------------------------------------------------------


class NotPermittedError(Exception):
    """This machine does not allow it, or lacks a program for it."""


class CommandError(Exception):
    """A program did not end well."""


def command(*words):
    """Runs a program to its end, which must be a good one, and returns what it wrote."""
    words = list(map(str, words))
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    except FileNotFoundError:
        raise CommandError(f"there is no {words[0]}") from None
    if done.returncode != 0:
        raise CommandError(f"{' '.join(words)}: {(done.stderr + done.stdout).strip()}")
    return done.stdout.strip()


MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-K"),
}
CHECK = {
    "ext4": ("e2fsck", "-f", "-n"),
    "xfs": ("xfs_repair", "-n"),
    "btrfs": ("btrfs", "check", "--readonly"),
}


@contextlib.contextmanager
def loop(backing):
    """A loop device on the file `backing`."""
    device = command("losetup", "--show", "-f", backing)
    try:
        yield device
    finally:
        command("losetup", "-d", device)


@contextlib.contextmanager
def mounted(device, where, *options):
    """What is on `device`, mounted on the directory `where`."""
    Path(where).mkdir(exist_ok=True)
    command("mount", *options, device, where)
    try:
        yield Path(where)
    finally:
        command("umount", where)


@contextlib.contextmanager
def plain(folder, kind, size, make=(), options=()):
    """An ordinary file system of `kind` in a file, mounted; raises `NotPermittedError` where it cannot be."""
    backing = folder / "backing"
    with open(backing, "wb") as file:
        file.truncate(size)
    with contextlib.ExitStack() as stack:
        try:
            device = stack.enter_context(loop(backing))
            command(*MAKE[kind], *make, device)
            stack.enter_context(mounted(device, folder / "mounted", *options))
        except CommandError as error:
            raise NotPermittedError(str(error)) from error
        yield folder / "mounted", device


class Disk:
    """A disk that is being used, with all that was ever done to it."""

    def __init__(self, folder, kind, size):
        self.kind, self.size = kind, size
        self.target, self.image, self.log = (folder / name for name in ("target", "image", "log"))
        self.mount = folder / "mounted"

    @contextlib.contextmanager
    def in_use(self):
        """The disk with an empty file system on it, mounted."""
        with contextlib.ExitStack() as stack:
            try:
                self._set_up(stack)
            except (CommandError, OSError) as error:
                raise NotPermittedError(str(error)) from error
            yield self.mount

    def _set_up(self, stack):
        for program in (MAKE[self.kind][0], CHECK[self.kind][0]):
            if shutil.which(program) is None:
                raise CommandError(f"there is no {program}")
        self.target.touch()
        with open(self.image, "wb") as image:
            image.truncate(self.size)
        stack.enter_context(self._served())
        device = stack.enter_context(loop(self.target))
        command(*MAKE[self.kind], device)
        stack.enter_context(mounted(device, self.mount))

    @contextlib.contextmanager
    def _served(self):
        server = subprocess.Popen(
            [sys.executable, __file__, self.target, self.image, self.log], stderr=subprocess.PIPE, text=True
        )
        try:
            deadline = time.monotonic() + 20
            while self.target.stat().st_size != self.size:
                if server.poll() is not None:
                    raise CommandError(server.stderr.read().strip().splitlines()[-1])
                assert time.monotonic() < deadline, "the server does not start"
                time.sleep(0.01)
            yield
        finally:
            subprocess.run(["umount", str(self.target)], capture_output=True, timeout=60, check=False)
            server.kill()
            server.wait()
            server.stderr.close()

    @contextlib.contextmanager
    def failing(self):
        """Meanwhile every write and every flush fails."""
        sign = Path(f"{self.log}.failing")
        sign.touch()
        try:
            yield
        finally:
            sign.unlink()

    def now(self):
        """The length of the log in bytes: the time, as far as the disk knows."""
        return self.log.stat().st_size if self.log.exists() else 0


class Replay:
    """Makes a disk anew as it was at some time, from its log. Times must not go back."""

    def __init__(self, disk, folder):
        self.disk, self.folder = disk, folder
        self.durable = folder / "durable"
        with open(self.durable, "wb") as image:
            image.truncate(disk.size)
        self.log = open(disk.log, "rb")  # noqa: SIM115
        self.flushed = 0  # the durable image is that of this time

    def cut(self, time, dice, survive):
        """The disk after a power cut at `time`, as an image of its own.

        Of what was not flushed each write survives with the probability `survive`; of those that do not,
        some are torn: their first pages are there.
        """
        self.log.seek(self.flushed)
        pending = []
        with open(self.durable, "r+b", buffering=0) as durable:
            for record, end in self._records(time):
                pending.append(record)
                if record[0] == FLUSHED:
                    for done in pending:
                        apply(durable.fileno(), *done)
                    pending, self.flushed = [], end
        image = self.folder / "image"
        command("cp", "--sparse=always", self.durable, image)
        with open(image, "r+b", buffering=0) as file:
            for what, offset, length, content in pending:
                if dice.random() < survive:
                    apply(file.fileno(), what, offset, length, content)
                elif what == WROTE and survive > 0 and length > 4096:
                    pages = dice.randrange(length // 4096)
                    apply(file.fileno(), what, offset, pages * 4096, content[: pages * 4096])
        return image

    def _records(self, time):
        """The records from where the log stands up to `time`, each with the time of its end."""
        while (at := self.log.tell()) < time:
            what, offset, length = RECORD.unpack(self.log.read(RECORD.size))
            content = self.log.read(length) if what == WROTE else b""
            assert self.log.tell() > at
            if self.log.tell() <= time:
                yield (what, offset, length, content), self.log.tell()

    def close(self):
        """Closes the log."""
        self.log.close()


@contextlib.contextmanager
def woken_up(image, kind, where):
    """The file system on `image`, as it is when the machine starts again: its journal is replayed."""
    with loop(image) as device:
        with mounted(device, where):
            yield where
        # All that the kernel says it has repaired must be in order.
        command(*CHECK[kind], device)


def moments(disk, count, seed):
    """So many times at which power may be cut, between records and in the middle of none."""
    ends = []
    with open(disk.log, "rb") as log:
        while header := log.read(RECORD.size):
            what, _, length = RECORD.unpack(header)
            log.seek(length if what == WROTE else 0, os.SEEK_CUR)
            ends.append(log.tell())
    return random.Random(seed).sample(ends, min(count, len(ends)))


if __name__ == "__main__":
    Server(*sys.argv[1:]).serve()
