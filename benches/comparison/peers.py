"""The other libraries, each as its documentation has it, and tuned where it can be."""

import json
import os
import pickle
import socket
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .libraries import Library, register
from .workloads import State, leaves, mapped, tensors


def _numpy(state: State) -> State:
    """The same memory as NumPy arrays."""
    return mapped(lambda tensor: tensor.numpy(), state)


def _empty(like: State) -> State:
    return mapped(torch.empty_like, like)


def _process_group() -> None:
    """What some of them need even in a single process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)


@register("control", "(nothing is saved)")
class Control(Library):
    """Ends by itself after 1.5 seconds: what `extra` makes of nothing."""

    asynchronous = True
    copied = False

    def save(self, step: int, state: State) -> None:
        import time

        self.clock = time.perf_counter
        self.end = self.clock() + 1.5

    def done(self) -> bool:
        return self.clock() > self.end


@register("torch_save", "torch.save")
class TorchSave(Library):
    fills = True

    def save(self, step: int, state: State) -> None:
        torch.save(state, self.path(step))

    def restore(self, step: int, like: State) -> Any:
        return torch.load(self.path(step), weights_only=True)

    def fill(self, step: int, state: State) -> None:
        stored = torch.load(self.path(step), weights_only=True, mmap=True)
        for target, source in zip(tensors(state), tensors(stored), strict=True):
            target.copy_(source)


@register("safetensors", "safetensors")
class Safetensors(Library):
    """Tensors by their paths, plain values in the metadata."""

    modules = ("safetensors.torch",)
    fills = True
    owns = False

    def save(self, step: int, state: State) -> None:
        from safetensors.torch import save_file

        named = {"/".join(path): leaf for path, leaf in leaves(state)}
        arrays = {name: leaf for name, leaf in named.items() if isinstance(leaf, torch.Tensor)}
        values = {name: json.dumps(leaf) for name, leaf in named.items() if name not in arrays}
        save_file(arrays, self.path(step), metadata=values)

    def restore(self, step: int, like: State) -> Any:
        from safetensors import safe_open
        from safetensors.torch import load_file

        state = load_file(self.path(step))
        with safe_open(self.path(step), "pt") as file:
            state.update({name: json.loads(value) for name, value in file.metadata().items()})
        return state

    def fill(self, step: int, state: State) -> None:
        from safetensors import safe_open

        with safe_open(self.path(step), "pt") as file:
            for path, leaf in leaves(state):
                if isinstance(leaf, torch.Tensor):
                    leaf.copy_(file.get_tensor("/".join(path)))


@register("numpy_savez", "numpy.savez")
class NumpySavez(Library):
    def path(self, step: int) -> Path:
        return self.root / f"step-{step}.npz"

    def save(self, step: int, state: State) -> None:
        np.savez(self.path(step), **{"/".join(path): np.asarray(leaf) for path, leaf in leaves(state)})

    def restore(self, step: int, like: State) -> Any:
        with np.load(self.path(step)) as archive:
            return {name: archive[name] for name in archive.files}


@register("pickle", "pickle, protocol 5")
class Pickle(Library):
    """Of NumPy arrays, which it writes without copying them."""

    def save(self, step: int, state: State) -> None:
        with open(self.path(step), "wb") as file:
            pickle.dump(_numpy(state), file, protocol=5)

    def restore(self, step: int, like: State) -> Any:
        with open(self.path(step), "rb") as file:
            return pickle.load(file)


@register("dcp", "DCP save")
class Dcp(Library):
    """torch.distributed.checkpoint."""

    modules = ("torch.distributed.checkpoint",)
    fills = True
    alone: dict[str, bool] = {"no_dist": True}  # noqa: RUF012

    def open(self, root: Path, state: State) -> None:
        import torch.distributed.checkpoint as dcp

        super().open(root, state)
        self.dcp = dcp

    def save(self, step: int, state: State) -> None:
        self.dcp.save(state, checkpoint_id=self.path(step), **self.alone)

    def fill(self, step: int, state: State) -> None:
        self.dcp.load(state, checkpoint_id=self.path(step), no_dist=True)

    def restore(self, step: int, like: State) -> Any:
        state = _empty(like)
        self.fill(step, state)
        return state


@register("dcp_thread", "DCP async, thread")
class DcpThread(Dcp):
    """As its documentation has it: the state is copied into new memory before the call returns."""

    modules = (*Dcp.modules, "torch.distributed.checkpoint.state_dict_saver")
    asynchronous = True
    same_restore = "dcp"
    kind = "THREAD"

    def open(self, root: Path, state: State) -> None:
        super().open(root, state)
        from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

        self.options: dict[str, Any] = {
            "async_checkpointer_type": getattr(AsyncCheckpointerType, self.kind),
            **self.alone,
        }

    def save(self, step: int, state: State) -> None:
        self.saved = self.dcp.async_save(state, checkpoint_id=self.path(step), **self.options)

    def done(self) -> bool:
        return self.saved.done()

    def wait(self) -> None:
        self.saved.result()


@register("dcp_thread_cached", "DCP async, thread, cached staging")
class DcpThreadCached(DcpThread):
    """A stager of one's own, which copies in the background into memory that it keeps."""

    modules = (*DcpThread.modules, "torch.distributed.checkpoint.staging")
    copied = False
    shared = False

    def open(self, root: Path, state: State) -> None:
        super().open(root, state)
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        self.stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=False,
                use_shared_memory=self.shared,
                use_async_staging=True,
                use_non_blocking_copy=False,
            )
        )
        self.options["async_stager"] = self.stager

    def settle(self) -> None:
        self.saved.staging_completion.result()

    def done(self) -> bool:
        return self.saved.upload_completion.done()

    def wait(self) -> None:
        self.saved.upload_completion.result()

    def close(self) -> None:
        self.stager.close()


