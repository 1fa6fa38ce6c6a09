"""What two reports print about collectives, recomputed: times of all-reduces, and the communication of a ResNet-18."""

from __future__ import annotations

import pandas as pd

from labkit.engine.recordings import replay
from labkit.provenance import fact
from labkit.tables.claims import Figures, undecided
from labkit.tables.published import published
from labkit.tables.resnet import published_bandwidth
from labkit.theory.sizes import GIB, MIB
from lessons.collectives.tables import bandwidths, published_times

_SWEEP = "h200x4/collectives/sweep"  # the run that the charts show


def seconds(backend: str, processes: int, megabytes: float) -> float:
    """Return a printed time of an all-reduce."""
    table = published("all_reduce").set_index(["backend", "processes", "megabytes"])
    return float(table["seconds"][backend, processes, megabytes])


def recorded_us(backend: str, ranks: int, message_bytes: int) -> float:
    """Return the time of an all-reduce in flight in the recorded sweep, in µs."""
    table = bandwidths(replay(_SWEEP))
    table = table[(table["collective"] == "all-reduce") & (table["clock"] == "in flight")]
    rows = table[(table["backend"] == backend) & (table["ranks"] == ranks) & (table["bytes"] == message_bytes)]
    return float(rows["median_us"].iloc[0])


def communication() -> pd.DataFrame:
    """Return the printed communication of ResNet-18, with product_mb (bandwidth × time) and a training's gradients."""
    return published_bandwidth(published("resnet_compute_communication"))


def _span(values: pd.Series, form: str) -> str:
    return f"{form.format(values.min())} to {form.format(values.max())}"


def _largest() -> pd.Series:
    """Return the printed all-reduce of 1000 MB over NCCL that is nearest to the links' rate."""
    table = published_times(published("all_reduce")).query("backend == 'nccl'")
    rows = table[table["megabytes"] == table["megabytes"].max()]
    return rows.loc[rows["bus_gb_per_s"].idxmax()]


def _product() -> str:
    product = communication()["product_mb"]
    one_size = fact(communication(), "product_spread") <= 0.02
    return f"{product.median():.1f} MB in every row" if one_size else f"{_span(product, '{:.3g}')} MB"


FIGURES = {
    "small_message": Figures(
        lambda: round(1e3 * seconds("nccl", 2, 1.0), 1),
        lambda: recorded_us("nccl", 2, MIB) / 1e3,
        lambda printed, recomputed: True if printed < 100 * recomputed else None,
    ),
    "growth_with_size": Figures(
        lambda: round(seconds("nccl", 2, 1000.0) / seconds("nccl", 2, 1.0), 2),
        lambda: recorded_us("nccl", 2, GIB) / recorded_us("nccl", 2, MIB),
        lambda printed, _recomputed: True if printed > 1000**0.5 else None,
    ),
    "rate_of_the_links": Figures(
        lambda: round(float(_largest()["bus_gb_per_s"]), 2),
        lambda: float(_largest()["limit"]),
        lambda printed, most: False if printed > most else True if printed >= 0.1 * most else None,
    ),
    "exchanged_bytes": Figures(
        lambda: f"{_span(communication()['bandwidth_gb_per_second'], '{:.3g}')} GB/s",
        _product,
        lambda _printed, recomputed: "every row" not in recomputed,
    ),
    "gloo_against_nccl": Figures(
        lambda: round(seconds("gloo", 2, 1000.0) / seconds("nccl", 2, 1000.0), 1),
        lambda: recorded_us("gloo", 2, 2**26) / recorded_us("nccl", 2, 2**26),
        undecided,
    ),
}
