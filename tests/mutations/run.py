"""Breaks the order in which checkpoints become durable, one way at a time, and sees whether a test notices.

Each mutant of mutants.toml is applied to a copy of the tree, in which `cargo test --test faults` must then fail.
One that survives is a hole in the tests, or something in the source that nobody needs.

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
    environment = os.environ | {"CARGO_TARGET_DIR": str(WORK / "target"), "PITSTOP_SEED": "1"}
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
    """Builds and tests the copy as it is."""
    code, said = cargo("--no-run")
    if code != 0:
        return "broken", said
    code, said = cargo()
    failed = re.findall(r"^test (\S+) \.\.\. FAILED$", said, re.MULTILINE)
    if code == 0:
        return "survived", ""
    return "killed", ", ".join(test.rpartition("::")[2] for test in failed) or said[-200:]


def run(mutant: Mutant) -> Verdict:
    """Judges one mutant, and takes it back."""
    start = time.monotonic()
    for edit in mutant.edits:
        path = TREE / edit.file
        path.write_text(path.read_text().replace(edit.old, edit.new))
    try:
        result, by = judge()
    finally:
        for edit in mutant.edits:
            (TREE / edit.file).write_text((ROOT / edit.file).read_text())
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
        tests = verdict.by.count(",") + 1
        more = f" and {tests - 1} more" if tests > 1 else ""
        by = verdict.by.partition(",")[0].strip() if verdict.result == "killed" else verdict.by
        print(f"{verdict.result:8} {verdict.seconds:4.0f} s  {mutant.name}", flush=True)
        print(f"                  {by}{more}", flush=True)
    count = {result: sum(it.result == result for it in verdicts) for result in ("killed", "survived", "broken")}
    print(f"{len(verdicts)} mutants: {count['killed']} killed, {count['survived']} survived, {count['broken']} broken")
    if count["broken"]:
        return 2
    return 1 if count["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
