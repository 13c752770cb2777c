"""The public names: all there, all documented, with the signatures of the contract."""

import importlib.resources
import inspect
import re
import subprocess
import sys
import textwrap

import pitstop
import pytest

CLASSES = [
    *("AsyncCheckpointer", "SaveHandle", "CheckpointInfo", "SaveStats", "Stats"),
    *("Interrupter", "Renderer", "Rng"),
]
POLICIES = ["KeepAll", "KeepLast", "KeepBest", "KeepEvery", "KeepFor"]
INTERVALS = ["Interval", "EverySteps", "EveryMinutes", "Overhead"]
FUNCTIONS = ["save", "restore", "checkpoints"]
ERRORS = {
    "CheckpointError": Exception,
    "SaveError": Exception,
    "DeleteError": Exception,
    "CallbackError": Exception,
    "CorruptCheckpointError": Exception,
    "CheckpointNotFoundError": FileNotFoundError,
    "StepExistsError": FileExistsError,
    "DirectoryLockedError": BlockingIOError,
    "UnsupportedTypeError": TypeError,
    "StateMismatchError": ValueError,
    "TrainingKilled": BaseException,
}
METHODS = {
    "AsyncCheckpointer": [
        *("save", "restore", "resume", "latest", "best", "steps", "checkpoints", "info", "delete"),
        *("wait", "close", "check", "plan", "should_save", "stats", "memory", "__enter__", "__exit__"),
    ],
    "SaveHandle": ["step", "skipped", "done", "wait_snapshot", "result", "progress"],
    "CheckpointInfo": ["step", "path", "created", "metrics", "metadata", "nbytes"],
    "Interrupter": ["stop", "should_stop", "reset", "get_message", "on_signals"],
    "Renderer": [
        *("track", "log", "text", "register", "start", "split_start", "progress", "split_end"),
        *("epoch", "event", "end", "close", "step", "interrupter", "__enter__", "__exit__"),
    ],
}


@pytest.mark.parametrize("name", [*CLASSES, *POLICIES, *INTERVALS, *FUNCTIONS, *ERRORS])
def test_a_promised_name_is_public(name):
    assert name in pitstop.__all__
    assert hasattr(pitstop, name)


def test_all_is_sorted_out():
    assert len(set(pitstop.__all__)) == len(pitstop.__all__)
    assert all(hasattr(pitstop, name) for name in pitstop.__all__)
    assert not [name for name in pitstop.__all__ if name.startswith("_") and name != "__version__"]


def public_things():
    for name in pitstop.__all__:
        thing = getattr(pitstop, name)
        if not callable(thing):
            continue
        yield name, thing
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_") and (callable(value) or inspect.isdatadescriptor(value)):
                    yield f"{name}.{member}", value


def test_every_public_name_has_a_docstring():
    undocumented = [name for name, thing in public_things() if not (inspect.getdoc(thing) or "").strip()]
    assert undocumented == []
    assert (pitstop.__doc__ or "").strip()


def test_docstrings_do_not_come_from_a_base_class():
    for name in [*CLASSES, *POLICIES, *INTERVALS, *ERRORS]:
        thing = getattr(pitstop, name)
        assert thing.__doc__, name
        assert all(thing.__doc__ != base.__doc__ for base in thing.__mro__[1:]), name


@pytest.mark.parametrize("owner", METHODS)
def test_promised_members_are_there(checkpointer, owner):
    handle = checkpointer.save(1, {"w": 1})
    made = {
        "AsyncCheckpointer": checkpointer,
        "SaveHandle": handle,
        "CheckpointInfo": handle.result(),
        "Interrupter": pitstop.Interrupter(),
        "Renderer": pitstop.Renderer(),
    }
    assert [member for member in METHODS[owner] if not hasattr(made[owner], member)] == []


@pytest.mark.parametrize("name", ERRORS)
def test_errors_have_the_promised_bases(name):
    error = getattr(pitstop, name)
    assert issubclass(error, ERRORS[name])
    if name == "TrainingKilled":
        assert not issubclass(error, Exception)
    else:
        assert issubclass(error, pitstop.CheckpointError)


@pytest.mark.parametrize("name", [*CLASSES, *POLICIES, *INTERVALS, *FUNCTIONS, *ERRORS])
def test_names_belong_to_the_package(name):
    """A traceback that says `builtins.SaveError` cannot be looked up."""
    assert getattr(pitstop, name).__module__.split(".")[0] == "pitstop"


