"""What a rank holds, item by item, at the fullest moment of a training step."""

from __future__ import annotations

from labkit.theory.shapes import Model, elements, shard

ITEMS = ("parameters", "gradients", "optimizer", "activations", "gathered", "buffers")
BYTES_PER_PARAMETER = {  # of the weight (and of its gradient), of the optimizer's states
    "float32": (4, 8),  # AdamW's two moments
    "bfloat16": (2, 12),  # and the float32 copy of the weight
}


def ledger(
    model: Model,
    strategy: str,
    ranks: int,
    activations: int,
    *,
    element_bytes: int = 4,
    state_bytes: int = 8,
    micro_batches: int = 1,
    exchanges: int = 1,
) -> dict[str, int]:
    """Return the bytes a rank holds, by the names in ITEMS, at the moment when they are most.

    The backward frees activations block by block and makes gradients: the fullest moment is at its start, or at its
    end, whichever holds more. `state_bytes` an element are the optimizer's. While gradients are accumulated they are
    there from the start, and whole where a step has fewer `exchanges` than micro-batches. An optimizer that keeps
    float32 copies of smaller parameters turns the gradients into float32, too: then the update is a third such moment.
    """
    sizes = {"element_bytes": element_bytes, "state_bytes": state_bytes}
    counts = {"micro_batches": micro_batches, "exchanges": exchanges}
    moments = [held_at(end, model, strategy, ranks, activations, **sizes, **counts) for end in (False, True)]
    if element_bytes < 4:
        elements = moments[0]["parameters"] // element_bytes
        moments.append(
            dict(zip(ITEMS, (elements * element_bytes, elements * 4, elements * state_bytes, 0, 0, 0), strict=True))
        )
    return max(moments, key=lambda items: sum(items.values()))


def compared_bytes(weights: int, forward: int) -> int:
    """Return the bytes that a rank holds at most where a strategy is compared with one process on all samples.

    `weights` are a model's bytes, and `forward` what the process's forward keeps. Its step and the comparison of
    changes both have its weights, those of the start, the strategy's, and DDP's buckets. The step adds its gradients;
    comparing adds one change, and the other with the parts that it is put together from.
    """
    return 4 * weights + max(weights + forward, 3 * weights)


def held_at(
    end: bool,
    model: Model,
    strategy: str,
    ranks: int,
    activations: int,
    *,
    element_bytes: int,
    state_bytes: int,
    micro_batches: int,
    exchanges: int,
) -> dict[str, int]:
    """Return the bytes that a rank holds where backward starts or, at its `end`, by the names in ITEMS."""
    parameter_bytes = model.parameters * element_bytes
    waiting = ranks > 1 and micro_batches > exchanges  # gradients that are not exchanged yet are whole
    if strategy in ("single", "ddp"):
        # DDP's buckets are the gradients' memory and stay; a single GPU frees its gradients after the update.
        gradients_stay = end or strategy == "ddp" or micro_batches > 1
        held_elements, gathered = model.parameters, 0
        buffers = parameter_bytes if waiting else 0  # gradients that wait lie beside the buckets
    else:
        gradients_stay, held_elements = end or micro_batches > 1, shard(model.shapes, ranks)
        root, block = (elements(shapes) * element_bytes for shapes in (model.root, model.block))
        gathered, buffers = {
            # At the start two blocks are whole, the one at work and the next, each with a buffer that brought it. At
            # the end it is one, whose gradients stand beside it and in the buffer that takes them away. Parameters
            # that are kept after forward go block by block. As one group everything is one block.
            "fsdp_full": (root + block, 2 * block) if end else (root + 2 * block, 2 * block),
            "fsdp_grad": (root + block, 2 * block) if end else (parameter_bytes, block),
            "fsdp_root": (parameter_bytes, 2 * parameter_bytes) if end else (parameter_bytes, parameter_bytes),
        }[strategy]
    return {
        "parameters": held_elements * element_bytes,
        "gradients": (model.parameters if waiting else held_elements) * element_bytes * gradients_stay,
        "optimizer": held_elements * state_bytes,
        "activations": activations * (not end),
        "gathered": gathered,
        "buffers": buffers,
    }
