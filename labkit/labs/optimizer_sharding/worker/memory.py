"""What a rank holds when all is built, and before and after two updates: by its tensors and by the allocator."""

from __future__ import annotations

import gc

import torch

from labkit.engine.worker import Worker
from labkit.labs.optimizer_sharding.worker.training import Replica
from labkit.labs.optimizer_sharding.worker.ways import held, states
from labkit.worker.counting import Collectives, Saved

MIB = 2**20


def weigh(worker: Worker, point) -> None:
    """Append a row a moment: what is held there, and the most that was held since the moment before.

    Moments: "built", then for step 0 and 1 "before update" and "after update". Bytes of parameters, gradients and
    states are those of this rank's tensors; on a GPU `allocated_mib` and `peak_mib` are the allocator's. The row of
    step 0 before its update also has `activations_mib`, which forward saved. At last a row a kind of collective that
    an update calls (entry "traffic").
    """
    gpu, ledger = worker.device.type == "cuda", Ledger(worker)
    replica = Replica(worker.plan, point, worker.rank, worker.device)
    ledger.note(replica, "built", 0)
    for step in range(2):
        more = {}
        if step == 0:
            with (saved := Saved()):
                loss = replica.forward()
            loss.backward()  # what a hook saw saved is let go by a backward alone
            replica.optimizer.zero_grad()
            del loss
            more = {"activations_mib": saved.bytes / MIB}
            ledger.start()
        replica.gradients()
        ledger.note(replica, "before update", step, **more)
        replica.optimizer.step()
        ledger.note(replica, "after update", step)
        replica.optimizer.zero_grad()
        ledger.start()
    replica.gradients()
    with Collectives() as sent:
        replica.optimizer.step()
    for collective, calls in sent.calls.items():
        worker.record(entry="traffic", collective=collective, calls=calls, sent_bytes=sent.bytes[collective])
    if gpu:
        worker.synchronize()


class Ledger:
    """Notes moments; the allocator's peak counts from the moment before."""

    def __init__(self, worker: Worker):
        self.worker, self.gpu = worker, worker.device.type == "cuda"
        gc.collect()
        self.start()
        self.base = torch.cuda.memory_allocated() if self.gpu else 0  # what an earlier point has left

    def start(self) -> None:
        """Have the allocator's peak count from here."""
        if self.gpu:
            self.worker.synchronize()
            torch.cuda.reset_peak_memory_stats()

    def note(self, replica: Replica, moment: str, step: int, **more) -> None:
        """Append what this rank holds now."""
        parameters = list(replica.model.parameters())
        row = {
            "parameters": held(parameters),
            "states": held(states(replica.optimizer)),
            "gradients": held(one.grad for one in parameters if one.grad is not None),
        }
        if self.gpu:
            self.worker.synchronize()
            row |= {
                "allocated": torch.cuda.memory_allocated() - self.base,
                "peak": torch.cuda.max_memory_allocated() - self.base,
            }
        sizes = {f"{name}_mib": size / MIB for name, size in row.items()}
        self.worker.record(entry="memory", moment=moment, step=step, base_mib=self.base / MIB, **sizes, **more)
        self.start()
