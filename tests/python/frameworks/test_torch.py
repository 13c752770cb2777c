"""PyTorch: tensors of every kind, modules, optimizers and schedulers, and runs that go on to the last bit."""

import random
import signal
import time

import child
import disk
import pitstop
import pytest
import torch
import torch_kinds
import torch_trainer
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

pytestmark = pytest.mark.frameworks

DTYPES = [
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
]


def bits(tensor):
    """The bytes of a tensor, in the order of its elements."""
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def assert_same_tensor(expected, actual, where="tensor"):
    assert isinstance(actual, torch.Tensor), f"{where}: a tensor came back as {type(actual)}"
    assert actual.dtype == expected.dtype, where
    assert actual.shape == expected.shape, where
    assert bits(actual) == bits(expected), f"{where}: bits differ"


def values_of(name, count=24):
    """Arbitrary bytes seen as a dtype."""
    dtype = getattr(torch, name)
    data = torch.randint(
        0, 256, (count * dtype.itemsize,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    return (data & 1).to(torch.bool) if dtype == torch.bool else data.view(dtype)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype(round_trip, name):
    values = values_of(name)
    state = {
        "flat": values,
        "matrix": values.reshape(2, 3, 4),
        "scalar": values[3:4].reshape(()),
        "empty": values[:0],
        "empty_matrix": values[:0].reshape(0, 5),
        "transposed": values.reshape(4, 6).t(),
        "strided": values[::3],
        "expanded": values[:1].expand(7),
    }
    back = round_trip(state)
    assert list(back) == list(state)
    for key, tensor in state.items():
        assert_same_tensor(tensor, back[key], key)


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "complex128"])
def test_every_dtype_opens_in_safetensors_as_itself(tmp_path, name):
    pitstop.save(tmp_path / "c", {"model": {"layer.weight": values_of(name).reshape(4, 6)}})
    loaded = load_file(tmp_path / "c" / "model.safetensors")
    assert list(loaded) == ["layer.weight"]
    assert_same_tensor(values_of(name).reshape(4, 6), loaded["layer.weight"])


def test_conjugated_and_negated_views(round_trip):
    values = torch.randn(3, 4, dtype=torch.complex64)
    state = {"conj": values.conj(), "neg": values.conj().imag, "real": values.real, "imag": values.imag}
    assert state["conj"].is_conj()
    assert state["neg"].is_neg()
    back = round_trip(state)
    for key, tensor in state.items():
        assert_same_tensor(tensor, back[key], key)
        torch.testing.assert_close(back[key], tensor, rtol=0, atol=0)


def test_tensors_that_require_grad(round_trip):
    leaf = torch.randn(3, requires_grad=True)
    state = {
        "leaf": leaf,
        "result": leaf * 2,
        "parameter": nn.Parameter(torch.randn(2)),
        "buffer": nn.Buffer(torch.ones(2)),
    }
    back = round_trip(state)
    for key, tensor in state.items():
        assert_same_tensor(tensor, back[key], key)


def test_channels_last(round_trip):
    tensor = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert_same_tensor(tensor, round_trip({"t": tensor})["t"])


def test_tensors_made_in_inference_mode(round_trip):
    with torch.inference_mode():
        tensor = torch.ones(3)
    assert_same_tensor(tensor, round_trip({"t": tensor})["t"])


def test_sizes_dtypes_and_devices(round_trip):
    state = {
        "size": torch.Size([2, 3]),
        "empty": torch.Size([]),
        "dtypes": [getattr(torch, name) for name in DTYPES],
        "devices": [torch.device("cpu"), torch.device("cuda", 1), torch.device("meta")],
    }
    back = round_trip(state)
    assert back == state
    assert [type(back[key]) for key in ("size", "empty")] == [torch.Size, torch.Size]


def test_tied_weights_come_back_tied_and_are_stored_once(tmp_path):
    model = nn.ModuleDict({"embed": nn.Embedding(512, 64), "head": nn.Linear(64, 512, bias=False)})
    model["head"].weight = model["embed"].weight
    pitstop.save(tmp_path / "c", {"model": model})
    back = pitstop.restore(tmp_path / "c")["model"]
    assert back["embed.weight"].data_ptr() == back["head.weight"].data_ptr()
    back["embed.weight"][0, 0] = 7.0
    assert back["head.weight"][0, 0] == 7.0
    stored = sum(file.stat().st_size for file in disk.files(tmp_path / "c"))
    assert stored < 1.5 * model["embed"].weight.nbytes
    model["embed"].weight.data.zero_()
    pitstop.restore(tmp_path / "c", into={"model": model})
    assert model["head"].weight is model["embed"].weight
    assert model["head"].weight.abs().sum() > 0


