"""The command line as the wheel brings it: the script, `python -m`, Ctrl-C, pipes, terminals."""

import codecs
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import disk
import numpy as np
import pitstop
import pytest

SCRIPT = Path(sys.executable).with_name("pitstop")
posix = pytest.mark.skipif(os.name != "posix", reason="needs signals and terminals as POSIX has them")


@pytest.fixture
def saved(run):
    """A run of three steps."""
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        for step in (1, 2, 3):
            state = {"model": {"w": np.full((2, 3), step)}, "step": step}
            checkpointer.save(step, state, metrics={"loss": 1 / step})
    return run


def pitstop_(*words, **how):
    """Runs the script to its end."""
    how = {"capture_output": True, "text": True, "timeout": 60, "stdin": subprocess.DEVNULL} | how
    return subprocess.run([SCRIPT, *map(str, words)], check=False, **how)


def test_the_script_and_the_module_are_the_same(saved):
    module = [sys.executable, "-m", "pitstop", "ls", saved, "--json"]
    by_module = subprocess.run(module, check=True, capture_output=True, text=True, timeout=60)
    by_script = pitstop_("ls", saved, "--json")
    assert by_script.returncode == 0, by_script.stderr
    assert by_script.stdout == by_module.stdout
    listed = json.loads(by_script.stdout)["checkpoints"]
    assert [entry["step"] for entry in listed] == [info.step for info in pitstop.checkpoints(saved)]
    assert "python -m pitstop" not in pitstop_("--help").stdout
    assert pitstop_("--version").stdout == f"pitstop {pitstop.__version__}\n"


def test_exit_codes_arrive(saved):
    assert pitstop_("verify", saved).returncode == 0
    assert pitstop_("verify", saved, "7").returncode == 1
    assert pitstop_("verify").returncode == 2
    disk.flip(saved / "step-2" / "model.safetensors", 4096)
    damaged = pitstop_("verify", saved, "--json")
    assert damaged.returncode == 1
    assert damaged.stderr == ""
    second = json.loads(damaged.stdout)["checkpoints"][1]
    assert second["step"] == 2
    assert second["damage"][0]["tensor"] == "model.w"


def test_looking_changes_nothing(saved, tmp_path):
    before = disk.everything(saved)
    for words in [
        ["ls", saved],
        ["show", saved],
        ["verify", saved],
        ["diff", saved, "1", "2"],
        ["prune", saved, "--keep-last", "1", "--dry-run"],
        ["export", saved, tmp_path / "out"],
    ]:
        assert pitstop_(*words).returncode == 0
    assert disk.everything(saved) == before


def test_a_run_that_saves_is_looked_at_and_not_pruned(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, {"step": 1})
        checkpointer.wait()
        assert pitstop_("verify", run).returncode == 0
        refused = pitstop_("rm", run, "1", "--yes")
        assert refused.returncode == 1
        assert f"is locked by process {os.getpid()}" in refused.stderr
    assert pitstop_("rm", run, "1", "--yes").returncode == 0
    assert pitstop.checkpoints(run) == []


def test_what_is_exported_opens_in_safetensors(saved, tmp_path):
    from safetensors.numpy import load_file

    assert pitstop_("export", saved, tmp_path / "one.safetensors").returncode == 0
    loaded = load_file(tmp_path / "one.safetensors")
    assert list(loaded) == ["model.w"]
    np.testing.assert_array_equal(loaded["model.w"], np.full((2, 3), 3))
    assert pitstop_("export", saved, "1", tmp_path / "all", "--directory").returncode == 0
    np.testing.assert_array_equal(load_file(tmp_path / "all" / "model.safetensors")["w"], np.full((2, 3), 1))
    assert json.loads((tmp_path / "all" / "checkpoint.json").read_text())["tree"]["dict"]["step"] == 1


