"""What an account of a step leaves open: memory that no item explains, GPUs that wait for their host."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from labkit.provenance import fact_or
from labkit.story import units
from labkit.story.names import STRATEGY_NAMES

EXPLAINED = 0.1  # of the peak: what may stay unexplained
HOST_BOUND = 0.25  # of a profiled step: gaps between kernels take 1 to 12 % of steps whose host keeps up


def host_bound(profile: pd.DataFrame, names: Mapping[str, str] = STRATEGY_NAMES) -> list[str]:
    """Return per profiled strategy whose host is late how much of the step its idlest GPU idles: "FSDP full 45 %".

    Takes a table that carries the fact `idle_shares` of `labkit.tables.profile.profile`; of others, and of small runs,
    there is nothing to say.
    """
    shares = {} if fact_or(profile, "small", False) else fact_or(profile, "idle_shares", {})
    return [
        f"{names.get(strategy, strategy)} {units.percent(share)}"
        for strategy, share in shares.items()
        if share > HOST_BOUND
    ]
