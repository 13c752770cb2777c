"""The generators of a run, captured and put back."""

from __future__ import annotations

import random
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
from pitstop import Rng
from pitstop.errors import CheckpointWarning


@pytest.fixture(autouse=True)
def global_generators() -> Iterator[None]:
    """Each test leaves the global generators as it found them."""
    python, state = random.getstate(), numpy.random.get_state()
    yield
    random.setstate(python)
    numpy.random.set_state(state)


def assert_can_be_saved(value: Any) -> None:
    """Only types that a checkpoint keeps exactly."""
    if type(value) is dict:
        for key, item in value.items():
            assert type(key) is str
            assert_can_be_saved(item)
    elif type(value) is list:
        for item in value:
            assert_can_be_saved(item)
    else:
        assert value is None or type(value) in (int, float, str, bytes, numpy.ndarray), type(value)


def run(script: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def draw() -> list[Any]:
    return [
        random.random(),
        random.gauss(0, 1),
        random.getrandbits(100),
        numpy.random.random(3).tolist(),
        numpy.random.standard_normal(),
        numpy.random.bytes(5),
    ]


def test_the_global_generators_go_on_with_the_same_numbers() -> None:
    # One draw of each pair is left over, so that the cached second halves count.
    random.seed(1)
    random.gauss(0, 1)
    numpy.random.seed(2)
    numpy.random.standard_normal()
    rng = Rng()
    state = rng.state_dict()
    assert state["python"]["gauss_next"] is not None
    assert state["numpy"]["has_gauss"] == 1
    expected = [draw() for _ in range(300)]
    assert [draw() for _ in range(300)] != expected
    rng.load_state_dict(state)
    assert [draw() for _ in range(300)] == expected
    Rng().load_state_dict(state)
    assert [draw() for _ in range(300)] == expected


def test_loading_gives_back_exactly_what_was_read() -> None:
    random.gauss(0, 1)
    before = (random.getstate(), numpy.random.get_state())
    state = Rng().state_dict()
    draw()
    Rng().load_state_dict(state)
    after = (random.getstate(), numpy.random.get_state())
    assert after[0] == before[0]
    assert after[1][0] == before[1][0]
    assert (after[1][1] == before[1][1]).all()
    assert after[1][2:] == before[1][2:]


def every_generator(seed: int) -> list[Any]:
    bit_generators = [
        kind(seed)
        for kind in (
            numpy.random.MT19937,
            numpy.random.PCG64,
            numpy.random.PCG64DXSM,
            numpy.random.Philox,
            numpy.random.SFC64,
        )
    ]
    generators = [numpy.random.Generator(type(bits)(seed + 1)) for bits in bit_generators]
    return [random.Random(seed), numpy.random.RandomState(seed), *bit_generators, *generators]


def number(generator: Any) -> Any:
    match generator:
        case random.Random():
            return generator.gauss(0, 1)
        case numpy.random.RandomState():
            return generator.standard_normal(), generator.randint(1000)
        case numpy.random.Generator():
            return generator.standard_normal(), generator.integers(1000, dtype=numpy.uint32)
        case _:
            return generator.random_raw()


def test_generators_of_every_kind_are_put_back_in_order() -> None:
    generators = every_generator(3)
    for generator in generators:
        number(generator)
    state = Rng(*generators).state_dict()
    assert_can_be_saved(state)
    expected = [[number(generator) for _ in range(10)] for generator in generators]
    fresh = every_generator(99)
    Rng(*fresh).load_state_dict(state)
    assert [[number(generator) for _ in range(10)] for generator in fresh] == expected


def test_a_state_does_not_change_when_numbers_are_drawn() -> None:
    generator = numpy.random.Generator(numpy.random.Philox(1))
    rng = Rng(generator, numpy.random.RandomState(1))
    state = rng.state_dict()
    before = repr(state)
    draw()
    number(generator)
    assert repr(state) == before


def test_a_global_generator_of_another_kind_is_put_back() -> None:
    before = numpy.random.get_bit_generator()
    try:
        numpy.random.set_bit_generator(numpy.random.PCG64(5))
        state = Rng().state_dict()
        expected = numpy.random.random(3).tolist()
        Rng().load_state_dict(state)
        assert numpy.random.random(3).tolist() == expected
    finally:
        numpy.random.set_bit_generator(before)
    with pytest.raises(ValueError, match=r"bit generator of numpy.random was a PCG64 and is now a MT19937"):
        Rng().load_state_dict(state)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (3, "argument 1 of Rng() is a int, not a random.Random"),
        (random, "is a module"),
        (numpy.random.SeedSequence(1), "SeedSequence"),
        (random.SystemRandom(), "is a random.SystemRandom"),
        ([random.Random(1)], "give the generators one by one"),
    ],
)
def test_what_is_no_generator_is_refused_by_its_type(wrong: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        Rng(random.Random(1), wrong)
    assert text in str(caught.value)


def test_generators_that_differ_are_refused_before_anything_is_set() -> None:
    state = Rng(random.Random(1), numpy.random.default_rng(1)).state_dict()
    before = random.getstate()
    with pytest.raises(ValueError, match="saved with 2 generators and is restored with 1 generator;"):
        Rng(random.Random(1)).load_state_dict(state)
    with pytest.raises(
        ValueError, match=r"generator 0 of Rng\(\) was a random.Random and is now a numpy.random.Gen"
    ):
        Rng(numpy.random.default_rng(1), random.Random(1)).load_state_dict(state)
    with pytest.raises(
        ValueError, match=r"bit generator of generator 1 of Rng\(\) was a PCG64 and is now a MT19937"
    ):
        Rng(random.Random(1), numpy.random.Generator(numpy.random.MT19937(1))).load_state_dict(state)
    random.seed(4)
    for damaged in (
        {},
        {"python": {}},
        {**state, "jax": 1},
        {**state, "python": {"words": b"", "gauss_next": None}},
    ):
        changed = random.getstate()
        with pytest.raises(ValueError):
            Rng(random.Random(1), numpy.random.default_rng(1)).load_state_dict(damaged)
        assert random.getstate() == changed
    assert random.getstate() != before


def test_it_shows_its_generators() -> None:
    assert repr(Rng()) == "Rng()"
    assert repr(Rng(numpy.random.default_rng(1))).startswith("Rng(Generator(PCG64)")


def test_a_framework_that_was_not_imported_is_neither_captured_nor_imported() -> None:
    script = """
import sys
from pitstop import Rng

state = Rng().state_dict()
Rng().load_state_dict(state)
print(sorted(state), "numpy" in sys.modules, "torch" in sys.modules)
"""
    assert run(script) == "['generators', 'python'] False False\n"


def test_what_was_not_captured_is_left_alone() -> None:
    state = Rng().state_dict()
    del state["numpy"]
    expected = numpy.random.RandomState()
    expected.set_state(numpy.random.get_state())
    Rng().load_state_dict(state)
    assert numpy.random.random() == expected.random_sample()


def test_a_framework_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Rng().state_dict() | {"torch": {"cpu": b""}}
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        ImportError, match="the state holds generators of torch, which cannot be imported here"
    ):
        Rng().load_state_dict(state)


