"""The example scripts, run as a user runs them: killed with SIGKILL, resumed, compared to the last bit."""

import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# One BLAS thread: floating-point sums have one order whatever the machine is busy with.
ENVIRONMENT = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def start(script, directory, *options):
    command = [sys.executable, str(EXAMPLES / script), "--dir", str(directory), *options]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)


def last_line(script, directory, *options):
    """Run a script to its end, which must be a good one, and return the last line it printed."""
    process = start(script, directory, *options)
    with ended(process):
        output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    return output.splitlines()[-1]


@contextlib.contextmanager
def ended(process):
    """Leave no child behind, whatever the test does."""
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def kill_after(delay, script, directory, *options):
    """SIGKILL a script `delay` seconds after its first line; whether that hit it still running."""
    process = start(script, directory, *options)
    with ended(process):
        process.stdout.readline()
        time.sleep(delay)
        return process.poll() is None


def kill_during_a_save(script, directory, *options):
    """SIGKILL a script once it has committed a checkpoint and is writing another."""
    process = start(script, directory, *options)
    with ended(process):
        while process.poll() is None:
            if list(directory.glob("step-*")) and list(directory.glob(".tmp-*/*")):
                break
            time.sleep(0.0005)


@pytest.mark.timeout(240)
def test_the_demo_ends_bit_identical_and_prints_a_line_each(tmp_path):
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--dir", str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=230, check=False)
    assert done.returncode == 0, done.stdout
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert lines["checkpoints committed"] == "10"
    assert lines["stall per save"].endswith(" ms (median)")
    assert int(lines["resumed from"].removeprefix("step ")) in range(30, 100, 10)
    assert lines["verdict"] == "bit-identical"


@pytest.mark.timeout(120)
def test_digits_killed_during_saves_and_resumed_end_with_the_same_digest(tmp_path):
    script, options = "train_digits.py", ("--steps", "120", "--save-every", "4", "--hidden", "512")
    never_killed = last_line(script, tmp_path / "never-killed", *options)
    for _ in range(5):
        kill_during_a_save(script, tmp_path / "killed", *options, "--resume")
    resumed = last_line(script, tmp_path / "killed", *options, "--resume")
    assert resumed.startswith("weights: sha256 ")
    assert resumed == never_killed
    assert not list((tmp_path / "killed").glob(".tmp-*")), "the dead writers' leftovers are swept"


@pytest.mark.timeout(60)
def test_an_example_does_not_start_over_in_a_directory_that_holds_checkpoints(tmp_path):
    options = ("--steps", "2", "--save-every", "1", "--hidden", "16")
    last_line("train_digits.py", tmp_path, *options)
    before = sorted(path.name for path in tmp_path.glob("step-*"))
    again = start("train_digits.py", tmp_path, *options)
    with ended(again):
        assert again.wait(timeout=50) == 1
    assert sorted(path.name for path in tmp_path.glob("step-*")) == before


@pytest.mark.timeout(60)
def test_sigterm_saves_stops_and_leaves_a_run_that_resumes_to_the_same_digest(tmp_path):
    script, options = "train_digits.py", ("--steps", "600", "--save-every", "100", "--hidden", "128")
    never_stopped = last_line(script, tmp_path / "never-stopped", *options)
    process = start(script, tmp_path / "stopped", *options)
    with ended(process):
        assert process.stdout.readline().startswith("step 100:")
        process.terminate()
        output, _ = process.communicate(timeout=50)
    assert process.returncode == 0, output
    assert "stopped at step " in output
    assert last_line(script, tmp_path / "stopped", *options, "--resume") == never_stopped


@pytest.mark.frameworks
@pytest.mark.timeout(300)
def test_gpt_killed_at_random_moments_and_resumed_ends_with_the_same_loss(tmp_path):
    # One thread: on a busy machine several would mostly wait for each other.
    script, options = "train_gpt.py", ("--steps", "60", "--save-every", "5", "--threads", "1")
    began = time.monotonic()
    never_killed = last_line(script, tmp_path / "never-killed", *options)
    duration = time.monotonic() - began
    hits = 0
    for _ in range(5):
        # Short beside the run, so that it is killed several times on its way: before its first save too.
        delay = random.uniform(0, duration / 5)
        hits += kill_after(delay, script, tmp_path / "killed", *options, "--resume")
    resumed = last_line(script, tmp_path / "killed", *options, "--resume")
    assert resumed.startswith("final loss: ")
    assert resumed == never_killed
    assert hits >= 2, "the run was too fast to be killed on its way"