@register("dcp_thread_shared", "DCP async, thread, cached staging in shared memory")
class DcpThreadShared(DcpThreadCached):
    shared = True


@register("dcp_process", "DCP async, process")
class DcpProcess(DcpThread):
    kind = "PROCESS"
    alone: dict[str, bool] = {}  # noqa: RUF012

    def open(self, root: Path, state: State) -> None:
        _process_group()
        super().open(root, state)


@register("dcp_process_shared", "DCP async, process, cached staging in shared memory")
class DcpProcessShared(DcpThreadCached):
    kind = "PROCESS"
    shared = True
    alone: dict[str, bool] = {}  # noqa: RUF012

    def open(self, root: Path, state: State) -> None:
        _process_group()
        super().open(root, state)


@register("orbax_numpy", "Orbax async, NumPy arrays")
class OrbaxNumpy(Library):
    modules = ("jax", "orbax.checkpoint")
    asynchronous = True

    def open(self, root: Path, state: State) -> None:
        import orbax.checkpoint as ocp

        super().open(root, state)
        self.package = ocp
        self.checkpointer = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler())

    def prepare(self, state: State) -> None:
        self.tree = _numpy(state)

    def save(self, step: int, state: State) -> None:
        arguments = self.package.args.PyTreeSave(self.tree)
        self.checkpointer.save(self.path(step), args=arguments)

    def done(self) -> bool:
        # It has no public way of asking without waiting.
        thread = self.checkpointer._async_manager._thread
        return thread is None or not thread.is_alive()

    def wait(self) -> None:
        self.checkpointer.wait_until_finished()

    def array_type(self) -> type:
        """Of the leaves."""
        return np.ndarray

    def restore(self, step: int, like: State) -> Any:
        def how(leaf: Any) -> Any:
            if isinstance(leaf, dict):
                return {key: how(value) for key, value in leaf.items()}
            if isinstance(leaf, (list, tuple)):
                return type(leaf)(map(how, leaf))
            of_array = {"restore_type": self.array_type()} if isinstance(leaf, torch.Tensor) else {}
            return self.package.RestoreArgs(**of_array)

        arguments = self.package.args.PyTreeRestore(item=_numpy(like), restore_args=how(like))
        return self.checkpointer.restore(self.path(step), args=arguments)

    def close(self) -> None:
        self.checkpointer.close()