def test_overlapping_views_come_back_shared(round_trip):
    base = torch.arange(20, dtype=torch.float32)
    state = {
        "whole": base,
        "part": base[4:12].reshape(2, 4).t(),
        "odd": base[1::2],
        "bytes": base.view(torch.uint8)[8:24],
    }
    back = round_trip(state)
    for _ in range(2):
        for key, tensor in state.items():
            assert_same_tensor(tensor, back[key], key)
        base.neg_()
        back["whole"].neg_()


def test_a_tensor_and_a_numpy_array_on_one_memory_come_back_shared(round_trip):
    tensor = torch.arange(6.0)
    back = round_trip({"torch": tensor, "numpy": tensor.numpy()})
    back["torch"][2] = -1
    assert back["numpy"][2] == -1


def test_a_tensor_is_filled_in_place(tmp_path):
    saved = {
        "plain": torch.randn(3, 4),
        "strided": torch.randn(6),
        "list": [torch.randn(2)],
        "leaf": torch.randn(3),
    }
    pitstop.save(tmp_path / "c", saved)
    state = {
        "plain": torch.zeros(3, 4),
        "strided": torch.zeros(12)[::2],
        "list": [torch.zeros(2)],
        "leaf": torch.zeros(3, requires_grad=True),
    }

    def tensors():
        return [state["plain"], state["strided"], state["list"][0], state["leaf"]]

    before, addresses = tensors(), [tensor.data_ptr() for tensor in tensors()]
    pitstop.restore(tmp_path / "c", into=state)
    for now, was, expected in zip(
        tensors(), before, [saved["plain"], saved["strided"], saved["list"][0], saved["leaf"]], strict=True
    ):
        assert now is was
        assert_same_tensor(expected, now)
    assert [tensor.data_ptr() for tensor in tensors()] == addresses
    assert state["leaf"].requires_grad


@pytest.mark.parametrize("view", [lambda windows: windows, lambda windows: windows.conj()])
def test_a_target_whose_elements_share_memory_is_refused(tmp_path, view):
    # Elements that are one in memory took the value of the last of them, in silence.
    base = torch.zeros(6, dtype=torch.complex64)
    pitstop.save(tmp_path / "c", {"t": torch.ones(4, 3, dtype=torch.complex64)})
    with pytest.raises(pitstop.StateMismatchError, match="share memory"):
        pitstop.restore(tmp_path / "c", into={"t": view(base.unfold(0, 3, 1))})
    assert (base == 0).all()


# What is filled by copying: what lies on another device, or has other bytes in memory than in a checkpoint.
COPIED = pytest.mark.parametrize(
    "made",
    [
        lambda: torch._neg_view(torch.zeros(6)),
        lambda: torch.zeros(6, dtype=torch.complex64).conj(),
        lambda: torch.zeros(6, dtype=torch.complex128).conj(),
        pytest.param(
            lambda: torch.zeros(6, device="cuda"),
            marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU in this machine"),
        ),
    ],
    ids=["negated", "conjugated", "conjugated_128", "gpu"],
)


@COPIED
@pytest.mark.parametrize("start", [0, 2], ids=["tied", "overlapping"])
def test_copied_tensors_that_share_memory_are_not_given_different_values(tmp_path, made, start):
    # The second copy took the place of the first, in silence.
    memory = made()
    saved = {"a": torch.ones(4, dtype=memory.dtype), "b": torch.full((4,), 2, dtype=memory.dtype)}
    pitstop.save(tmp_path / "c", saved)
    with pytest.raises(pitstop.StateMismatchError, match=r"b \(shares memory with a"):
        pitstop.restore(tmp_path / "c", into={"a": memory[:4], "b": memory[start : start + 4]})
    assert (memory == 0).all()


