"""DDP, ours and ZeRO's stages as tables: bytes held and sent, by formula."""

from __future__ import annotations

import pandas as pd

from labkit.labs.optimizer_sharding.theory.stages import STAGES, stage
from labkit.theory.transformer import SIZES, transformer

GIB = 2**30
COUNTS = (1, 2, 4, 8, 16, 32, 64)


def stages(size: str = "xl", ranks: int = 2, state_bytes: int = 8, precision: str = "float32") -> pd.DataFrame:
    """Give, a stage: GiB of parameters, gradients and states a rank, their sum, and GB sent through a link a step.

    `volume` is what is sent in units of all parameters' bytes, (N−1)/N taken as one.
    """
    elements = transformer(*SIZES[size][:3]).parameters
    rows = []
    for name in STAGES:
        found = stage(name, elements, ranks, state_bytes, precision)
        unit = stage("ddp", elements, ranks, state_bytes, precision).parameters * (ranks - 1) / ranks
        rows.append(
            {
                "stage": name,
                "parameters_gib": found.parameters / GIB,
                "gradients_gib": found.gradients / GIB,
                "states_gib": found.states / GIB,
                "held_gib": found.held / GIB,
                "sent_gb": found.sent / 1e9,
                "volume": found.sent / unit if unit else 0.0,
            }
        )
    table = pd.DataFrame(rows)
    table.attrs.update(source=f"theory: {size}, {ranks} ranks, {precision}", small=False, ranks=ranks)
    return table


def by_ranks(size: str = "xl", state_bytes: int = 8, precision: str = "float32") -> pd.DataFrame:
    """Give, a stage and number of ranks: GiB that a rank holds."""
    tables = [stages(size, ranks, state_bytes, precision).assign(ranks=ranks) for ranks in COUNTS]
    table = pd.concat(tables, ignore_index=True)[["stage", "ranks", "held_gib"]]
    table.attrs.update(source=f"theory: {size}, {precision}", small=False)
    return table
