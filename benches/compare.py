#!/usr/bin/env python3
"""Measures pitstop beside its peers, and compares both with the limits of the machine.

    python benches/compare.py                            # what `make bench` does
    python benches/compare.py --quick                    # small states, one round: does it run at all?
    python benches/compare.py --peers pitstop,safetensors --workloads W1 --rounds 7
    python benches/compare.py --report target/bench/results.jsonl   # only the tables

Each library, workload and round is a process of its own, interleaved. What the figures mean is written in
`comparison/__init__.py`; the lines of JSON in `--out` hold every one of them.
"""

import argparse
import datetime
import importlib.metadata
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from comparison import machine, ours, peers  # noqa: F401  (they fill the list of libraries)
from comparison.libraries import REGISTRY
from comparison.plots import plot
from comparison.report import report, write_into
from comparison.results import Results
from comparison.workloads import make, nbytes, points

REPOSITORY = Path(__file__).resolve().parent.parent
LIMITS = REPOSITORY / "target/release/examples/limits"
RESERVE = 6 << 30  # bytes held at most while no process measures: for its state, a copy, and its reserve
TIMEOUT = 400  # seconds, of one process
OURS = ["pitstop", "pitstop_deferred", "pitstop_recycled", "pitstop_limited"]

# Those that lead in some figure of the workload, and those that most people use.
RELEVANT = {
    "W1": [
        *OURS,
        "control",
        "torch_save",
        "safetensors",
        "numpy_savez",
        "pickle",
        "dcp_thread",
        "dcp_thread_cached",
        "dcp_process_shared",
        "torchsnapshot",
        "lightning",
        "nvidia_fork",
    ],
    "W2": ["pitstop", "torch_save", "safetensors", "pickle", "torchsnapshot", "lightning", "nvidia_fork"],
    "W5": ["pitstop", "torch_save", "dcp_thread_cached"],
    "sizes": ["pitstop", "pitstop_deferred", "safetensors", "dcp_thread_cached"],
    "counts": ["pitstop", "safetensors", "dcp_thread_cached"],
}
# Of W1, those that lead in no figure by far: one round shows where they stand.
LESSER = [
    "pitstop_limited",
    "control",
    "torch_save",
    "numpy_savez",
    "pickle",
    "dcp_thread",
    "torchsnapshot",
    "lightning",
]
LESSER_ROUNDS = 1
TOO_SLOW = {("dcp_thread_cached", "count-100000")}  # minutes for one point
QUICK = [*OURS, "torch_save", "safetensors", "dcp_thread_cached"]
VERSIONS = (
    "pitstop", "torch", "numpy", "jax", "safetensors", "orbax-checkpoint", "torchsnapshot", "lightning",
    "nvidia-resiliency-ext",
)  # fmt: skip


def main() -> None:
    options = arguments()
    if options.report:
        results = Results.read(options.report)
    else:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        run(options)
        results = Results.read(options.out)
    text = report(results)
    print(text)
    if options.plots:
        for path in plot(results, options.plots):
            print("drawn:", path)
    if options.page:
        write_into(options.page, text)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small states, few peers, one round, no reserve")
    parser.add_argument(
        "--peers", help=f"'relevant' (default), 'leading', 'all', or some of {', '.join(REGISTRY)}"
    )
    parser.add_argument("--workloads", default="W1,W2,W5,sizes,counts", help="default: all of %(default)s")
    parser.add_argument("--rounds", type=int, help="default: 5; sizes and counts have one")
    parser.add_argument("--cold", action="store_true", help="cold restores of the peers, too")
    parser.add_argument(
        "--no-reserve", dest="reserve", action="store_false", help="let the host take free pages"
    )
    parser.add_argument(
        "--directory", type=Path, help="where checkpoints are written; default: in the repository"
    )
    parser.add_argument(
        "--out", type=Path, default=REPOSITORY / "target/bench/results.jsonl", help="%(default)s"
    )
    parser.add_argument("--report", type=Path, metavar="RESULTS", help="measure nothing, only report")
    parser.add_argument("--plots", type=Path, metavar="DIRECTORY", help="draw sizes and counts")
    parser.add_argument("--page", type=Path, help="write the report between the marks of this page")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.reserve = options.reserve and not options.quick
    return options


def run(options: argparse.Namespace) -> None:
    """Runs everything; each record is appended to the file as soon as it is there."""
    where = options.directory or REPOSITORY / "target/bench"
    root = Path(tempfile.mkdtemp(prefix="data-", dir=where))
    started = time.monotonic()
    try:
        with open(options.out, "w") as out:
            for record in records(options, root):
                print(json.dumps(record), file=out, flush=True)
                if "library" in record:
                    outcome = record.get("error") or record.get("unavailable") or "measured"
                    place = f"{record['workload']}, round {record['round'] + 1}, {record['library']}"
                    print(
                        f"{time.monotonic() - started:6.0f} s  {place}: {outcome}",
                        file=sys.stderr,
                        flush=True,
                    )
    finally:
        shutil.rmtree(root, ignore_errors=True)


