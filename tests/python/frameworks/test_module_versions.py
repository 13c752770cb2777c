"""The versions of torch's modules, by which `load_state_dict` translates the state of older ones."""

import collections

import pitstop
import pytest
from torch import nn

pytestmark = pytest.mark.frameworks


class Versioned(nn.Linear):
    """Notes the version of the state that it is given."""

    def __init__(self, version):
        super().__init__(2, 3)
        self._version = version

    def _load_from_state_dict(self, state, prefix, about, *rest):
        self.given = about.get("version")
        super()._load_from_state_dict(state, prefix, about, *rest)


class Trainer:
    """Has the state of a module within its own."""

    def __init__(self, model):
        self.model = model

    def state_dict(self):
        return {"model": self.model.state_dict()}

    def load_state_dict(self, state):
        self.model.load_state_dict(state["model"])


WRAPPED = {"module": lambda model: model, "trainer": Trainer, "state_dict": lambda model: model.state_dict()}


@pytest.mark.parametrize("like", [None, {"model": nn.Linear(2, 3).state_dict()}], ids=["plain", "like"])
def test_a_state_comes_back_with_its_versions(round_trip, like):
    # They were lost, so that torch took every state for one of a module without versions.
    state = Versioned(3).state_dict()
    back = round_trip({"model": state}, like=like)["model"]
    assert type(back) is collections.OrderedDict
    assert back._metadata == state._metadata == {"": {"version": 3}}


@pytest.mark.parametrize("kind", WRAPPED)
@pytest.mark.parametrize("only", [None, "model.*"])
def test_a_module_is_told_the_version_of_the_state_that_it_is_given(tmp_path, kind, only):
    # It was told its own, or none.
    wrapped = WRAPPED[kind]
    pitstop.save(tmp_path / "c", {"model": wrapped(Versioned(1))})
    model = Versioned(2)
    state = {"model": wrapped(model)}
    pitstop.restore(tmp_path / "c", into=state, only=only)
    if isinstance(state["model"], dict):
        model.load_state_dict(state["model"])
    assert model.given == 1


def test_a_module_that_is_restored_in_part_keeps_its_version(tmp_path):
    pitstop.save(tmp_path / "c", {"model": Versioned(1)})
    model = Versioned(2)
    pitstop.restore(tmp_path / "c", into={"model": model}, only="model.weight")
    assert model.given == 2


def test_a_state_that_was_assigned_once_is_filled_in_place_later(tmp_path):
    """`load_state_dict(…, assign=True)` leaves a note of it beside the versions."""
    state = nn.Linear(2, 3).state_dict()
    nn.Linear(2, 3).load_state_dict(state, assign=True)
    assert "assign" in str(state._metadata)
    pitstop.save(tmp_path / "c", {"model": state})
    model = nn.Linear(2, 3)
    weight = model.weight
    pitstop.restore(tmp_path / "c", into={"model": model})
    assert model.weight is weight
    assert weight.tolist() == state["weight"].tolist()


@pytest.mark.parametrize(
    "other", ["text", {1: "one"}, {"": (1, 2)}, {"": float("nan")}, {"": b"bytes"}], ids=repr
)
def test_an_attribute_of_that_name_that_is_something_else_is_left_out(round_trip, other):
    state = collections.OrderedDict(a=1)
    state._metadata = other
    back = round_trip({"model": state})["model"]
    assert back == state
    assert not hasattr(back, "_metadata")
