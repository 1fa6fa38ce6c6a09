"""Memory counted on a CPU: a storage counts from its making until nothing refers to it, in backward, too."""

from types import SimpleNamespace

import pytest
import torch

from labkit.worker.allocations import CountedMemory, Meter, record_allocations

MEBI = 2**18  # float32 elements of one MiB


def test_storages_count_once_and_while_they_live():
    with CountedMemory() as memory:
        one = torch.zeros(MEBI)
        view = one.view(-1, 2)
        one.add_(1)
        assert memory.held == 2**20
        two = one + 1
        assert memory.held == memory.peak == 2**21
        del one
        assert memory.held == 2**21, "the view still holds it"
        del view, two
        assert (memory.held, memory.peak) == (0, 2**21)
    assert [event["action"] for event in memory.events] == ["alloc", "alloc", "free_requested", "free_requested"]


def test_backward_is_counted_and_frees_what_forward_kept():
    with CountedMemory() as memory:
        weight = torch.ones(512, 512, requires_grad=True)
        loss = (weight * 2).exp().sum()
        kept = memory.held
        loss.backward()
        assert kept >= 2 * 2**20
        assert memory.held == 2 * 2**20 + loss.nbytes, "weight, gradient and the loss"
        assert memory.peak > kept


class Notes(SimpleNamespace):
    """A worker that keeps its rows."""

    def record(self, **row):
        self.rows.append(row)


def test_a_history_on_a_cpu_has_phases_kinds_and_lines():
    worker = Notes(device=torch.device("cpu"), rows=[])
    with Meter(worker) as meter:
        weight = torch.ones(MEBI, requires_grad=True)
        losses = []
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        phases = [
            ("forward", lambda: losses.append((weight * weight).exp().sum())),
            ("backward", lambda: losses.pop().backward()),
            ("optimizer", lambda: (optimizer.step(), optimizer.zero_grad())),
        ]
        record_allocations(worker, phases, iterations=1, meter=meter, lines=True)
        assert meter.held_bytes() == 2 * 2**20, "weight and momentum"
    rows = [row for row in worker.rows if row["entry"] == "memory timeline"]
    assert rows[0]["base_mib"] == 1 and rows[0]["reserved_mib"] == 0
    assert max(row["activations_mib"] for row in rows) == pytest.approx(1, abs=1e-3)
    assert max(row["gradients_mib"] for row in rows) == pytest.approx(1, abs=1e-3)
    assert rows[-1]["optimizer_mib"] == pytest.approx(1, abs=1e-3) and rows[-1]["phase"] == "optimizer"
    allocations = [row for row in worker.rows if row["entry"] == "allocation"]
    assert {row["phase"] for row in allocations} == {"forward", "backward", "optimizer"}
    assert all(row["size_mib"] <= 1.001 for row in allocations)


def test_without_a_meter_a_cpu_remembers_nothing():
    worker = Notes(device=torch.device("cpu"), rows=[])
    record_allocations(worker, [("forward", lambda: None)])
    assert worker.rows == []