EMPTY = inspect.Parameter.empty
SIGNATURES = {
    "AsyncCheckpointer": (
        {"directory": EMPTY},
        {"retention": None, "interrupter": None, "on_busy": "wait", "memory_limit": None}
        | {"verify": True, "incremental": True, "fsync": True, "interval": None}
        | {"check_deferred": False},
    ),
    "AsyncCheckpointer.save": (
        {"step": EMPTY, "state": EMPTY},
        {"metrics": None, "metadata": None, "overwrite": False, "deferred": None},
    ),
    "AsyncCheckpointer.protect": ({"optimizer": EMPTY}, {}),
    "AsyncCheckpointer.restore": (
        {"step": None},
        {"into": None, "like": None, "only": None, "framework": None, "mmap": False},
    ),
    "AsyncCheckpointer.resume": ({}, {"into": EMPTY}),
    "AsyncCheckpointer.latest": ({}, {}),
    "AsyncCheckpointer.best": ({"metric": EMPTY, "mode": "min"}, {}),
    "AsyncCheckpointer.steps": ({}, {}),
    "AsyncCheckpointer.checkpoints": ({}, {}),
    "AsyncCheckpointer.info": ({"step": EMPTY}, {}),
    "AsyncCheckpointer.delete": ({"step": EMPTY}, {}),
    "AsyncCheckpointer.wait": ({"timeout": None}, {}),
    "AsyncCheckpointer.close": ({}, {}),
    "AsyncCheckpointer.check": ({}, {}),
    "AsyncCheckpointer.plan": ({}, {}),
    "AsyncCheckpointer.should_save": ({"step": EMPTY}, {}),
    "AsyncCheckpointer.stats": ({}, {}),
    "AsyncCheckpointer.memory": ({}, {}),
    "SaveHandle.done": ({}, {}),
    "SaveHandle.wait_snapshot": ({}, {}),
    "SaveHandle.result": ({"timeout": None}, {}),
    "SaveHandle.progress": ({}, {}),
    "KeepLast": ({"n": EMPTY}, {}),
    "KeepBest": ({"metric": EMPTY, "mode": "min", "n": 1}, {}),
    "KeepEvery": ({"steps": EMPTY}, {}),
    "KeepFor": ({"seconds": EMPTY}, {}),
    "KeepAll": ({}, {}),
    "EverySteps": ({"n": EMPTY}, {}),
    "EveryMinutes": ({"minutes": EMPTY}, {}),
    "Overhead": ({"share": EMPTY}, {}),
    "Interrupter.should_stop": ({}, {}),
    "Interrupter.reset": ({}, {}),
    "Interrupter.get_message": ({}, {}),
    "Renderer": (
        {},
        {"epochs": None, "steps": None, "epoch": 0, "step": 0, "interrupter": None, "checkpointer": None}
        | {"directory": None, "persistent": False, "plain": None},
    ),
    "Renderer.start": ({}, {"epoch": None, "step": None}),
    "Renderer.track": ({"iterable": EMPTY, "split": "train"}, {"total": None, "done": 0}),
    "Renderer.text": ({"name": EMPTY, "text": EMPTY}, {"split": None}),
    "Renderer.register": ({"name": EMPTY}, {"unit": "", "goal": None}),
    "Renderer.split_start": ({"split": EMPTY}, {"total": None, "done": 0}),
    "Renderer.progress": ({"done": EMPTY, "step": None}, {}),
    "Renderer.split_end": ({}, {}),
    "Renderer.epoch": ({"epoch": EMPTY}, {}),
    "Renderer.event": ({"name": EMPTY, "text": ""}, {}),
    "Renderer.end": ({"summary": None}, {}),
    "Renderer.close": ({}, {}),
    "restore": (
        {"path": EMPTY, "step": None},
        {"into": None, "like": None, "only": None, "framework": None, "mmap": False, "verify": True},
    ),
    "checkpoints": ({"path": EMPTY}, {}),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_is_that_of_the_contract(name):
    thing = pitstop
    for part in name.split("."):
        thing = getattr(thing, part)
    parameters = [value for key, value in inspect.signature(thing).parameters.items() if key != "self"]
    positional = {one.name: one.default for one in parameters if one.kind != one.KEYWORD_ONLY}
    keywords = {one.name: one.default for one in parameters if one.kind == one.KEYWORD_ONLY}
    assert (positional, keywords) == SIGNATURES[name]


def test_the_signature_of_pitstop_save():
    parameters = inspect.signature(pitstop.save).parameters
    assert list(parameters)[:2] == ["path", "state"]
    for name, default in {"step": None, "metrics": None, "metadata": None, "overwrite": False}.items():
        assert parameters[name].kind == inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == default


def test_the_package_is_typed():
    package = importlib.resources.files("pitstop")
    assert (package / "py.typed").is_file()


TRAINING = """
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from pathlib import Path
    from typing import Any, assert_type

    import numpy as np
    import numpy.typing as npt
    import pitstop

    Weights = dict[str, npt.NDArray[np.float64]]


    class Model:
        def __init__(self) -> None:
            self.weights: Weights = {"w": np.zeros(3)}

        def state_dict(self) -> Weights:
            return self.weights

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            self.weights.update(state)


    def milestones(checkpoints: list[pitstop.CheckpointInfo]) -> Iterable[int]:
        return (info.step for info in checkpoints if info.metrics["val_loss"] < 0.1)


    def train(directory: Path) -> int:
        model = Model()
        state: dict[str, Any] = {"model": model, "rng": pitstop.Rng(), "best": None}
        retention = pitstop.KeepLast(3) | pitstop.KeepBest("val_loss")
        assert_type(retention, pitstop.Retention)
        interval = pitstop.EverySteps(500) | pitstop.Overhead(0.02)
        assert_type(interval, pitstop.Interval)
        with (
            pitstop.Interrupter.on_signals() as interrupter,
            pitstop.AsyncCheckpointer(
                directory, interrupter=interrupter, retention=milestones | retention, interval=interval
            ) as ckpt,
        ):
            start = ckpt.resume(into=state) or 0
            for step in range(start + 1, 10_001):
                model.weights["w"] += 1.0
                loss = model.weights["w"].sum()
                if ckpt.should_save(step) or interrupter.should_stop():
                    handle = ckpt.save(step, state, metrics={"val_loss": loss}, metadata={"epoch": 1})
                    assert_type(handle.result(timeout=60), pitstop.CheckpointInfo)
                    assert_type(handle.progress(), tuple[int, int])
                if interrupter.should_stop():
                    break
            assert_type(ckpt.best("val_loss", mode="max"), int | None)
            assert_type([save.stall for save in ckpt.stats().saves], list[float])
            assert_type(ckpt.memory(), dict[str, int])
            assert_type([(plan.step, plan.keep, plan.reasons) for plan in ckpt.plan()],
                        list[tuple[int, bool, tuple[str, ...]]])
            with pitstop.Renderer(epochs=np.int64(9), checkpointer=ckpt, interrupter=interrupter) as screen:
                for batch in screen.track([b"batch"], "train"):
                    assert_type(batch, bytes)
                    screen.log({"top 5": np.float32(0.5)}, loss=loss, phase="warm-up", split="valid")
                screen.step = screen.step + np.int64(1)
                screen.end({"device": "cpu", "parameters": 3})
            # No block swallows exceptions, so that nothing is missing below.
            return start


    def look(directory: Path) -> None:
        for info in pitstop.checkpoints(directory):
            assert_type(info.path, Path)
            assert_type(info.created, datetime)
            assert_type(info.metrics, dict[str, float])
        model = Model()
        assert_type(pitstop.restore(directory, into=model), Model)
        assert_type(pitstop.restore(str(directory), 500, only=["model.*"], framework="numpy"), Any)
        try:
            pitstop.save(directory, {"w": 1}, step=np.int64(3))
        except pitstop.StateMismatchError as error:
            assert_type(error.missing, list[str])
        except pitstop.CorruptCheckpointError as error:
            assert_type(error.tensor, str | None)
"""

WRONG = """
    import pitstop

    pitstop.AsyncCheckpointer("run", pitstop.KeepAll())  # wrong
    pitstop.AsyncCheckpointer("run", on_busy="later")  # wrong
    pitstop.AsyncCheckpointer("run", retention=3)  # wrong
    pitstop.AsyncCheckpointer("run", interval=500)  # wrong
    pitstop.EverySteps(5) | 3  # wrong
    pitstop.AsyncCheckpointer("run", retention=lambda checkpoints: "3")  # wrong
    pitstop.AsyncCheckpointer("run").save(1.5, {})  # wrong
    pitstop.AsyncCheckpointer("run").resume()  # wrong
    pitstop.restore("run", framework="tensorflow")  # wrong
    pitstop.restore("run", into={}, mmap=True)  # wrong
    pitstop.KeepBest("loss", mode="lowest")  # wrong
    pitstop.KeepLast(1) | None  # wrong
    pitstop.KeepLast(3).n = 4  # wrong
    pitstop.save("run", {}, metrics={"loss": "low"})  # wrong
    pitstop.Renderer(9)  # wrong
    pitstop.Renderer().track([], "val")  # wrong
    pitstop.Renderer().log(loss=None)  # wrong
    pitstop.Renderer().register("loss", goal="low")  # wrong
"""


def mypy(tmp_path, program):
    """Checks `program` as a user would who has installed pitstop; returns the exit code and the report."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(program))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=cache", script.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_a_typed_training_script_passes_mypy(tmp_path):
    assert mypy(tmp_path, TRAINING) == (0, "Success: no issues found in 1 source file\n")


def test_mypy_finds_what_would_be_an_error_at_run_time(tmp_path):
    code, report = mypy(tmp_path, WRONG)
    lines = textwrap.dedent(WRONG).splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    found = {int(number) for number in re.findall(r"^script\.py:(\d+): error:", report, re.MULTILINE)}
    assert (code, found) == (1, wrong), report


def test_a_repr_says_what_it_is(checkpointer, run):
    handle = checkpointer.save(1, {"w": 1}, metrics={"loss": 0.5})
    info = handle.result()
    assert "SaveHandle" in repr(handle)
    assert "1" in repr(handle)
    assert "CheckpointInfo" in repr(info)
    assert "step=1" in repr(info)
    assert str(run) in repr(checkpointer)
