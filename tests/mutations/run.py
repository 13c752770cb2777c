"""Breaks the order in which checkpoints become durable, one way at a time, and sees whether a test notices.

Each mutant of mutants.toml is applied to a copy of the tree, in which `cargo test --test faults` must then
fail. One that survives is a hole in the tests, or something in the source that nobody needs.

    python3 tests/mutations/run.py            all of them, and a table
    python3 tests/mutations/run.py sweep      those with "sweep" in their name
    python3 tests/mutations/run.py --check    only whether all of them still fit the source

Exits with 1 if one survives, with 2 if one does not fit the source or does not compile.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "target" / "mutants"
TREE = WORK / "tree"
# What runs first: parts of the test target, from the one that finds most in the shortest time on.
PARTS = (
    *("power", "fsync", "linked", "refused", "failing", "single", "exported"),
    *("replaced", "killed", "failing_on", "order"),
)
# A mutant that hangs is noticed too. In seconds.
LONGEST = 900


@dataclass(frozen=True)
class Edit:
    """One place in the source that a mutant changes."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A change that must not go unnoticed."""

    name: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Verdict:
    """What became of it: `killed`, `survived` or `broken`, by which test, in how many seconds."""

    mutant: Mutant
    result: str
    by: str
    seconds: float


def load() -> list[Mutant]:
    """All mutants; ends the program if one does not fit the source."""
    listed = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text())["mutant"]
    mutants = []
    for entry in listed:
        places = entry.get("edits", [entry])
        edits = (Edit(it.get("file", entry["file"]), it["old"], it["new"]) for it in places)
        mutants.append(Mutant(entry["name"], tuple(edits)))
    stale = [
        f"{mutant.name}: its text is {count} times in {edit.file}"
        for mutant in mutants
        for edit in mutant.edits
        if (count := (ROOT / edit.file).read_text().count(edit.old)) != 1
    ]
    if stale:
        print("\n".join(stale), file=sys.stderr)
        sys.exit(2)
    return mutants


def copy_tree() -> None:
    """Copies what git knows or would take into the tree that is mutated."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True).stdout
    shutil.rmtree(TREE, ignore_errors=True)
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, TREE / name)


def cargo(*arguments: str) -> tuple[int, str]:
    """Runs cargo in the copy; returns its exit code and what it said."""
    command = [os.environ.get("CARGO", "cargo"), "test", "--test", "faults", *arguments]
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(WORK / "target"),
        "CARGO_PROFILE_DEV_DEBUG": "0",
        "PITSTOP_SEED": "1",
        "RUST_BACKTRACE": "0",
    }
    try:
        done = subprocess.run(
            command,
            cwd=TREE,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"still running after {LONGEST} seconds"
    return done.returncode, done.stdout


def judge() -> tuple[str, str]:
    """Builds the copy as it is, and tests it until a part fails."""
    code, said = cargo("--no-run")
    if code != 0:
        return "broken", said
    for part in PARTS:
        code, said = cargo("--", f"{part}::")
        if code != 0:
            failed = re.search(r"^test (\S+) \.\.\. FAILED$", said, re.MULTILINE)
            limit = " (its time limit)" if "still running after" in said else ""
            return "killed", failed[1] + limit if failed else said[-200:].strip()
    return "survived", ""


def run(mutant: Mutant) -> Verdict:
    """Judges one mutant, and takes it back."""
    start = time.monotonic()
    whole = {TREE / edit.file: (TREE / edit.file).read_text() for edit in mutant.edits}
    for edit in mutant.edits:
        path = TREE / edit.file
        path.write_text(path.read_text().replace(edit.old, edit.new))
    try:
        result, by = judge()
    finally:
        for path, text in whole.items():
            path.write_text(text)
    return Verdict(mutant, result, by, time.monotonic() - start)


def main() -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="only mutants with one of these in their name")
    parser.add_argument("--check", action="store_true", help="only whether they fit the source")
    arguments = parser.parse_args()
    mutants = load()
    if arguments.check:
        print(f"{len(mutants)} mutants fit the source")
        return 0
    if arguments.names:
        mutants = [it for it in mutants if any(name in it.name for name in arguments.names)]
    copy_tree()
    result, by = judge()
    if result != "survived":
        print(f"the tests fail without any mutant:\n{by}", file=sys.stderr)
        return 2
    verdicts = []
    for mutant in mutants:
        verdict = run(mutant)
        verdicts.append(verdict)
        print(f"{verdict.result:8} {verdict.seconds:4.0f} s  {mutant.name}", flush=True)
        if verdict.by:
            print(f"                  {verdict.by}", flush=True)
    results = [verdict.result for verdict in verdicts]
    count = {result: results.count(result) for result in ("killed", "survived", "broken")}
    print(f"{len(results)} mutants:", ", ".join(f"{count[result]} {result}" for result in count))
    if count["broken"]:
        return 2
    return 1 if count["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
