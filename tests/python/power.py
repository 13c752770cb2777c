"""Power cuts on real file systems: at each moment a save was reported as committed, and at random ones."""

import dataclasses
import random
import tempfile
from pathlib import Path

import child
import volatile
import witness

SIZES = {"ext4": 192 << 20, "xfs": 320 << 20, "btrfs": 320 << 20}

# How it saves: each of these writes, links and removes in another way.
WAYS = {
    "recycling": {"last": 2, "incremental": False},
    "hard links": {"last": 3, "best": True},
    "overwriting": {"last": 2, "overwrite": True},
    "deleting": {"last": 4, "delete": True},
}


@dataclasses.dataclass
class Count(witness.Count):
    """What came of it."""

    cuts: int = 0
    at_commits: int = 0

    def __iadd__(self, other):
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    def __str__(self):
        return f"{self.cuts} power cuts ({self.at_commits} at the moment of a commit), {super().__str__()}"


def campaign(folder, kind, way, cuts, seed, **how):
    """Saves on a file system of `kind`, then cuts its power at each commit and at `cuts` other moments.

    Raises `volatile.NotPermittedError` where this cannot be tried.
    """
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        folder = Path(directory)
        disk = volatile.Disk(folder, kind, SIZES[kind])
        with disk.in_use() as mount:
            mode = witness.Mode(clock=str(disk.log), **WAYS[way] | how)
            process = witness.start(mount / "run", mode)
            code, output, errors = child.end(process)
            assert code == 0, errors
            over = disk.now()
        return _cut(folder, disk, mode, output.splitlines(), over, cuts, seed)


def _cut(folder, disk, mode, lines, over, cuts, seed):
    dice, count = random.Random(seed), Count()
    commits = [int(line.split()[-1]) for line in lines if line.startswith("committed")]
    others = [time for time in volatile.moments(disk, 3 * cuts, seed) if commits[0] <= time <= over][:cuts]
    replay = volatile.Replay(disk, folder)
    for time in sorted(commits * 2 + others):
        record = witness.Record()
        record.hear(lines, until=time)
        # Nothing that was not flushed survives, or all does, or some.
        image = replay.cut(time, dice, dice.choice([0, 0, 1, 0.5, dice.random()]))
        wrong, losses = _wake_up(image, disk.kind, folder / "woken", record, mode)
        count.cuts += 1
        count.note(f"cut at {time}", record, wrong, losses)
    replay.close()
    whole = witness.Record()
    whole.hear(lines)
    count.saves, count.at_commits = whole.saves, 2 * len(commits)
    return count


def _wake_up(image, kind, where, record, mode):
    """Judges what is there after the power cut, and that it can be used again."""
    try:
        with volatile.woken_up(image, kind, where):
            run = where / "run"
            wrong, losses = record.judge(run, mode)
            wrong += witness.use(run, record.found)
            return wrong, losses
    except volatile.CommandError as error:
        return [f"the file system itself: {error}"], []
