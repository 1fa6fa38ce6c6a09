"""Two ledgers of a step: what the rank holds, counted in tensors and by the allocator, and what it sends."""

from __future__ import annotations

import gc

import torch

from labkit.engine.worker import Worker
from labkit.worker.counting import Collectives, Saved
from labkit.worker.trainer import Batch, Trainer

MIB = 2**20


def keep_ledgers(worker: Worker, trainer: Trainer, micro_batches: list[Batch]) -> None:
    """Run three more steps by hand and append their ledgers.

    A row of entry "memory": parameters, gradients and optimizer states as the rank's tensors hold them, activations
    as the forward of one micro-batch saved them; on a GPU also what the allocator gave out (idle, after forward, after
    backward, the step's peak) and reserved. A row of entry "traffic" for each kind of collective: calls and bytes.
    """
    gpu = worker.device.type == "cuda"
    gc.collect()  # what an earlier point left in a cycle is not this one's

    def allocated() -> float | None:
        worker.synchronize()
        return torch.cuda.memory_allocated() / MIB if gpu else None

    row = {"idle_mib": allocated()}
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    trainer.gradients(micro_batches)
    row["after_backward_mib"] = allocated()
    # Gradients are there before the update, which lets them go; states after it, for it may make them.
    gradients = {name: size for name, size in trainer.holds().items() if name == "gradients"}
    trainer.update()
    held = trainer.holds() | gradients
    row |= {f"{item}_mib": size / MIB for item, size in held.items()}
    if gpu:
        row["peak_mib"] = torch.cuda.max_memory_allocated() / MIB
        row["reserved_mib"] = torch.cuda.max_memory_reserved() / MIB
    with (saved := Saved()):
        loss = trainer.forward(micro_batches[0])
    row["after_forward_mib"] = allocated()
    row["activations_mib"] = saved.bytes / MIB
    trainer.backward(loss)
    trainer.update()
    # Compiled code does not know the mode that counts, and would never be used again: what is sent is the same without.
    with torch.compiler.set_stance("force_eager"), Collectives() as sent:
        trainer.step(micro_batches)
    worker.record(entry="memory", **{name: value for name, value in row.items() if value is not None})
    for collective, calls in sent.calls.items():
        worker.record(entry="traffic", collective=collective, calls=calls, sent_bytes=sent.bytes[collective])