@COPIED
@pytest.mark.parametrize("verify", [True, False])
def test_copied_tensors_that_share_memory_take_what_was_shared_or_alike(tmp_path, made, verify):
    def views(whole):
        return {"whole": whole, "again": whole[:], "part": whole[2:], "odd": whole[1::2]}

    memory = made()
    values = torch.arange(1, 7).to(memory.dtype)
    pitstop.save(tmp_path / "shared", views(values))
    pitstop.save(tmp_path / "alike", {"a": values.clone(), "b": values.clone()})
    pitstop.restore(tmp_path / "shared", into=views(memory), verify=verify)
    assert (memory == values).all()
    memory.zero_()
    pitstop.restore(tmp_path / "alike", into={"a": memory, "b": memory[:]}, verify=verify)
    assert (memory == values).all()


@COPIED
def test_copied_views_of_one_tensor_are_not_given_the_values_of_others(tmp_path, made):
    memory = made()
    values = torch.arange(1, 7).to(memory.dtype)
    pitstop.save(tmp_path / "c", {"whole": values, "left": values[:3], "right": values[3:]})
    target = {"whole": made(), "left": memory[:3], "right": memory[:3]}
    with pytest.raises(pitstop.StateMismatchError, match="shares memory with"):
        pitstop.restore(tmp_path / "c", into=target)
    assert (memory == 0).all()


def test_a_backward_pass_does_not_go_on_with_restored_values(tmp_path):
    # torch did not know of the change: the gradient was that of the restored values, in silence.
    pitstop.save(tmp_path / "c", {"w": torch.full((3,), 5.0, requires_grad=True)})
    state = {"w": torch.full((3,), 2.0, requires_grad=True)}
    loss = (state["w"] ** 2).sum()
    pitstop.restore(tmp_path / "c", into=state)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    (state["w"] ** 2).sum().backward()
    assert (state["w"].grad == 10).all()


def test_tensors_made_in_inference_mode_are_filled(tmp_path):
    """They have no version to raise."""
    pitstop.save(tmp_path / "c", {"t": torch.ones(3), "u": torch.ones(3)})
    with torch.inference_mode():
        state = {"t": torch.zeros(3)}
    state["u"] = torch.zeros(3)
    version = state["u"]._version
    pitstop.restore(tmp_path / "c", into=state)
    assert (state["t"] == 1).all()
    assert state["u"]._version > version


def test_a_module_keeps_its_parameters_where_they_are(tmp_path):
    first, second = torch_trainer.made(), torch_trainer.made()
    torch_trainer.learn(first)
    pitstop.save(tmp_path / "c", first)
    parameters = list(second["model"].parameters())
    addresses = [parameter.data_ptr() for parameter in parameters]
    pitstop.restore(tmp_path / "c", into=second)
    for before, address, now in zip(parameters, addresses, second["model"].parameters(), strict=True):
        assert now is before
        assert now.data_ptr() == address
    for name, tensor in first["model"].state_dict().items():
        assert_same_tensor(tensor, second["model"].state_dict()[name], name)


def test_a_module_file_has_the_names_of_its_state_dict(tmp_path):
    model = torch_trainer.made()["model"]
    pitstop.save(tmp_path / "c", {"model": model})
    with safe_open(tmp_path / "c" / "model.safetensors", "pt") as file:
        assert sorted(file.keys()) == sorted(model.state_dict())
    model.load_state_dict(pitstop.restore(tmp_path / "c")["model"])


def test_a_module_that_does_not_fit_is_a_mismatch_and_stays_as_it_was(tmp_path):
    pitstop.save(tmp_path / "c", {"model": nn.Linear(3, 4), "step": 1})
    model = nn.Sequential(nn.Linear(3, 5))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = {"model": model, "step": 0}
    with pytest.raises(pitstop.StateMismatchError) as caught:
        pitstop.restore(tmp_path / "c", into=state)
    for name in ("model.weight", "model.0.weight", "model.0.bias"):
        assert name in str(caught.value)
    assert state["step"] == 0
    for name, tensor in model.state_dict().items():
        assert_same_tensor(before[name], tensor, name)


