"""What a forward keeps, and both ledgers of a step."""

from __future__ import annotations

import gc

import torch
from torch import nn

from labkit.engine.worker import Worker
from labkit.theory.sizes import MIB
from labkit.worker.collectives import CollectiveCounter
from labkit.worker.strategies import local_tensor
from labkit.worker.trainer import Batch, Trainer


class SavedTensors(torch.autograd.graph.saved_tensors_hooks):
    """Adds up what a forward keeps for its backward: every storage once; parameters, gathered ones too, left out."""

    def __init__(self):
        self.storages: dict[int, int] = {}
        super().__init__(self._keep, lambda tensor: tensor)

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, nn.Parameter) and not isinstance(tensor._base, nn.Parameter):
            storage = local_tensor(tensor).untyped_storage()
            self.storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    @property
    def bytes(self) -> int:
        return sum(self.storages.values())


def record_ledgers(worker: Worker, trainer: Trainer, micro_batches: list[Batch]) -> None:
    """Run three more steps by hand and append their ledgers.

    A row of entry "memory": parameters, gradients and optimizer states as the rank's tensors hold them, activations
    as the forward of one micro-batch saved them; on a GPU also what the allocator gave out at the step's peak, and
    reserved. A row of entry "traffic" for each kind of collective: calls and bytes.
    """
    gpu = worker.device.type == "cuda"
    gc.collect()  # what an earlier point left in a cycle is not this one's
    worker.synchronize()
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    trainer.gradients(micro_batches)
    worker.synchronize()
    # Gradients are there before the update, which lets them go; states after it, for it may make them.
    gradients = {name: size for name, size in trainer.bytes_by_item().items() if name == "gradients"}
    trainer.update()
    held = trainer.bytes_by_item() | gradients
    row = {f"{item}_mib": size / MIB for item, size in held.items()}
    if gpu:
        row["peak_mib"] = torch.cuda.max_memory_allocated() / MIB
        row["reserved_mib"] = torch.cuda.max_memory_reserved() / MIB
    with (saved := SavedTensors()):
        loss = trainer.forward(micro_batches[0])
    row["activations_mib"] = saved.bytes / MIB
    trainer.backward(loss)
    trainer.update()
    # Compiled code does not know the mode that counts, and would never be used again: what is sent is the same without.
    with torch.compiler.set_stance("force_eager"), CollectiveCounter() as sent:
        trainer.step(micro_batches)
    worker.record(entry="memory", **row)
    for collective, calls in sent.calls.items():
        worker.record(entry="traffic", collective=collective, calls=calls, sent_bytes=sent.bytes[collective])