@posix
def test_a_reader_that_goes_away_ends_it_quietly(saved):
    reader, writer = os.pipe()
    os.close(reader)
    ended = pitstop_("ls", saved, capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")


@posix
def test_ctrl_c_ends_it_quietly_and_leaves_nothing(run, tmp_path):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, {"model": {"w": np.zeros(8 << 20)}})
    out = tmp_path / "out"
    out.mkdir()
    # Each turn sooner or later; one that ends before it is interrupted has exported.
    interrupted = 0
    for turn in range(20):
        words = [SCRIPT, "export", run, out / "file", "--force"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not any(name.startswith(".tmp") for name in os.listdir(out)):
            time.sleep(0.001)
        time.sleep(turn * 0.002)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        # The last is Python's own, when the interpreter is on its way out already.
        assert process.returncode in (0, 130, -signal.SIGINT), errors
        if process.returncode == 130:
            interrupted += 1
            assert errors == ""
        assert not disk.leftovers(out)
        if interrupted >= 3:
            break
    assert interrupted


@posix
def test_ctrl_c_ends_a_watcher(run):
    run.mkdir()
    words = [SCRIPT, "watch", run]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert line.startswith(f"waiting for a run in {run}: no events.jsonl yet")
    assert (process.returncode, output, errors) == (130, "", "")


class Terminal:
    """The script in a terminal of its own, 60 columns wide."""

    def __init__(self, *words, rows=24, **environment):
        import fcntl
        import pty
        import struct
        import termios

        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 60, 0, 0))
        environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | environment
        self.process = subprocess.Popen(
            [SCRIPT, *map(str, words)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={"TERM": "xterm"} | environment,
            start_new_session=True,
        )
        os.close(slave)
        self.text = ""
        self.decode = codecs.getincrementaldecoder("utf-8")().decode

    def read(self, until=None):
        """Reads to the end, or until it has written something."""
        while until is None or until not in self.text:
            ready, _, _ = select.select([self.master], [], [], 60)
            assert ready, f"it hangs; so far it wrote {self.text!r}"
            try:
                some = os.read(self.master, 4096)
            except OSError:  # the other end is closed
                some = b""
            if not some:
                break
            self.text += self.decode(some)
        assert until is None or until in self.text
        return self.text

    def write(self, text):
        os.write(self.master, text.encode())

    def end(self):
        self.read()
        os.close(self.master)
        return self.process.wait(60)


@posix
@pytest.mark.parametrize("rows", [24, 0])
def test_people_see_colours_that_fit_their_terminal(saved, rows):
    """Some terminals tell how wide they are, and not how high."""
    with pitstop.AsyncCheckpointer(saved) as checkpointer:
        checkpointer.save(4, {"note": "x" * 200})
    terminal = Terminal("show", saved, rows=rows)
    assert terminal.end() == 0
    assert "\x1b[1m" in terminal.text
    lines = [re.sub(r"\x1b\[\d+m", "", line) for line in terminal.text.splitlines()]
    assert any(line.startswith("NAME") for line in lines)
    table = lines[lines.index(next(line for line in lines if line.startswith("NAME"))) :]
    assert max(map(len, table)) == 60
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain = Terminal("show", saved, **environment)
        assert plain.end() == 0
        assert "\x1b" not in plain.text


@posix
def test_a_deletion_is_asked_for(saved):
    asked = Terminal("rm", saved, "1")
    asked.read("[y/N] ")
    asked.write("n\n")
    assert asked.end() == 1
    assert [info.step for info in pitstop.checkpoints(saved)] == [1, 2, 3]
    asked = Terminal("prune", saved, "--keep-last", "2")
    asked.read("[y/N] ")
    asked.write("y\n")
    assert asked.end() == 0
    assert [info.step for info in pitstop.checkpoints(saved)] == [2, 3]


@posix
def test_ctrl_c_answers_a_question_with_no(saved):
    asked = Terminal("rm", saved, "1")
    asked.read("[y/N] ")
    asked.process.send_signal(signal.SIGINT)
    assert asked.end() == 130
    assert [info.step for info in pitstop.checkpoints(saved)] == [1, 2, 3]
    # Nobody holds the lock any more.
    with pitstop.AsyncCheckpointer(saved):
        pass


@posix
def test_names_from_a_checkpoint_reach_no_terminal_unescaped(run):
    hostile = "w\x1b]0;title\x07\x9b2J\u202e"
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, {"model": {hostile: np.zeros(2)}}, metadata=hostile, metrics={hostile: 1})
        checkpointer.save(2, {"model": {hostile: np.ones(2)}}, metadata=hostile * 2)
    disk.flip(run / "step-2" / "model.safetensors", 4096)
    for words in (["ls"], ["show"], ["verify"], ["diff", "1", "2"]):
        for options in ([], ["--json"]):
            terminal = Terminal(words[0], run, *words[1:], *options, NO_COLOR="1")
            terminal.end()
            shown = terminal.text.replace("\r\n", "\n").replace("\r\x1b[K", "")
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown), (words, shown)
            assert "title" in shown or words[0] == "ls"
