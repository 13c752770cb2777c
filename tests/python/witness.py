"""A trainer that says what it does before and after it does it, and a judge of what is left on disk.

The trainer runs in a process of its own that may end at any moment. What it said is evidence: a save that it
called committed must be there, unless retention or a deletion was to take it away.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import queue
import sys
import threading

import child
import disk
import known
import pitstop

PROGRAM = """
    import json, os, sys
    mode = json.loads(sys.argv[2])
    if not mode["direct_io"]:
        os.environ["PITSTOP_DIRECT_IO"] = "0"
    import witness
    witness.train(sys.argv[1], witness.Mode(**mode))
"""


@dataclasses.dataclass(frozen=True)
class Mode:
    """How a trainer saves."""

    nbytes: int
    saves: int | None = None  # it ends after so many, or never
    last: int = 2  # KeepLast of so many
    best: bool = False  # and the best one beside
    incremental: bool = True
    deferred: bool = False
    overwrite: bool = False  # every third save replaces the step before
    delete: bool = False  # every fourth time the oldest step is deleted
    direct_io: bool = True
    fsync: bool = True
    clock: str | None = None  # a file whose length is the time that it tells

    def retention(self):
        """The rule for the checkpointer."""
        rule = pitstop.KeepLast(self.last)
        return rule | pitstop.KeepBest("loss") if self.best else rule

    def keeps(self, steps):
        """What the rule keeps of these, said once more in other words."""
        ordered = sorted(steps)
        return {*ordered[-self.last :], *(sorted(ordered, key=loss)[:1] if self.best else [])}


def loss(step):
    """Goes up and down; no two steps have the same."""
    return (step * 7919 % 1009) + step / 1e6


def start(run, mode):
    """Starts a trainer and returns its process."""
    return child.start(PROGRAM, run, json.dumps(dataclasses.asdict(mode)))


def train(run, mode):
    """Resumes and saves until it is killed, or has made all its saves. Runs in the child."""

    def say(word, step, version):
        now = os.stat(mode.clock).st_size if mode.clock else 0
        os.write(sys.stdout.fileno(), f"{word} {step} {version} {now}\n".encode())

    def report():
        while (save := handed_over.get()) is not None:
            step, version, handle = save
            handle.result()
            say("committed", step, version)

    state = known.blank(mode.nbytes)
    handed_over = queue.SimpleQueue()
    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    with pitstop.AsyncCheckpointer(
        run, retention=mode.retention(), incremental=mode.incremental, fsync=mode.fsync
    ) as checkpointer:
        step, version = checkpointer.resume(into=state) or 0, max(state["version"], 0)
        if step and known.wrong(state):
            say("wrong", step, version)
        say("resumed", step, version)
        for number in itertools.count() if mode.saves is None else range(mode.saves):
            overwrite = mode.overwrite and step > 0 and number % 3 == 2
            step, version = (step, version + 1) if overwrite else (step + 1, 0)
            known.change(state, step, version)
            say("saving", step, version)
            handle = checkpointer.save(
                step,
                state,
                metrics={"loss": loss(step)},
                overwrite=overwrite,
                deferred=mode.deferred,
            )
            handed_over.put((step, version, handle))
            if mode.deferred:
                handle.wait_snapshot()
            steps = checkpointer.steps()
            if mode.delete and number % 4 == 3 and len(steps) > 1:
                say("deleting", steps[0], 0)
                with contextlib.suppress(pitstop.CheckpointNotFoundError):  # retention was quicker
                    checkpointer.delete(steps[0])
        handed_over.put(None)
        reporter.join()


@dataclasses.dataclass
class Record:
    """What is known of a run from what its trainers said."""

    committed: dict = dataclasses.field(default_factory=dict)  # step: newest version
    attempted: set = dataclasses.field(default_factory=set)  # (step, version)
    deleted: set = dataclasses.field(default_factory=set)  # steps
    found: dict = dataclasses.field(default_factory=dict)  # what the last judgement found, as `committed`
    saves: int = 0

    def hear(self, lines, until=None):
        """Takes down what was said up to the time `until`; whatever comes after did not happen."""
        for line in lines:
            word, *numbers = line.split()
            step, version, now = map(int, numbers)
            if until is not None and now > until:
                continue
            if word == "saving":
                self.saves += 1
                self.attempted.add((step, version))
                self.deleted.discard(step)
            elif word == "committed":
                self.committed[step] = version
            elif word == "deleting":
                self.deleted.add(step)

    def judge(self, run, mode):
        """Compares every checkpoint with what it must be, and returns what is wrong and what is lost."""
        wrong, found = [], {}
        for name in sorted(disk.visible(run)) if os.path.isdir(run) else []:
            step = int(name.removeprefix("step-"))
            try:
                state = pitstop.restore(run, step)
            except (pitstop.CheckpointError, OSError) as error:
                wrong.append(f"step {step}: {error}")
                continue
            names = known.wrong(state)
            if names or state["step"] != step or (step, state["version"]) not in self.attempted:
                wrong.append(f"step {step}: {names or state['note']}")
            found[step] = state["version"]
        self.found = found
        lost = [self._loss(step, found, mode) for step in sorted(self.committed)]
        return wrong, [loss for loss in lost if loss]

    def _loss(self, step, found, mode):
        version = self.committed[step]
        if step in found:
            older = found[step] < version
            return f"step {step} is there in version {found[step]}, not {version}" if older else None
        if step in self.deleted or step not in mode.keeps({*found, *self.deleted, step}):
            return None
        return f"step {step} is not there, but {sorted(found)}"

    def settle(self):
        """What the last judgement found counts as committed from here on, and nothing else does."""
        self.committed, self.deleted = dict(self.found), set()


def use(run, steps):
    """Opens a run that has these steps and saves once more; returns what is not in order."""
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        found, expected = checkpointer.steps(), sorted(steps)
        checkpointer.save(10**6, {"still": "usable"}).result()
    problems = [] if found == expected else [f"opened, it has {found}, not {expected}"]
    hidden = disk.hidden(run)
    return problems if hidden == {".lock"} else [*problems, f"left behind: {hidden}"]


@dataclasses.dataclass
class Count:
    """What came of many judgements."""

    saves: int = 0
    restored: int = 0
    losses: list = dataclasses.field(default_factory=list)
    wrong: list = dataclasses.field(default_factory=list)

    def note(self, when, record, wrong, losses):
        """Takes down what a judgement found, and returns it with the time."""
        wrong, losses = ([f"{when}: {problem}" for problem in problems] for problems in (wrong, losses))
        self.restored += len(record.found)
        self.wrong += wrong
        self.losses += losses
        return wrong + losses

    def __str__(self):
        return (
            f"{self.saves} saves, {self.restored} checkpoints compared to the bit: "
            f"{len(self.losses)} losses, {len(self.wrong)} wrong"
        )
