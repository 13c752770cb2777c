"""Tensors of every kind, and what becomes of each when it is saved."""

import ctypes
import tempfile
import warnings
from contextlib import nullcontext
from pathlib import Path

import pitstop
import torch
from torch import nn

COMPLEX = torch.tensor([1 + 2j, 3 - 4j, 5 + 6j])
BASE = torch.arange(48.0)


class Subclass(torch.Tensor):
    pass


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


def shrunk(tensor, nbytes):
    """A tensor whose storage was made smaller behind it, or freed."""
    tensor.untyped_storage().resize_(nbytes)
    return tensor


# Tensors that reach beyond their storage. Behind an offset, the address of one that was freed is not null.
OUTGROWN = {
    "freed": lambda: shrunk(torch.ones(3), 0),
    "freed behind an offset": lambda: shrunk(torch.ones(8)[4:], 0),
    "freed and transposed": lambda: shrunk(torch.ones(8).view(2, 4).t()[1:], 0),
    "freed and expanded": lambda: shrunk(torch.ones(8)[4:5].expand(4), 0),
    "freed and conjugated": lambda: shrunk(torch.ones(8, dtype=torch.complex64)[4:].conj(), 0),
    "shrunk": lambda: shrunk(torch.ones(8), 4),
    "shrunk by one byte": lambda: shrunk(torch.ones(8), 31),
    "shrunk behind an offset": lambda: shrunk(torch.ones(8)[4:], 16),
    "shrunk and with gaps": lambda: shrunk(torch.ones(8)[::3], 24),
}
# Tensors that a storage that was made smaller still holds.
HELD = {
    "empty and freed": lambda: shrunk(torch.ones(8)[3:3], 0),
    "up to the end": lambda: shrunk(torch.ones(8)[2:4], 16),
    "up to the end with gaps": lambda: shrunk(torch.ones(8)[::3], 28),
    "up to the end, expanded": lambda: shrunk(torch.ones(8)[3:4].expand(5), 16),
    "up to the end, transposed": lambda: shrunk(torch.ones(8).view(4, 2)[1:3].t(), 24),
    "scalar at the end": lambda: shrunk(torch.ones(8)[3], 16),
}


def nested(**how):
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], **how)


def wrapped(transform):
    """The tensor that a function sees inside a transform of torch.func."""
    seen = []

    def function(inside):
        seen.append(outcome(inside))
        return inside.sum()

    transform(function)(torch.ones(3, 2))
    return seen[0]


KINDS = {
    "scalar": lambda: torch.tensor(3.0),
    "empty": lambda: torch.empty(0, 3),
    "parameter": lambda: nn.Parameter(torch.ones(2)),
    "frozen parameter": lambda: nn.Parameter(torch.ones(2), requires_grad=False),
    "buffer": lambda: nn.Buffer(torch.ones(2)),
    "result": lambda: torch.ones(2, requires_grad=True) * 2,
    "offset": lambda: BASE[5:],
    "transposed": lambda: BASE.view(6, 8).t(),
    "expanded": lambda: BASE[:1].expand(4),
    "overlapping": lambda: BASE.as_strided((3, 4), (2, 1)),
    "strides of single steps": lambda: BASE.as_strided((1, 3, 1), (77, 1, 99)),
    "gaps behind single steps": lambda: BASE.as_strided((1, 3, 1), (77, 2, 99)),
    "channels last": lambda: BASE.view(1, 3, 4, 4).to(memory_format=torch.channels_last),
    "conjugated": lambda: COMPLEX.conj(),
    "conjugated twice": lambda: COMPLEX.conj().conj(),
    "negated": lambda: COMPLEX.conj().imag,
    "negated without gaps": lambda: torch._neg_view(BASE),
    "negated without history": lambda: torch._neg_view(BASE).data,
    "negated parameter": lambda: nn.Parameter(torch._neg_view(BASE)),
    "conjugated and negated": lambda: torch._neg_view(COMPLEX.conj()),
    "of 128 bits": lambda: COMPLEX.to(torch.complex128)[::2],
    "four bits": lambda: torch.arange(6, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    "lazy clone": lambda: torch._lazy_clone(BASE),
    "inference": lambda: torch.inference_mode()(lambda: torch._neg_view(torch.ones(2)))(),
    "zero": lambda: torch._efficientzerotensor(3),
    **OUTGROWN,
    **HELD,
    "subclass": lambda: torch.ones(2).as_subclass(Subclass),
    "without values yet": nn.UninitializedParameter,
    "sparse": lambda: torch.eye(3).to_sparse(),
    "compressed": lambda: torch.eye(3).to_sparse_csr(),
    "meta": lambda: torch.empty(3, device="meta"),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "nested": nested,
    "jagged": lambda: nested(layout=torch.jagged),
    "mkldnn": lambda: torch.ones(3).to_mkldnn(),
    "fake": fake,
    "functional": lambda: torch._to_functional_tensor(torch.ones(3)),
    **{
        str(dtype): lambda dtype=dtype: torch.ones(16, dtype=torch.uint8).view(dtype)
        for dtype in {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
        if not str(dtype).startswith("torch.q")
    },
}
TRANSFORMS = {"vmap": torch.func.vmap, "grad": torch.func.grad}
MODES = {"plain": nullcontext, "device": lambda: torch.device("meta"), "inference": torch.inference_mode}


def outcome(tensor, mode="plain"):
    """How a tensor comes back that was saved in a mode: its type, shape and bytes, or the error."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "c"
        try:
            with MODES[mode]():
                pitstop.save(path, {"t": tensor}, fsync=False)
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
        back = pitstop.restore(path)["t"]
    flat = back.detach().contiguous().reshape(-1)
    content = flat.view(torch.uint8).tolist() if flat.numel() else []
    return [type(back).__name__, str(back.dtype), back.requires_grad, list(back.shape), content]


def outcomes(modes):
    """The outcome of every kind, under modes that change what calls of torch do."""
    warnings.simplefilter("ignore")
    found = {name: wrapped(transform) for name, transform in TRANSFORMS.items()}
    made = {name: make() for name, make in KINDS.items()}
    for mode in modes:
        found.update((f"{name}, {mode}", outcome(tensor, mode)) for name, tensor in made.items())
    return found


def hide_exchange(how):
    """Makes torch one that offers its quick ways to look at tensors not at all, or in another version."""
    if how == "storage":
        torch.Tensor._cdata = None  # so that the memory of storages is asked for by calls
        return
    if how == "none":
        del torch.Tensor.__dlpack_c_exchange_api__
        return
    get, make = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = b"dlpack_exchange_api"
    address = get(torch.Tensor.__dlpack_c_exchange_api__, name)
    table = ctypes.create_string_buffer(ctypes.string_at(address, 64))
    if how == "version":
        table[0] = 2  # the major version
    if how == "function":
        table[48:56] = bytes(8)  # the function is missing
    hide_exchange.alive = (table, name)
    torch.Tensor.__dlpack_c_exchange_api__ = make(ctypes.addressof(table), name, None)