def test_a_tensor_of_another_shape_or_dtype_is_a_mismatch(tmp_path):
    pitstop.save(tmp_path / "c", {"a": torch.ones(3), "b": torch.ones(3)})
    target = {"a": torch.zeros(4), "b": torch.zeros(3, dtype=torch.bfloat16)}
    with pytest.raises(pitstop.StateMismatchError) as caught:
        pitstop.restore(tmp_path / "c", into=target)
    assert "a" in str(caught.value)
    assert "b" in str(caught.value)
    assert target["a"].abs().sum() + target["b"].abs().sum() == 0


@pytest.mark.parametrize("stop", [1, 5, 11])
def test_a_resumed_run_ends_bit_identical(run, stop):
    expected = torch_trainer.train()
    torch_trainer.train(run, steps=stop)
    assert torch_trainer.train(run) == expected


OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1, amsgrad=True),
    "AdamW groups": lambda parameters: torch.optim.AdamW(
        [{"params": [one], "lr": 0.1} for one in parameters]
    ),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.1, centered=True),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
    "LBFGS": lambda parameters: torch.optim.LBFGS(parameters, lr=0.1),
    "Rprop": lambda parameters: torch.optim.Rprop(parameters, lr=0.1),
}
SCHEDULERS = {
    "StepLR": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2),
    "Cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
    "Sequential": lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.ConstantLR(optimizer),
            torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
        ],
        milestones=[2],
    ),
    "MultiStepLR": lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4]),
}


def quadratic(optimizer, schedule, model, steps):
    def loss():
        optimizer.zero_grad()
        value = (model(torch.ones(2, 3)) ** 2).sum()
        value.backward()
        return value

    for _ in range(steps):
        optimizer.step(loss)
        schedule.step()


@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    [*((name, "StepLR") for name in OPTIMIZERS), *(("SGD", name) for name in SCHEDULERS)],
)
def test_optimizers_and_schedulers_continue_bit_identically(round_trip, tmp_path, optimizer, schedule):
    def made():
        torch.manual_seed(1)
        model = nn.Linear(3, 2)
        made_optimizer = OPTIMIZERS[optimizer](list(model.parameters()))
        return {"model": model, "optimizer": made_optimizer, "schedule": SCHEDULERS[schedule](made_optimizer)}

    straight, first, second = made(), made(), made()
    quadratic(straight["optimizer"], straight["schedule"], straight["model"], 6)
    quadratic(first["optimizer"], first["schedule"], first["model"], 3)
    pitstop.save(tmp_path / "c", first)
    with torch.no_grad():
        second["model"].weight.zero_()
    pitstop.restore(tmp_path / "c", into=second)
    quadratic(second["optimizer"], second["schedule"], second["model"], 3)
    for name, tensor in straight["model"].state_dict().items():
        assert_same_tensor(tensor, second["model"].state_dict()[name], name)
    assert straight["schedule"].get_last_lr() == second["schedule"].get_last_lr()


def test_a_lambda_schedule_is_refused_by_its_path(tmp_path):
    class Warmup:
        def __call__(self, epoch):
            return 1.0

    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda epoch: 1.0])
    pitstop.save(tmp_path / "fine", {"scheduler": schedule})  # torch itself leaves plain functions out
    for broken in (
        {"scheduler": {"lr_lambdas": [lambda epoch: 1.0]}},
        {"scheduler": {"lr_lambdas": [Warmup()]}},
    ):
        with pytest.raises(pitstop.UnsupportedTypeError) as caught:
            pitstop.save(tmp_path / "refused", broken)
        assert 'state["scheduler"]["lr_lambdas"][0]' in str(caught.value)
    assert disk.visible(tmp_path) == {"fine"}


def test_a_generator_is_refused_with_what_to_save_instead(checkpointer):
    with pytest.raises(pitstop.UnsupportedTypeError, match=r"pitstop\.Rng\(generator\)"):
        checkpointer.save(1, {"generator": torch.Generator()})


def test_rng_continues_torch_where_it_was(checkpointer):
    torch.manual_seed(5)
    torch.randn(3)
    checkpointer.save(1, {"rng": pitstop.Rng()})
    expected = [torch.randn(5), torch.randperm(10)]
    torch.manual_seed(6)
    checkpointer.resume(into={"rng": pitstop.Rng()})
    assert bits(torch.randn(5)) == bits(expected[0])
    assert bits(torch.randperm(10)) == bits(expected[1])


