"""Programs in a process of their own, because they get killed, interrupted or limited."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

TIMEOUT = 60  # seconds; a child that takes longer hangs


def start(program, *arguments):
    """Starts `program` (Python text) with its outputs as text pipes."""
    here = str(Path(__file__).parent)
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )


def end(process):
    """Waits for the end and returns (exit code, output, errors); a hang or a panic report is a failure."""
    try:
        output, errors = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        raise AssertionError(f"the child hangs; so far it wrote\n{output}\n{errors}") from None
    assert "panicked at" not in errors, errors
    return process.returncode, output, errors


def run(program, *arguments):
    """Runs `program` to its end, which must be a good one, and returns what it printed."""
    code, output, errors = end(start(program, *arguments))
    assert code == 0, f"exit code {code}\n{output}\n{errors}"
    return output


def read_until(process, text):
    """Reads lines up to one that starts with `text` and returns all of them."""
    lines = []
    for line in process.stdout:
        lines.append(line.strip())
        if line.startswith(text):
            return lines
    raise AssertionError(f"no {text!r} in {lines}\n{end(process)[2]}")
