"""What two reports print about collectives, recomputed: times of all-reduces, and the communication of a ResNet-18."""

from __future__ import annotations

import pandas as pd

from labkit.engine.recordings import replay
from labkit.provenance import fact
from labkit.tables.claims import Figures, undecided, within
from labkit.tables.published import published
from labkit.tables.resnet import published_bandwidth
from labkit.theory.sizes import GIB, MIB
from lessons.collectives.tables import bandwidths, published_fits, published_times

_MB_OF_GIB = 1e9 / GIB  # 1000 MB, as a part of 1 GiB
_MACHINES = {"sweep": "h200x4", "gloo": "h200x2"}  # the sweep is the one that the charts show


def seconds(backend: str, processes: int, megabytes: float) -> float:
    """Return a printed time of an all-reduce."""
    table = published("all_reduce").set_index(["backend", "processes", "megabytes"])
    return float(table["seconds"][backend, processes, megabytes])


def recorded_us(run: str, backend: str, ranks: int, message_bytes: int) -> float:
    """Return the time of an all-reduce in flight in a recorded run, in µs."""
    table = bandwidths(replay(f"{_MACHINES[run]}/collectives/{run}"))
    table = table[(table["collective"] == "all-reduce") & (table["clock"] == "in flight")]
    rows = table[(table["backend"] == backend) & (table["ranks"] == ranks) & (table["bytes"] == message_bytes)]
    return float(rows["median_us"].iloc[0])


def communication() -> pd.DataFrame:
    """Return the printed communication of ResNet-18, with product_mb (bandwidth × time) and a training's gradients."""
    return published_bandwidth(published("resnet_compute_communication"))


def _span(values: pd.Series, form: str) -> str:
    return f"{form.format(values.min())} to {form.format(values.max())}"


def _smallest() -> str:
    table = published("all_reduce")
    return f"{_span(1e3 * table.loc[table['megabytes'] == table['megabytes'].min(), 'seconds'], '{:.0f}')} ms"


def _alphas() -> str:
    return f"{_span(published_fits(published_times(published('all_reduce')))['alpha_us'] / 1e3, '{:.0f}')} ms"


def _largest() -> pd.Series:
    """Return the printed all-reduce of 1000 MB over NCCL that is nearest to the links' rate."""
    table = published_times(published("all_reduce")).query("backend == 'nccl'")
    rows = table[table["megabytes"] == table["megabytes"].max()]
    return rows.loc[rows["bus_gb_per_s"].idxmax()]


def _listed_s(values: list[float]) -> str:
    return f"{', '.join(f'{value:.2f}' for value in values)} s"


def _product() -> str:
    product = communication()["product_mb"]
    one_size = fact(communication(), "product_spread") <= 0.02
    return f"{product.median():.1f} MB in every row" if one_size else f"{_span(product, '{:.3g}')} MB"


def _most_gradients() -> pd.Series:
    return communication().sort_values("gradients_gb").iloc[-1]


FIGURES = {
    "small_message": Figures(
        lambda: round(1e3 * seconds("nccl", 2, 1.0), 1),
        lambda: recorded_us("sweep", "nccl", 2, MIB) / 1e3,
        lambda printed, recomputed: printed < 100 * recomputed,
    ),
    "growth_with_size": Figures(
        lambda: round(seconds("nccl", 2, 1000.0) / seconds("nccl", 2, 1.0), 2),
        lambda: recorded_us("sweep", "nccl", 2, GIB) / recorded_us("sweep", "nccl", 2, MIB),
        lambda printed, _recomputed: printed > 1000**0.5,
    ),
    "latency": Figures(_smallest, _alphas, lambda _printed, recomputed: float(recomputed.split()[2]) < 10),
    "rate_of_the_links": Figures(
        lambda: round(float(_largest()["bus_gb_per_s"]), 2),
        lambda: float(_largest()["limit"]),
        lambda printed, recomputed: 0.1 * recomputed <= printed <= recomputed,
    ),
    "exchanged_bytes": Figures(
        lambda: f"{_span(communication()['bandwidth_gb_per_second'], '{:.3g}')} GB/s",
        _product,
        lambda _printed, recomputed: "every row" not in recomputed,
    ),
    "rate_of_gradients": Figures(
        lambda: round(float(_most_gradients()["bandwidth_gb_per_second"]), 2),
        lambda: float(_most_gradients()["needed_gb_per_s"]),
        within(1.1),
    ),
    "stated_bytes": Figures(
        lambda: float(published("resnet_statements").set_index("statement")["value"]["data_set_gb"]),
        lambda: fact(communication(), "product_mb") / 1e3,
        within(1.005),
    ),
    "gloo_against_nccl": Figures(
        lambda: round(seconds("gloo", 2, 1000.0) / seconds("nccl", 2, 1000.0), 1),
        lambda: recorded_us("sweep", "gloo", 2, 2**26) / recorded_us("sweep", "nccl", 2, 2**26),
        undecided,
    ),
    "gloo_times": Figures(
        lambda: _listed_s([seconds("gloo", count, 1000.0) for count in (2, 4, 6)]),
        lambda: _listed_s([recorded_us("gloo", "gloo", count, GIB) / 1e6 * _MB_OF_GIB for count in (2, 4, 6)]),
        undecided,
    ),
}
