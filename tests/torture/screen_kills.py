#!/usr/bin/env python3
"""Kills training runs through their screen during their saves, 100 times, in a real pseudo-terminal.

python tests/torture/screen_kills.py --kills 100 --megabytes 40

After each kill the terminal must be as it was, what was printed must have reached it, and each checkpoint
that is left must be right to the last bit; then the run is resumed.
"""

import argparse
import dataclasses
import itertools
import os
import queue
import random
import re
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "screen"))

import known
import pitstop
import witness
from terminal import Terminal

KILLED = "TrainingKilled: Killing training from user input."
STOPPING = "Stopping training from user input."


@dataclasses.dataclass
class Count(witness.Count):
    """What came of it."""

    during_a_save: dict = dataclasses.field(default_factory=lambda: dict.fromkeys(KILLS, 0))
    kills: int = 0
    broken: list = dataclasses.field(default_factory=list)

    def __str__(self):
        ways = ", ".join(f"{count} by {way}" for way, count in self.during_a_save.items())
        during = sum(self.during_a_save.values())
        return (
            f"{self.kills} kills ({during} during a save: {ways}), {super().__str__()}, "
            f"{len(self.broken)} broken terminals"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100, help="so many of them during a save")
    parser.add_argument("--megabytes", type=int, default=40, help="size of the state")
    parser.add_argument(
        "--seed", default=str(time.time_ns()), help="to repeat the same moments, as far as can be"
    )
    parser.add_argument("--directory", help="where to write; default: where temporary files go")
    parser.add_argument("--train", nargs=2, metavar=("RUN", "SAID"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    mode = witness.Mode(nbytes=options.megabytes * 10**6)
    if options.train:
        return train(*options.train, mode)
    print(f"screen kills: seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="pitstop-screen-") as directory:
        count = campaign(Path(directory), options.kills, mode, random.Random(options.seed))
    print(f"kills of runs with {options.megabytes} MB of state: {count}")
    return 1 if count.losses or count.wrong or count.broken else 0


def train(run, said, mode):
    """Saves at every step until it is killed, and writes down what it does. Runs in the terminal."""
    record = os.open(said, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(word, step):
        os.write(record, f"{word} {step} 0 0\n".encode())

    def report():
        while (handle := handed_over.get()) is not None:
            say("committed", handle.result().step)

    state = known.blank(mode.nbytes)
    handed_over = queue.SimpleQueue()
    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        with pitstop.AsyncCheckpointer(run, retention=mode.retention()) as checkpointer:
            start = checkpointer.resume(into=state) or 0
            say("wrong" if start and known.wrong(state) else "resumed", start)
            # It looks at no interrupter: nothing but a kill ends it.
            with pitstop.Renderer(step=start, checkpointer=checkpointer, plain=False) as screen:
                for step in screen.track(itertools.count(start + 1)):
                    known.change(state, step)
                    say("saving", step)
                    handed_over.put(checkpointer.save(step, state))
                    print(f"printed {step}", flush=True)
                    screen.log(loss=witness.loss(step))
    finally:
        handed_over.put(None)
        reporter.join()


def campaign(directory, kills, mode, dice):
    """Kills one run again and again until `kills` of them hit a save, and returns what came of it."""
    run, said = directory / "run", directory / "said"
    record, count = witness.Record(), Count()
    while sum(count.during_a_save.values()) < kills:
        way = dice.choices(list(KILLS), weights=[2, 1, 1])[0]
        said.write_text("")
        broken, in_flight = kill(run, said, mode, way, dice)
        lines = said.read_text().splitlines()
        record.hear(lines)
        wrong, losses = record.judge(run, mode)
        wrong += [line for line in lines if line.startswith("wrong")]
        count.kills += 1
        count.during_a_save[way] += in_flight
        count.saves = record.saves
        when = f"kill {count.kills}, by {way}"
        broken = [f"{when}: {problem}" for problem in broken]
        count.broken += broken
        for problem in count.note(when, record, wrong, losses) + broken:
            print(problem, flush=True)
        if count.kills % 10 == 0:
            print(count, flush=True)
        record.settle()
    count.wrong += witness.use(run, record.committed)
    return count


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to kill a run."""

    first: str  # is typed
    shown: str  # until this is on the screen; it may take as long as it likes
    then: str | int  # is typed, or the signal that is sent, in the middle of a save
    code: int  # what the process ends with
    says: str  # what is on the terminal afterwards


KILLS = {
    "q k": Way("q", "Stop the training?", "k", 1, KILLED),
    "Ctrl-C twice": Way("\x03", STOPPING, "\x03", 1, KILLED),
    "SIGTERM": Way("", "", signal.SIGTERM, -signal.SIGTERM, ""),
}


def kill(run, said, mode, way, dice):
    """Kills a trainer during a save; returns what is wrong afterwards, and whether the save was in flight."""
    way = KILLS[way]
    size = str(mode.nbytes // 10**6)
    command = [sys.executable, __file__, "--train", str(run), str(said), "--megabytes", size]
    with Terminal(command) as terminal:
        watch_saves(terminal, said, 1)
        if way.first:
            terminal.type(way.first)
            terminal.wait_for(way.shown)
        pace = watch_saves(terminal, said, dice.randint(2, 3))
        time.sleep(dice.random() * pace)
        words = heard(said)
        if isinstance(way.then, str):
            terminal.type(way.then)
        else:
            os.kill(terminal.pid, way.then)
        code, rest = terminal.wait(), terminal.printed
        problems = terminal.problems()
    if code != way.code:
        problems.append(f"exit code {code}, not {way.code}: {rest}")
    if way.says not in rest:
        problems.append(f"no {way.says!r} in {rest}")
    problems += unprinted(rest, heard(said))
    return problems, words.count("saving") > words.count("committed")


def heard(said):
    """The words that the trainer has said."""
    return [line.split()[0] for line in said.read_text().splitlines()]


def watch_saves(terminal, said, count):
    """Waits until the trainer has begun so many more saves; returns how long one takes, in seconds."""
    began, enough = time.monotonic(), heard(said).count("saving") + count
    terminal.wait_until(lambda: heard(said).count("saving") >= enough, f"{count} more saves")
    return (time.monotonic() - began) / count


def unprinted(rest, words):
    """What was printed under the screen, and did not reach the terminal."""
    printed = [int(step) for step in re.findall(r"printed (\d+)", rest)]
    # The last save may have been hit before its line.
    missing = max(words.count("saving") - 1, 0) - len(printed)
    in_order = printed == sorted(set(printed))
    return [] if missing <= 0 and in_order else [f"{missing} lines are lost: {printed}"]


if __name__ == "__main__":
    sys.exit(main())
