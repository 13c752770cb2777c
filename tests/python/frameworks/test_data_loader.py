"""The workers of a DataLoader are forked while a save runs, and go their own way."""

import disk
import pitstop
import pytest
from same import assert_same

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.mark.parametrize("persistent", [False, True])
def test_data_loader_workers_beside_deferred_saves(run, persistent):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    model = torch.nn.Linear(512, 512)
    optimizer = torch.optim.Adam(model.parameters())
    data = TensorDataset(torch.arange(24).float().repeat(512, 1).T)
    loader = DataLoader(
        data, batch_size=8, num_workers=2, persistent_workers=persistent, multiprocessing_context="fork"
    )
    state = {"model": model, "optimizer": optimizer}
    step, expected = 0, {}
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.protect(optimizer)
        for _ in range(3):  # the workers are forked while the save of the epoch before is in flight
            seen = 0
            for (batch,) in loader:
                step += 1
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
                seen += batch[:, 0].sum().item()
                expected[step] = model.weight.detach().numpy().copy()
                checkpointer.save(step, state)
            assert seen == sum(range(24))
        del loader
    assert disk.whole_steps(run) == list(range(1, step + 1))
    for number, weight in expected.items():
        assert_same(weight, pitstop.restore(run, number, framework="numpy")["model"]["weight"])