@pytest.mark.parametrize("seed", range(4))
def test_a_run_killed_during_a_save_ends_bit_identical(run, seed):
    dice = random.Random(seed)
    folder = torch_trainer.__file__.rsplit("/", 1)[0]
    program = f"""
        import runpy, sys
        sys.path.insert(0, {folder!r})
        runpy.run_module("torch_trainer", run_name="__main__")
    """
    process = child.start(program, run)
    child.read_until(process, f"saving {dice.randint(1, torch_trainer.STEPS)}")
    time.sleep(dice.random() * 0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=child.TIMEOUT)
    disk.whole_steps(run)
    assert torch_trainer.train(run) == torch_trainer.train()


def test_a_tensor_changed_right_after_save_is_saved_as_it_was(checkpointer):
    weight = torch.zeros(4 << 20)
    parameter = nn.Parameter(torch.zeros(4 << 20))
    for step in range(1, 4):
        weight.fill_(step)
        parameter.data.fill_(step)
        checkpointer.save(step, {"w": weight, "p": parameter})
        weight.fill_(-1)
        parameter.data.fill_(-1)
    for step in range(1, 4):
        back = checkpointer.restore(step)
        assert (back["w"] == step).all()
        assert (back["p"] == step).all()


def test_a_tensor_may_be_freed_or_resized_right_after_save(checkpointer):
    weight = torch.ones(4 << 20)
    checkpointer.save(1, {"w": weight})
    weight.untyped_storage().resize_(0)
    assert (checkpointer.restore(1)["w"] == 1).all()


def test_framework_chooses_what_tensors_become(tmp_path):
    import numpy as np

    pitstop.save(tmp_path / "c", {"torch": torch.arange(3), "numpy": np.arange(3.0), "n": 1})
    as_it_was = pitstop.restore(tmp_path / "c")
    as_torch = pitstop.restore(tmp_path / "c", framework="torch")
    as_numpy = pitstop.restore(tmp_path / "c", framework="numpy")
    assert [type(as_it_was[key]) for key in ("torch", "numpy", "n")] == [torch.Tensor, np.ndarray, int]
    assert [type(as_torch[key]) for key in ("torch", "numpy", "n")] == [torch.Tensor, torch.Tensor, int]
    assert [type(as_numpy[key]) for key in ("torch", "numpy", "n")] == [np.ndarray, np.ndarray, int]
    assert_same_tensor(torch.arange(3.0, dtype=torch.float64), as_torch["numpy"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        lambda: torch.ones(3, device="meta"),
        *torch_kinds.OUTGROWN.values(),
    ],
    ids=["sparse_coo", "sparse_csr", "nested", "quantized", "meta", *torch_kinds.OUTGROWN],
)
@pytest.mark.filterwarnings("ignore")
def test_a_tensor_without_plain_memory_is_refused_by_its_path(tmp_path, make):
    with pytest.raises(pitstop.UnsupportedTypeError) as caught:
        pitstop.save(tmp_path / "c", {"model": {"odd": make()}})
    assert 'state["model"]["odd"]' in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", torch_kinds.OUTGROWN)
def test_a_tensor_that_outgrows_its_storage_is_neither_saved_nor_filled(tmp_path, kind):
    # Broke: only a null address was told, which a freed tensor behind an offset does not have. Saving read,
    # and filling wrote, beyond the memory.
    odd = torch_kinds.OUTGROWN[kind]()
    with pitstop.AsyncCheckpointer(tmp_path / "run") as checkpointer:
        with pytest.raises(pitstop.UnsupportedTypeError, match="freed or made smaller"):
            checkpointer.save(1, {"w": odd})
        checkpointer.save(2, {"w": torch.zeros(odd.shape, dtype=odd.dtype)})
        with pytest.raises(pitstop.StateMismatchError, match="w "):
            checkpointer.restore(2, into={"w": odd})


@pytest.mark.parametrize("kind", torch_kinds.HELD)
def test_a_tensor_that_its_storage_just_holds_is_saved(round_trip, kind):
    tensor = torch_kinds.HELD[kind]()
    assert_same_tensor(tensor, round_trip({"w": tensor})["w"])


