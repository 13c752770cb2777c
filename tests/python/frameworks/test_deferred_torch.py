"""Deferred snapshots of torch training."""

import copy

import pitstop
import pytest
import torch


def training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(200, 300), torch.nn.BatchNorm1d(300), torch.nn.Linear(300, 10)
    )
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def forward_backward(model):
    model(torch.randn(32, 200)).square().mean().backward()


def values(model, optimizer):
    return copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_steps_wait_for_the_copy_and_buffers_are_copied_at_once(run):
    model, optimizer = training()
    saved = {}
    with pitstop.AsyncCheckpointer(run, check_deferred=True) as checkpointer:
        checkpointer.protect(optimizer)
        for step in range(1, 8):
            saved[step] = values(model, optimizer)
            checkpointer.save(step, {"model": model, "optimizer": optimizer})
            # Changes the running statistics of the normalisation.
            forward_backward(model)
            optimizer.step()
            optimizer.zero_grad()
    for step, wanted in saved.items():
        back = pitstop.restore(run, step)
        assert same(back["model"], dict(wanted["model"]))
        assert same(back["optimizer"], wanted["optimizer"])


@pytest.mark.parametrize(
    "replace",
    [
        lambda p: setattr(p, "data", torch.zeros_like(p)),
        lambda p: p.set_(torch.zeros_like(p)),
        lambda p: p.data.resize_(3),
    ],
    ids=["data", "set_", "resize_"],
)
def test_memory_that_is_replaced_is_still_there_for_the_copy(run, replace):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        for step in range(1, 20):
            tensors = {f"p{i}": torch.full((200_000,), float(step)) for i in range(10)}
            checkpointer.save(step, tensors, deferred=True)
            for tensor in tensors.values():
                replace(tensor)
            junk = [torch.full((200_000,), -1.0) for _ in range(10)]
            del junk
    for step in range(1, 20):
        back = pitstop.restore(run, step)
        assert all((tensor == step).all() and tensor.shape == (200_000,) for tensor in back.values())


def test_an_optimizer_is_not_kept_alive_and_may_be_copied(run):
    import gc
    import weakref

    model, optimizer = training()
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.protect(optimizer)
        forward_backward(model)
        optimizer.step()
        twin = copy.deepcopy(optimizer)
        twin.step()
        checkpointer.save(1, {"model": model, "optimizer": optimizer}).result()
        known = weakref.ref(optimizer)
        del optimizer
        gc.collect()
        assert known() is None
        checkpointer.save(2, {"model": model}).result()


def test_after_closing_the_optimizer_goes_on(run):
    model, optimizer = training()
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.protect(optimizer)
        checkpointer.save(1, {"model": model})
    forward_backward(model)
    optimizer.step()
    del checkpointer
    optimizer.step()
