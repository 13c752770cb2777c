"""SIGKILL at random moments of a run, over and over, each followed by a look at every bit that is left."""

import dataclasses
import random
import shutil
import signal
import time

import child
import disk
import witness


@dataclasses.dataclass
class Count(witness.Count):
    """What came of it."""

    kills: int = 0
    during_a_save: int = 0

    def __str__(self):
        return f"{self.kills} kills ({self.during_a_save} during a save), {super().__str__()}"


def mode_by(dice, nbytes):
    """One of the ways to save; every kind of write, link and removal gets its turn."""
    return witness.Mode(
        nbytes=nbytes,
        last=dice.choice([1, 2, 3]),
        best=dice.random() < 0.3,
        incremental=dice.random() < 0.6,
        deferred=dice.random() < 0.3,
        overwrite=dice.random() < 0.4,
        delete=dice.random() < 0.3,
        direct_io=dice.random() < 0.7,
        fsync=dice.random() < 0.8,
    )


def campaign(run, kills, nbytes, seed, report=lambda line: None):
    """Kills trainers of one run until `kills` of them died during a save, and returns what came of it."""
    dice, record, count = random.Random(seed), witness.Record(), Count()
    while count.during_a_save < kills:
        mode = mode_by(dice, nbytes)
        lines, in_flight = _kill_one(run, mode, dice)
        record.hear(lines)
        wrong, losses = record.judge(run, mode)
        wrong += [line for line in lines if line.startswith("wrong")]
        count.kills += 1
        count.during_a_save += in_flight
        count.saves = record.saves
        for problem in count.note(f"kill {count.kills}, {mode}", record, wrong, losses):
            report(problem)
        if count.kills % 20 == 0:
            report(str(count))
        record.settle()
    _assert_in_order(run, record)
    return count


def _kill_one(run, mode, dice):
    """Starts a trainer and kills it; returns what it said, and whether a save was in flight."""
    process = witness.start(run, mode)
    lines = child.read_until(process, "resumed")
    began, pace = time.monotonic(), 0.05
    for _ in range(dice.randint(1, 3)):
        lines += child.read_until(process, "saving")
        pace, began = time.monotonic() - began, time.monotonic()
    time.sleep(dice.random() * min(pace, 2.0))
    process.send_signal(signal.SIGKILL)
    # Not `communicate`, which passes over what was read ahead. A line cut off in the middle was not said.
    with process:
        output, errors = process.stdout.read(), process.stderr.read()
    assert process.returncode == -signal.SIGKILL, errors
    lines += [line for line in output.splitlines(keepends=True) if line.endswith("\n")]
    words = [line.split()[0] for line in lines]
    return lines, words.count("saving") > words.count("committed")


def _assert_in_order(run, record):
    """After all that the directory is an ordinary one: nothing hidden, and the next save works."""
    assert witness.use(run, record.committed) == []
    assert 10**6 in disk.whole_steps(run)
    shutil.rmtree(run)