# torch, as far as it can be tested without it


class Tensor:
    def __init__(self, content: bytes) -> None:
        import ctypes

        self.buffer = ctypes.create_string_buffer(content, len(content))

    def data_ptr(self) -> int:
        import ctypes

        return ctypes.addressof(self.buffer)

    def numel(self) -> int:
        return len(self.buffer)

    def __bytes__(self) -> bytes:
        return bytes(self.buffer)


class Source:
    """A generator with a few bytes of state."""

    device = types.SimpleNamespace(type="cpu")

    def __init__(self, state: bytes) -> None:
        self.state = state

    def get_state(self) -> Tensor:
        return Tensor(self.state)

    def set_state(self, state: Tensor) -> None:
        self.state = bytes(state)


def fake_torch(gpus: int, initialized: bool = True) -> Any:
    """The parts of torch that have to do with its generators, with this many GPUs."""
    sources = [Source(b"gpu %d" % index) for index in range(gpus)]
    cuda = types.SimpleNamespace(
        sources=sources,
        is_available=lambda: gpus > 0,
        is_initialized=lambda: initialized,
        device_count=lambda: gpus,
        get_rng_state=lambda index: sources[index].get_state(),
        set_rng_state=lambda state, index: sources[index].set_state(state),
    )
    return types.SimpleNamespace(
        Generator=Source,
        default_generator=Source(b"cpu"),
        backends=types.SimpleNamespace(mps=types.SimpleNamespace(is_available=lambda: False)),
        cuda=cuda,
        uint8="uint8",
        frombuffer=lambda content, dtype: Tensor(bytes(content)),
    )


