"""Find the bug: three pipelines that look right. `SYMPTOMS` says what each shows and which check names it.

A variant replaces one piece of the pipeline: `cutting` (split sizes → the layers of each stage), `scale_grads`, or
`clock` (how it takes its time).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SYMPTOMS = {
    "unscaled": "the gradients of the micro-batches are added up and never divided by their number",
    "dropped_layer": "the split leaves out a layer, and what is left is faster",
    "first_rank_clock": "the clock stops when the first rank is done, while the others still work",
}


def dropped_layer(sizes: list[int]) -> list[range]:
    parts, first = [], 0
    for size in sizes:
        parts.append(range(first, first + size))
        first += size
    return [*parts[:-1], range(parts[-1].start + 1, parts[-1].stop)]


def first_rank_clock(step: Callable[[], object], worker: Any) -> float | None:
    start = time.perf_counter()
    step()
    worker.synchronize()
    return time.perf_counter() - start if worker.rank == 0 else None


VARIANTS = {
    "right": {},
    "unscaled": {"scale_grads": False},
    "dropped_layer": {"cutting": dropped_layer},
    "first_rank_clock": {"clock": first_rank_clock},
}