def test_views_of_a_part_of_a_storage_are_filled_in_place(tmp_path):
    flat = torch.arange(24.0)
    transposed = flat[10:16].view(2, 3).t()
    views = {"slice": flat[20:], "gaps": flat[1:10:4], "transposed": transposed, "scalar": flat[18]}
    expected = {name: view.clone() for name, view in views.items()}
    pitstop.save(tmp_path / "c", views)
    flat.zero_()
    pitstop.restore(tmp_path / "c", into=views)
    for name, view in views.items():
        assert view.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr(), name
        assert_same_tensor(expected[name], view, name)


def test_a_sharded_tensor_is_refused_by_its_path(tmp_path):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        for placement in (Shard(0), Replicate()):
            tensor = distribute_tensor(torch.ones(4, 2), mesh, [placement])
            with pytest.raises(pitstop.UnsupportedTypeError, match="DTensor") as caught:
                pitstop.save(tmp_path / "c", {"model": {"w": tensor}})
            assert 'state["model"]["w"]' in str(caught.value)
    finally:
        dist.destroy_process_group()
    assert not (tmp_path / "c").exists()


def test_pitstop_does_not_import_torch(tmp_path):
    """`import pitstop` took five seconds, because it imported what the run did not use."""
    output = child.run(
        """
        import sys, numpy as np, pitstop
        with pitstop.AsyncCheckpointer(sys.argv[1]) as checkpointer:
            checkpointer.save(1, {"w": np.ones(3), "rng": pitstop.Rng()})
            checkpointer.resume(into={"w": np.zeros(3), "rng": pitstop.Rng()})
            checkpointer.restore()
        print([name for name in ("torch", "jax") if name in sys.modules])
        """,
        tmp_path / "run",
    )
    assert output.strip() == "[]"


def test_a_torch_checkpoint_is_read_as_numpy_without_torch(tmp_path):
    pitstop.save(tmp_path / "c", {"model": nn.Linear(2, 3), "half": torch.ones(2, dtype=torch.float16)})
    output = child.run(
        """
        import sys, pitstop
        back = pitstop.restore(sys.argv[1], framework="numpy")
        print(back["model"]["weight"].shape, back["half"].dtype, "torch" in sys.modules)
        """,
        tmp_path / "c",
    )
    assert output.strip() == "(3, 2) float16 False"


def test_bit_flips_in_tensors_are_detected(tmp_path):
    pitstop.save(tmp_path / "c", {"model": nn.Linear(2, 2)})
    path = tmp_path / "c" / "model.safetensors"
    for position in range(path.stat().st_size):
        disk.flip(path, position)
        with pytest.raises(pitstop.CorruptCheckpointError):
            pitstop.restore(tmp_path / "c")
        disk.flip(path, position)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU in this machine")
def test_tensors_on_a_gpu(tmp_path):
    state = {"w": torch.randn(1000, device="cuda"), "rng": pitstop.Rng()}
    expected = state["w"].cpu()
    with pitstop.AsyncCheckpointer(tmp_path / "run") as checkpointer:
        checkpointer.save(1, state)
        state["w"].zero_()
        drawn = torch.randn(4, device="cuda")
        address = state["w"].data_ptr()
        checkpointer.resume(into=state)
    assert state["w"].data_ptr() == address
    assert_same_tensor(expected, state["w"])
    assert bits(torch.randn(4, device="cuda")) == bits(drawn)


@pytest.mark.parametrize("view", [torch.conj, lambda z: z.conj().imag])
def test_one_memory_is_not_filled_with_two_values_through_a_view_that_means_another(tmp_path, view):
    """The later of the two won, without an error."""
    memory = torch.zeros(2, dtype=torch.complex64)
    plain = memory if view is torch.conj else memory.imag
    pitstop.save(tmp_path / "c", {"z": torch.ones_like(plain), "c": torch.full_like(plain, 2).resolve_conj()})
    with pytest.raises(pitstop.StateMismatchError, match="shares memory with"):
        pitstop.restore(tmp_path / "c", into={"z": plain, "c": view(memory)})
    assert not memory.any()


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap])
def test_inside_a_transform_a_tensor_is_refused_by_its_place(tmp_path, transform):
    def save(x):
        pitstop.save(tmp_path / "c", {"x": x})
        return x

    with pytest.raises(pitstop.UnsupportedTypeError, match=r"x.*memory of its own"):
        transform(save)(torch.ones(()) if transform is torch.func.grad else torch.ones(2))