def test_every_gpu_in_use_is_captured_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch(2)
    monkeypatch.setitem(sys.modules, "torch", torch)
    own = Source(b"own")
    state = Rng(own).state_dict()
    assert_can_be_saved(state)
    assert state["torch"] == {"cpu": b"cpu", "cuda": [b"gpu 0", b"gpu 1"]}
    sources = [torch.default_generator, *torch.cuda.sources, own]
    for source in sources:
        source.state = b"later"
    Rng(own).load_state_dict(state)
    assert [source.state for source in sources] == [b"cpu", b"gpu 0", b"gpu 1", b"own"]


def test_a_gpu_that_is_not_in_use_is_not_woken_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(1, initialized=False))
    assert Rng().state_dict()["torch"] == {"cpu": b"cpu"}


@pytest.mark.parametrize(("gpus", "lost"), [(0, "cuda:0, cuda:1"), (1, "cuda:1")])
def test_with_fewer_gpus_those_that_exist_are_put_back(
    monkeypatch: pytest.MonkeyPatch, gpus: int, lost: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(2))
    state = Rng().state_dict()
    torch = fake_torch(gpus)
    for source in torch.cuda.sources:
        source.state = b"later"
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.warns(
        CheckpointWarning, match=f"the generators of {lost} were saved and are not restored"
    ) as caught:
        Rng().load_state_dict(state)
    assert caught[0].filename == __file__
    assert [source.state for source in torch.cuda.sources] == [b"gpu 0", b"gpu 1"][:gpus]


def test_with_more_gpus_the_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(1))
    state = Rng().state_dict()
    torch = fake_torch(2)
    monkeypatch.setitem(sys.modules, "torch", torch)
    torch.cuda.sources[1].state = b"later"
    Rng().load_state_dict(state)
    assert [source.state for source in torch.cuda.sources] == [b"gpu 0", b"later"]


def test_a_torch_generator_on_another_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(0))
    generator = Source(b"own")
    state = Rng(generator).state_dict()
    generator.device = types.SimpleNamespace(type="cuda")
    with pytest.raises(
        ValueError, match=r"generator 0 of Rng\(\) was a torch.Generator on cpu and is now on cuda"
    ):
        Rng(generator).load_state_dict(state)


# torch itself


@pytest.mark.frameworks
def test_torch_goes_on_with_the_same_numbers() -> None:
    import torch

    own = torch.Generator().manual_seed(3)
    torch.manual_seed(1)
    torch.randn(1)
    torch.randn(3, generator=own)
    state = Rng(own).state_dict()
    assert_can_be_saved(state)
    assert len(state["torch"]["cpu"]) == torch.get_rng_state().numel()

    def draws() -> list[Any]:
        return [
            torch.randn(7).tolist(),
            torch.randint(9, (5,)).tolist(),
            torch.randn(3, generator=own).tolist(),
        ]

    expected = [draws() for _ in range(200)]
    Rng(own).load_state_dict(state)
    assert [draws() for _ in range(200)] == expected
    fresh = torch.Generator()
    Rng(fresh).load_state_dict(state)
    own = fresh
    assert [draws() for _ in range(200)] == expected


@pytest.mark.frameworks
def test_torch_is_imported_where_the_state_needs_it() -> None:
    import torch  # noqa: F401

    script = """
import torch
from pitstop import Rng

torch.manual_seed(11)
state = Rng().state_dict()
expected = torch.rand(1).item()
print(repr((state["python"], state["torch"], expected)))
"""
    python, torch_state, expected = eval(run(script))
    script = f"""
import sys
from pitstop import Rng

Rng().load_state_dict({{"python": {python!r}, "torch": {torch_state!r}, "generators": []}})
import torch
print(torch.rand(1).item())
"""
    assert float(run(script)) == expected


@pytest.mark.frameworks
def test_torch_is_put_back_whatever_its_default_device() -> None:
    import torch

    with torch.device("meta"):
        state = Rng().state_dict()
        Rng().load_state_dict(state)
    expected = torch.rand(1).item()
    Rng().load_state_dict(state)
    assert torch.rand(1).item() == expected
