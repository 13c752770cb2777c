"""pitstop's promise, on real input: a run killed in the middle of a save ends as if it never was.

    make demo

Runs `train_digits.py` from start to end; runs it again in a second directory and kills it with
SIGKILL while a checkpoint is being written; resumes that one; and compares the weights and the
optimizer of the two final checkpoints bit by bit. The checkpoints stay in `--dir` to look at.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pitstop

SCRIPT = Path(__file__).with_name("train_digits.py")
# Large enough (about 50 MB of state) that a save takes a while to hit.
OPTIONS = ["--steps", "100", "--save-every", "10", "--hidden", "2048"]
# One BLAS thread, so that floating-point sums have one order whatever the machine is busy with.
ENVIRONMENT = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
ATTEMPTS = 10


def start(directory, *options):
    """Start a training process that saves into `directory`."""
    command = [sys.executable, str(SCRIPT), "--dir", str(directory), *OPTIONS, *options]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)


def train(directory, *options):
    """Train to the end and return what the process printed."""
    process = start(directory, *options)
    output, _ = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"train_digits.py ended with status {process.returncode}:\n{output}")
    return output


def saves_in_flight(directory):
    """Bytes so far in the hidden directories in which checkpoints are put together."""
    return sum(path.stat().st_size for path in directory.glob(".tmp-*/*"))


def kill_during_a_save(directory):
    """Train until some checkpoints are committed and one is half written, then SIGKILL."""
    for _ in range(ATTEMPTS):
        shutil.rmtree(directory, ignore_errors=True)
        process = start(directory)
        while process.poll() is None:
            try:
                if len(list(directory.glob("step-*"))) >= 3 and saves_in_flight(directory):
                    process.kill()
                    break
            except FileNotFoundError:
                pass  # published between the look at the directory and the look at the file
            time.sleep(0.0005)
        process.communicate()
        # A save that was published before the signal arrived proves nothing: once more.
        if any(directory.glob(".tmp-*")):
            return
    raise SystemExit(f"no save could be hit in {ATTEMPTS} attempts")


def find(pattern, output):
    match = re.search(pattern, output, re.MULTILINE)
    return match.group(1) if match else "?"


def identical(ours, theirs):
    """Whether two trees hold the same names, types and bits."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(identical(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, np.ndarray):
        same_kind = ours.dtype == theirs.dtype and ours.shape == theirs.shape
        return same_kind and ours.tobytes() == theirs.tobytes()
    return type(ours) is type(theirs) and ours == theirs


def main():
    parser = argparse.ArgumentParser(description="Kill a training run during a save, resume it, compare.")
    parser.add_argument("--dir", type=Path, default=Path("runs/demo"), help="where the two runs go")
    directory = parser.parse_args().dir
    whole, killed = directory / "never-killed", directory / "killed"
    shutil.rmtree(whole, ignore_errors=True)

    output = train(whole)
    print("checkpoints committed:", find(r"^checkpoints committed: (.*)$", output), flush=True)
    print("stall per save:", find(r"^stall per save: (.*)$", output), flush=True)

    kill_during_a_save(killed)
    newest = pitstop.checkpoints(killed)[-1].step
    print(f"killed: SIGKILL with a save in flight, step {newest} the newest committed", flush=True)

    print("resumed from:", find(r"^resumed from: (.*)$", train(killed, "--resume")), flush=True)

    ours, theirs = pitstop.restore(whole), pitstop.restore(killed)
    same = all(identical(ours[part], theirs[part]) for part in ("model", "optimizer"))
    print("verdict:", "bit-identical" if same else "DIFFERENT")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
