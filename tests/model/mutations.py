"""Breaks pitstop in one place after the other, and expects the model to notice each time.

Run it by `make model-mutations`; with `--check` it only looks whether all of them fit the source. Each entry
names a file, what stands there, what it becomes, and the test that has to fail. A copy of the repository is
changed, not the repository itself.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

LANE = "src/checkpointer/lane.rs"
WORKER = "src/checkpointer/worker.rs"
LEDGER = "src/checkpointer/ledger.rs"
INTERRUPTER = "src/checkpointer/interrupter.rs"
CREW = "src/checkpointer/crew.rs"
MESSAGE = "src/checkpointer/message.rs"
ASYNC = "src/checkpointer/async_checkpointer.rs"

MUTATIONS = [
    # The end of a turn is not announced; a waiter takes any wake-up for its own; two are served at once.
    (LANE, "        self.lane.ended.notify_all();\n", "", "handing_over::everything_at_once"),
    (LANE, "while turns.ended < count", "if turns.ended < count", "handing_over::everything_at_once"),
    (LANE, "if turns.ended != number {", "if turns.ended > number {", "handing_over::everything_at_once"),
    # A wait that timed out once is over.
    (
        LANE,
        "if left.is_zero() {\n                        return false;",
        "if left.is_zero() {\n                        return true;",
        "handing_over::everything_at_once",
    ),
    # The failure is recorded after its handle may have claimed it.
    (WORKER, "        self.ledger.record(Arc::clone(&failure));\n", "", "handing_over::everything_at_once"),
    (
        WORKER,
        "        completion.settle(Err(failure));\n        last_words",
        "        completion.settle(Err(Arc::clone(&failure)));\n"
        "        self.ledger.record(failure);\n        last_words",
        "handing_over::everything_at_once",
    ),
    # A worker that is about to end is taken for one that works.
    (WORKER, "            self.ended.store(true, Ordering::Release);\n", "", "handing_over::after_a_failure"),
    # The interrupter is stopped after the operation has ended.
    (
        WORKER,
        "            interrupter.stop(Some(failure.message()));\n            None\n",
        "            completion.settle(Err(Arc::clone(&failure)));\n"
        "            interrupter.stop(Some(failure.message()));\n            return None;\n",
        "interrupting::whoever_sees",
    ),
    # A handle that tells of a failure does not claim it; the count of the unclaimed is not kept.
    (
        "src/checkpointer/pending.rs",
        "                self.ledger.claim(failure);\n",
        "",
        "handing_over::everything_at_once",
    ),
    (
        LEDGER,
        "        self.count.store(unclaimed.len(), Ordering::Release);\n",
        "",
        "handing_over::everything_at_once",
    ),
    # The turn ends before the outcome is there.
    (
        MESSAGE,
        "        let _ = self.outcome.set(outcome);\n        drop(self.turn);\n",
        "        drop(self.turn);\n        let _ = self.outcome.set(outcome);\n",
        "handing_over::everything_at_once",
    ),
    # The answer is there before the worker is free.
    (
        "src/checkpointer/reply.rs",
        "        self.pending.ended_by(None);\n",
        "",
        "handing_over::a_worker_without",
    ),
    # The flag and the message of the interrupter are set and cleared one after the other.
    (
        INTERRUPTER,
        "        // Under the lock, so that a reset clears both or neither.\n",
        "        drop(message);\n",
        "interrupting::a_reset",
    ),
    (
        INTERRUPTER,
        "        *message = None;\n",
        "        *message = None;\n        drop(message);\n",
        "interrupting::a_reset",
    ),
    (
        INTERRUPTER,
        "message.get_or_insert(reason);",
        "*message = Some(reason);",
        "interrupting::the_first_reason",
    ),
    (
        INTERRUPTER,
        "        let Some(reason) = reason else {\n",
        "        if reason.is_none() {\n            lock(&self.shared.message).take();\n        }\n"
        "        let Some(reason) = reason else {\n",
        "interrupting::a_stop_without",
    ),
    # Closing does not wait: for the thread, for what is in hand, for whoever closes first.
    (
        CREW,
        "        if let Some(worker) = worker {\n            worker.join();\n        }\n",
        "        drop(worker);\n",
        "closing::whoever_closes",
    ),
    (ASYNC, "let _turn = self.lane.enter();", "let _ = self.lane.enter();", "closing::whoever_closes"),
    (
        ASYNC,
        "            && let Err(error) = self.shut_down()",
        "            && let Err(error) = self.check()",
        "closing::a_handle_outlives",
    ),
    # The worker waits for itself.
    (
        ASYNC,
        "        if !self.crew.is_here()\n            && let",
        "        if let",
        "closing::the_last_reference",
    ),
    (
        ASYNC,
        "        self.refuse_on_worker()?;\n        self.shut_down()?;",
        "        self.shut_down()?;",
        "closing::the_worker_refuses",
    ),
    # Somebody who waits with a time limit is not woken.
    (
        LANE,
        "                    let waited = self.ended.wait_timeout(turns, left);\n",
        "                    let waited = Condvar::default().wait_timeout(turns, left);\n",
        "handing_over::those_who_give_up",
    ),
    # Memory of the arena that nobody uses any more counts as used; of each batch one part is copied.
    (
        "src/snapshot/arena.rs",
        "        blocks.leased -= mine.len();\n",
        "",
        "copying::snapshots_at_the_same_time",
    ),
    (
        "src/snapshot/transfer.rs",
        "        for part in batch {\n",
        "        for part in batch.into_iter().take(1) {\n",
        "copying::what_several_threads",
    ),
    # Memory is given back before it is copied, or before it is written; nobody is told; not after a failure.
    (
        "src/snapshot/capture.rs",
        "    let mut now: Vec<_> = transfer::run(now",
        "    (how.rest_copied)();\n    let mut now: Vec<_> = transfer::run(now",
        "copying::what_a_save_says",
    ),
    (
        "src/file_checkpointer/writer.rs",
        "    write_all(site, borrowed, &progress, ticket)?;\n",
        "    ticket.reads_only(Reads::Nothing);\n    write_all(site, borrowed, &progress, ticket)?;\n",
        "copying::what_a_save_says",
    ),
    (
        "src/file_checkpointer/transfer.rs",
        "        *self.lock() = reads;\n        self.changed.notify_all();\n",
        "        *self.lock() = reads;\n",
        "copying::what_a_save_says",
    ),
    (
        "src/file_checkpointer.rs",
        "        let _reading = ticket.reading();\n",
        "",
        "copying::a_save_that_fails",
    ),
]


def main():
    unfit = [it for it in MUTATIONS if (REPOSITORY / it[0]).read_text().count(it[1]) != 1]
    for name, old, *_ in unfit:
        print(f"{name} does not have once: {old}")
    if unfit or sys.argv[1:] == ["--check"]:
        return bool(unfit)
    wanted = sys.argv[1:]
    copy = REPOSITORY / "target/mutations"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    for name in ["Cargo.toml", "Cargo.lock", "README.md"]:
        shutil.copy(REPOSITORY / name, copy)
    # What the manifest names must be there, used or not.
    for name in ["src", "tests", "benches", "examples"]:
        shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    chosen = [it for it in MUTATIONS if not wanted or any(word in it[3] for word in wanted)]
    missed = [it for it in chosen if not noticed(copy, *it)]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} were noticed")
    return bool(missed)


def noticed(copy, name, old, new, test):
    file = copy / name
    text = file.read_text()
    assert text.count(old) == 1, f"{name} has {text.count(old)} times: {old}"
    file.write_text(text.replace(old, new))
    why = run(copy, test)
    file.write_text(text)
    print(
        f"{'noticed' if why else 'NOT NOTICED'} by {test}: {name}, {old.strip()[:60]!r}\n    {why}",
        flush=True,
    )
    return why is not None


def run(copy, test):
    """Why the test fails; `None` if it does not."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(REPOSITORY / "target/model")}
    command = ["cargo", "test", "--quiet", test]
    done = subprocess.run(
        command, cwd=copy / "tests/model", env=environment, capture_output=True, text=True, timeout=3600
    )
    if done.returncode == 0:
        return None
    # The line after the place says why.
    why = re.search(r"panicked at .*\n(.*)", done.stdout + done.stderr)
    assert why, f"no test has failed, but cargo:\n{done.stderr}"
    return why[1]


if __name__ == "__main__":
    sys.exit(main())
