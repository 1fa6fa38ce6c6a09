"""What an account of a step leaves open: memory that no item explains, GPUs that wait for their host."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from labkit.provenance import fact_or
from labkit.story.names import STRATEGY_NAMES

EXPLAINED = 0.1  # of the peak: what may stay unexplained
HOST_BOUND = 0.25  # of a profiled step: gaps between kernels take 1 to 12 % of steps whose host keeps up


def host_bound(profile: pd.DataFrame, names: Mapping[str, str] = STRATEGY_NAMES) -> list[str]:
    """Return a sentence part per profiled strategy whose GPU waits for its host: "rank 0's GPU idles 83 of 185 ms".

    Takes a table that carries the fact `idlest` of `labkit.tables.profile.profile`; of others, and of small runs, there
    is nothing to say.
    """
    idlest = [] if fact_or(profile, "small", False) else fact_or(profile, "idlest", [])
    return [
        f"rank {rank}'s GPU idles {idle_ms:.0f} of {window_ms:.0f} ms ({names.get(strategy, strategy)}, {ranks} ranks)"
        for strategy, ranks, rank, idle_ms, window_ms in idlest
        if idle_ms > HOST_BOUND * window_ms
    ]