def records(options: argparse.Namespace, root: Path) -> Iterator[dict[str, Any]]:
    """The head, and round after round the limits and every library."""
    yield {
        "date": datetime.date.today().isoformat(),
        "arguments": shlex.join(sys.argv[1:]),
        "machine": machine.describe(root),
        "versions": {name: version(name) for name in VERSIONS},
        "quick": options.quick,
    }
    names = options.workloads.split(",")
    reserve = machine.Reserve()
    limits_of = nbytes(make("W1", options.quick)) if "W1" in names else 0
    for round_ in range(options.rounds):
        if limits_of:
            reserve.release()
            yield {"round": round_, "limits": limits(limits_of, root)}
        for name in names:
            selected = libraries(options, name)
            for workload in points(name, options.quick):
                for library in turned(selected, round_):
                    if (library, workload) in TOO_SLOW and not options.peers:
                        continue
                    planned = phases(options, name, library, selected, round_)
                    if planned:
                        yield measure(options, root, library, workload, round_, planned, reserve)


def version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def libraries(options: argparse.Namespace, workload: str) -> list[str]:
    """Which ones to run on a workload, in order."""
    if options.peers == "all":
        return list(REGISTRY)
    if options.peers in (None, "relevant", "leading"):
        names = [name for name in RELEVANT[workload] if not options.quick or name in QUICK]
        lesser = LESSER if workload == "W1" and options.peers == "leading" else []
        return [name for name in names if name in OURS or name not in lesser]
    names = options.peers.split(",")
    for name in names:
        if name not in REGISTRY:
            raise SystemExit(f"no library {name!r}; there are {', '.join(REGISTRY)}")
    return names


def turned(names: list[str], by: int) -> list[str]:
    """So that nobody always comes after the same one."""
    by = 3 * by % len(names)
    return names[by:] + names[:by]


def phases(
    options: argparse.Namespace, workload: str, library: str, selected: list[str], round_: int
) -> list[str]:
    """What to measure of a library in a round; nothing, if one round is enough and this is another."""
    if library == "control":
        return ["loops"] if workload == "W1" and round_ < LESSER_ROUNDS else []
    if workload == "W1":
        if options.peers in (None, "relevant", "leading") and library in LESSER and round_ >= LESSER_ROUNDS:
            return []
        if library == "pitstop_limited":
            return ["saves"]
        if library == "pitstop_recycled":
            return ["saves", "growth"] if round_ == 0 else ["saves"]
        family = [name for name in selected if like(name) == like(library)]
        return ["saves", "loops"] + ["restores"] * (library == family[0])
    if workload == "W2":
        return ["saves"]
    if workload == "W5":
        return ["saves", "partial"] if library.startswith("pitstop") or round_ == 0 else []
    return ["saves"] if round_ == 0 else []


def like(library: str) -> str:
    """Whose restores are the same."""
    return REGISTRY[library].same_restore or library


def measure(
    options: argparse.Namespace,
    root: Path,
    library: str,
    workload: str,
    round_: int,
    planned: list[str],
    reserve: machine.Reserve,
) -> dict[str, Any]:
    """One process; its record, also where it fails."""
    asked = {
        "library": library,
        "workload": workload,
        "round": round_,
        "phases": planned,
        "quick": options.quick,
        "reserve": options.reserve,
        # One that is the only round makes up for it.
        "saves": 5 if "-" in workload else 2,
        "cold": options.cold or library == "pitstop",
        "root": str(root),
    }
    command = [sys.executable, "-W", "ignore", "-m", "comparison.process", json.dumps(asked)]
    record: dict[str, Any] = {"library": library, "workload": workload, "round": round_}
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).parent,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        process.stdout.readline()  # its imports are done, and it wants memory
        reserve.release()
        out, errors = process.communicate("\n", timeout=TIMEOUT)
        record = json.loads(out.splitlines()[-1])
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        record["error"] = f"not done after {TIMEOUT} seconds"
    except (IndexError, ValueError):
        record |= {"error": f"exit status {process.returncode}", "traceback": errors[-1500:]}
    if options.reserve:
        # The next process is likely to need as much as this one has used.
        reserve.hold(min(4 * record.get("state_bytes", 0), RESERVE))
    for entry in root.iterdir():
        shutil.rmtree(entry, ignore_errors=True)
    return record


def limits(of: int, root: Path) -> dict[str, Any]:
    """What memory and disk can do with so many bytes."""
    try:
        done = subprocess.run([LIMITS, str(of), root, "3"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return {"error": f"{error} {getattr(error, 'stderr', '')}"}
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
