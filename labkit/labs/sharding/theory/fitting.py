"""Which strategy fits a model into a GPU's memory, and on how many GPUs."""

from __future__ import annotations

from labkit.theory.gpt import SIZES, VOCABULARY, activations, gpt
from labkit.theory.memory import PRECISIONS, ledger

GIB = 2**30
KEPT_FREE = 0.06  # of the memory, for the allocator's gaps and the libraries' own buffers
COUNTS = (1, 2, 4, 8, 16, 32, 64)


def fits(
    size: str | tuple[int, int, int],
    strategy: str,
    gpus: int,
    memory_gib: float,
    precision: str = "bfloat16",
    micro_batch: int = 1,
    sequence: int = 1024,
) -> dict:
    """Give what a GPU holds at its fullest moment: ledger (GiB by item), total_gib, room_gib, and whether it fits.

    `size` is a name in SIZES, or layers, hidden and heads; precision is "float32" or "bfloat16" (weights, gradients
    and activations, with float32 copies). One micro-batch a step; nothing is compiled.
    """
    layers, hidden, heads = SIZES[size] if isinstance(size, str) else size
    element_bytes, state_bytes = PRECISIONS[precision]
    kept = activations(layers, hidden, heads, VOCABULARY, micro_batch, sequence, element_bytes=element_bytes)
    model = gpt(layers, hidden, positions=sequence)
    held = ledger(model, strategy, gpus, kept, element_bytes=element_bytes, state_bytes=state_bytes)
    total, room = sum(held.values()) / GIB, (1 - KEPT_FREE) * memory_gib
    return {
        "ledger": {item: size_bytes / GIB for item, size_bytes in held.items()},
        "total_gib": total,
        "room_gib": room,
        "fits": total <= room,
    }


def fewest_gpus(size: str | tuple[int, int, int], strategy: str, memory_gib: float, **knobs) -> int | None:
    """Give the fewest GPUs of COUNTS on which the strategy fits; None where it does on none. Knobs as in `fits`."""
    return next((count for count in COUNTS if fits(size, strategy, count, memory_gib, **knobs)["fits"]), None)