@register("orbax_jax", "Orbax async, JAX arrays")
class OrbaxJax(OrbaxNumpy):
    """Nobody can change them, so it need not copy."""

    copied = False

    def prepare(self, state: State) -> None:
        import jax

        self.tree = mapped(lambda tensor: jax.numpy.array(tensor.numpy()), state)
        jax.block_until_ready([leaf for _, leaf in leaves(self.tree) if isinstance(leaf, jax.Array)])

    def array_type(self) -> type:
        import jax

        return jax.Array


@register("torchsnapshot", "torchsnapshot async")
class TorchSnapshot(Library):
    """It writes large tensors from the training's own memory, whatever that holds by then."""

    modules = ("torchsnapshot",)
    asynchronous = True
    copied = False
    fills = True

    def open(self, root: Path, state: State) -> None:
        import torchsnapshot

        super().open(root, state)
        self.package = torchsnapshot

    def save(self, step: int, state: State) -> None:
        application = {"state": self.package.StateDict(**state)}
        self.pending = self.package.Snapshot.async_take(str(self.path(step)), application)

    def done(self) -> bool:
        return self.pending.done()

    def wait(self) -> None:
        self.pending.wait()

    def fill(self, step: int, state: State) -> None:
        self._fill(step, state)

    def restore(self, step: int, like: State) -> Any:
        return self._fill(step, _empty(like))

    def _fill(self, step: int, state: State) -> Any:
        application = self.package.StateDict(**state)
        self.package.Snapshot(str(self.path(step))).restore({"state": application})
        return dict(application)


@register("lightning", "Lightning AsyncCheckpointIO")
class Lightning(TorchSave):
    """Its files are those of torch.save."""

    modules = ("lightning.pytorch.plugins.io",)
    asynchronous = True
    same_restore = "torch_save"

    def open(self, root: Path, state: State) -> None:
        from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO

        super().open(root, state)
        self.plugin = AsyncCheckpointIO(TorchCheckpointIO())

    def save(self, step: int, state: State) -> None:
        self.plugin.save_checkpoint(state, self.path(step))
        # Its single thread comes to this when the save has ended.
        self.end = self.plugin._executor.submit(lambda: None)

    def done(self) -> bool:
        return self.end.done()

    def wait(self) -> None:
        self.plugin.teardown()  # the only call that waits and raises; the next save starts anew


@register("nvidia_fork", "nvidia-resiliency-ext, fork")
class NvidiaFork(TorchSave):
    """A forked child calls torch.save. It calls CUDA whether there is any or not: that call is taken out."""

    modules = ("nvidia_resiliency_ext.checkpointing.async_ckpt.torch_ckpt",)
    asynchronous = True
    copied = False
    same_restore = "torch_save"

    def open(self, root: Path, state: State) -> None:
        from nvidia_resiliency_ext.checkpointing.async_ckpt.torch_ckpt import TorchAsyncCheckpoint

        super().open(root, state)
        _process_group()
        torch.cuda.synchronize = lambda *_: None
        self.checkpointer = TorchAsyncCheckpoint(persistent_queue=False)

    def save(self, step: int, state: State) -> None:
        self.checkpointer.async_save(state, os.fspath(self.path(step)))

    def _callers(self) -> list[Any]:
        return [call.async_caller for call in self.checkpointer._async_calls_queue.async_calls]

    def done(self) -> bool:
        processes = [caller.process for caller in self._callers()]
        return not any(process is not None and process.is_alive() for process in processes)

    def wait(self) -> None:
        for caller in self._callers():
            caller.is_current_async_call_done(blocking=True, no_dist=True)
        self.checkpointer._async_calls_queue.async_calls.clear()
