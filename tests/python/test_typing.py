"""The public names: all there, all documented, with the signatures of the contract."""

import importlib.resources
import inspect

import pitstop
import pytest

CLASSES = ["AsyncCheckpointer", "SaveHandle", "CheckpointInfo", "Interrupter", "Rng"]
POLICIES = ["KeepAll", "KeepLast", "KeepBest", "KeepEvery", "KeepFor"]
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
        *("wait", "close", "check", "plan", "__enter__", "__exit__"),
    ],
    "SaveHandle": ["step", "skipped", "done", "wait_snapshot", "result", "progress"],
    "CheckpointInfo": ["step", "path", "created", "metrics", "metadata", "nbytes"],
    "Interrupter": ["stop", "should_stop", "reset", "get_message", "on_signals"],
}


@pytest.mark.parametrize("name", [*CLASSES, *POLICIES, *FUNCTIONS, *ERRORS])
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
    for name in [*CLASSES, *POLICIES, *ERRORS]:
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


@pytest.mark.parametrize("name", [*CLASSES, *POLICIES, *FUNCTIONS, *ERRORS])
def test_names_belong_to_the_package(name):
    """A traceback that says `builtins.SaveError` cannot be looked up."""
    assert getattr(pitstop, name).__module__.split(".")[0] == "pitstop"


EMPTY = inspect.Parameter.empty
SIGNATURES = {
    "AsyncCheckpointer": (
        {"directory": EMPTY},
        {"retention": None, "interrupter": None, "on_busy": "wait", "memory_limit": None}
        | {"verify": True, "incremental": True, "fsync": True},
    ),
    "AsyncCheckpointer.save": (
        {"step": EMPTY, "state": EMPTY},
        {"metrics": None, "metadata": None, "overwrite": False},
    ),
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
    "SaveHandle.done": ({}, {}),
    "SaveHandle.wait_snapshot": ({}, {}),
    "SaveHandle.result": ({"timeout": None}, {}),
    "SaveHandle.progress": ({}, {}),
    "KeepLast": ({"n": EMPTY}, {}),
    "KeepBest": ({"metric": EMPTY, "mode": "min", "n": 1}, {}),
    "KeepEvery": ({"steps": EMPTY}, {}),
    "KeepFor": ({"seconds": EMPTY}, {}),
    "KeepAll": ({}, {}),
    "Interrupter.should_stop": ({}, {}),
    "Interrupter.reset": ({}, {}),
    "Interrupter.get_message": ({}, {}),
    "restore": (
        {"path": EMPTY, "step": None},
        {"into": None, "like": None, "only": None, "framework": None, "mmap": False},
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


def test_a_repr_says_what_it_is(checkpointer, run):
    handle = checkpointer.save(1, {"w": 1}, metrics={"loss": 0.5})
    info = handle.result()
    assert "SaveHandle" in repr(handle)
    assert "1" in repr(handle)
    assert "CheckpointInfo" in repr(info)
    assert "step=1" in repr(info)
    assert str(run) in repr(checkpointer)
