"""GPT-2 before anything runs: which strategy fits, a step on more GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from labkit.theory.alpha_beta import Link
from labkit.theory.gpt import SIZES, VOCABULARY, activations, gpt
from labkit.theory.memory import BYTES_PER_PARAMETER, ledger
from labkit.theory.shapes import Model, elements, shard
from labkit.theory.sizes import GB, GIB
from labkit.theory.traffic import Sent, bucket_count, through_a_link, traffic

_KEPT_FREE = 0.06  # of the memory, for the allocator's gaps and the libraries' own buffers
COUNTS = (1, 2, 4, 8, 16, 32, 64)
PER_NODE = 8  # GPUs of a DGX H100, each with a 400 Gbit/s InfiniBand card
_NETWORK_GB_PER_S = 50.0  # of such a card


def fits_memory(
    size: str | tuple[int, int, int],
    strategy: str,
    gpus: int,
    memory_gib: float,
    precision: str = "bfloat16",
    micro_batch: int = 1,
    sequence: int = 1024,
) -> dict:
    """Return what a GPU holds at its fullest moment: ledger (GiB by item), total_gib, and whether it fits.

    `size` is a name in SIZES, or layers, hidden and heads; precision is "float32" or "bfloat16" (weights, gradients
    and activations, with float32 copies). One micro-batch per step; nothing is compiled.
    """
    layers, hidden, heads = SIZES[size] if isinstance(size, str) else size
    element_bytes, state_bytes = BYTES_PER_PARAMETER[precision]
    kept = activations(layers, hidden, heads, VOCABULARY, micro_batch, sequence, element_bytes=element_bytes)
    model = gpt(layers, hidden, positions=sequence)
    held = ledger(model, strategy, gpus, kept, element_bytes=element_bytes, state_bytes=state_bytes)
    total = sum(held.values()) / GIB
    return {
        "ledger": {item: size_bytes / GIB for item, size_bytes in held.items()},
        "total_gib": total,
        "fits": total <= (1 - _KEPT_FREE) * memory_gib,
    }


def fewest_gpus(size: str | tuple[int, int, int], strategy: str, memory_gib: float, **knobs) -> int | None:
    """Return the fewest GPUs of COUNTS on which the strategy fits, or None. Knobs are those of `fits_memory`."""
    return next((count for count in COUNTS if fits_memory(size, strategy, count, memory_gib, **knobs)["fits"]), None)


class Projected(NamedTuple):
    """A step in seconds; `latency_s` is what its calls' α add up to, `exposed_s` what the GPU waits."""

    step_s: float
    communication_s: float
    latency_s: float
    exposed_s: float


def project(
    model: Model,
    strategy: str,
    ranks: int,
    compute_s: float,
    links: Mapping[str, Link],
    *,
    fitted_ranks: int,
    element_bytes: int = 4,
) -> Projected:
    """Return the step of one micro-batch per GPU on `ranks` GPUs: compute, and the communication that nothing hides.

    `compute_s` is a single GPU's step; `links`, by collective, are lines over the bytes through a link, fitted at
    `fitted_ranks`. Assumed is:

    - A GPU computes as it does alone: its optimizer, too, though sharded states would take less. A third of it is
      forward, two thirds are backward, shared equally among the blocks.
    - Collectives are rings: α grows as the ring's N − 1 hops (trees, and launches that are no hop, would take less);
      β stays as it was. Beyond a node, its rings leave through all its network cards at once: β is then at most
      PER_NODE × 50 GB/s.
    - Gradients travel during backward, blocks are gathered during their neighbours' compute, and neither slows it.
      See `_windows` for what never hides.
    """
    if ranks == 1 or strategy == "single":
        return Projected(compute_s, 0.0, 0.0, 0.0)
    hops = (ranks - 1) / (fitted_ranks - 1)
    fastest = PER_NODE * _NETWORK_GB_PER_S if ranks > PER_NODE else math.inf
    ring = {name: Link(link.alpha_s * hops, min(link.beta_gb_per_s, fastest)) for name, link in links.items()}

    def takes(sent: Sent) -> float:
        link = ring[sent.collective]
        return sent.calls * link.alpha_s + through_a_link([sent], ranks) / (GB * link.beta_gb_per_s)

    sent = traffic(model, strategy, ranks, element_bytes=element_bytes)
    alone, forward, backward = _windows(model, strategy, ranks, element_bytes, takes)
    exposed = alone + max(0.0, forward - compute_s / 3) + max(0.0, backward - 2 * compute_s / 3)
    latency = sum(call.calls * ring[call.collective].alpha_s for call in sent)
    return Projected(compute_s + exposed, sum(map(takes, sent)), latency, exposed)


def _windows(
    model: Model, strategy: str, ranks: int, element_bytes: int, takes: Callable[[Sent], float]
) -> tuple[float, float, float]:
    """Return the seconds of communication that never hide, that forward may hide, and that backward may hide.

    Never hidden are DDP's last bucket, which has the embeddings; the gathers of the root and of a pass's first block;
    the gradients of the block and of the root that end the backward; and all of "fsdp_root", which is one group.
    Blocks are alike: where a block's compute hides its neighbour's gather, a pass hides all of them.
    """
    if strategy == "ddp":
        calls, last = bucket_count(model.shapes, element_bytes), elements(model.before)
        if calls == 1:
            last = model.parameters
        rest = Sent("all-reduce", calls - 1, (model.parameters - last) * element_bytes)
        return takes(Sent("all-reduce", 1, last * element_bytes)), 0.0, takes(rest)
    whole = [element_bytes * ranks * shard(shapes, ranks) for shapes in (model.shapes, model.root, model.block)]
    gathers, scatters = ([takes(Sent(name, 1, size)) for size in whole] for name in ("all-gather", "reduce-scatter"))
    (gather_all, gather_root, gather), (scatter_all, scatter_root, scatter) = gathers, scatters
    if strategy == "fsdp_root":
        return gather_all + scatter_all, 0.0, 0.0
    again = gather if strategy == "fsdp_full" else 0.0
    alone = gather_root + gather + again + scatter + scatter_root
    return alone, (model.blocks - 1) * gather, (model.blocks - 1) * (again + scatter)
