"""What two reports print about collectives, recomputed: times of all-reduces, and the communication of a ResNet-18."""

from __future__ import annotations

import functools
from typing import Any

import pandas as pd

from labkit.engine.run import replay
from labkit.provenance import fact
from labkit.tables.claims import Stated, undecided, within
from labkit.tables.published import published
from labkit.tables.resnet import published_bandwidth
from lessons.collectives.tables import bandwidths, published_fits, published_times
from lessons.collectives.theory import bus_factor, hops

_MB_OF_GIB = 1e9 / 2**30  # 1000 MB, as a part of 1 GiB
_MACHINES = {"sweep": "h200x4", "gloo": "h200x2"}  # the sweep is the one that the charts show
_RING = within(1.1)  # growth that is a ring's


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


def _growth(megabytes: float) -> float:
    return seconds("nccl", 6, megabytes) / seconds("nccl", 2, megabytes)


def _of_ring(term: Any) -> float:
    return term("all-reduce", 6) / term("all-reduce", 2)


def _rings_growth(_printed: str, _recomputed: str) -> bool | None:
    """Say that the growth is a ring's; None where it is not, because a fixed cost per call hides the ring."""
    return True if _RING(_growth(1.0), _of_ring(hops)) and _RING(_growth(1000.0), _of_ring(bus_factor)) else None


def _listed_s(values: list[float]) -> str:
    return f"{', '.join(f'{value:.2f}' for value in values)} s"


def _product() -> str:
    product = communication()["product_mb"]
    one_size = fact(communication(), "product_spread") <= 0.02
    return f"{product.median():.1f} MB in every row" if one_size else f"{_span(product, '{:.3g}')} MB"


def _most_gradients() -> pd.Series:
    return communication().sort_values("gradients_gb").iloc[-1]


_times = functools.partial(Stated, report="cs336-a2", where="table of all-reduces, 8 × V100")
_resnet = functools.partial(Stated, report="hpml4")

CLAIMS = (
    _times(
        name="small_message",
        says="An all-reduce of 1 MB between two V100s, NCCL",
        printed=lambda: round(1e3 * seconds("nccl", 2, 1.0), 1),
        recomputed=lambda: recorded_us("sweep", "nccl", 2, 2**20) / 1e3,
        recomputes="our 1 MiB, 2 of 4 × H200",
        holds=lambda printed, recomputed: printed < 100 * recomputed,
        unit="ms",
        reason="Even one NVLink of a V100 needs only 0.04 ms for these bytes: start-up is inside the clock.",
    ),
    _times(
        name="growth_with_size",
        says="The time of 1000 MB, divided by that of 1 MB",
        printed=lambda: round(seconds("nccl", 2, 1000.0) / seconds("nccl", 2, 1.0), 2),
        recomputed=lambda: recorded_us("sweep", "nccl", 2, 2**30) / recorded_us("sweep", "nccl", 2, 2**20),
        recomputes="ours, 1 GiB and 1 MiB, 2 of 4 × H200",
        holds=lambda printed, _recomputed: printed > 1000**0.5,
        unit="×",
        reason="Where the size hardly matters, no transfer was timed.",
    ),
    _times(
        name="latency",
        says="The times of 1 MB, 2 to 6 processes",
        printed=_smallest,
        recomputed=_alphas,
        recomputes="α of the line α + bytes/β through all sizes",
        holds=lambda _printed, recomputed: float(recomputed.split()[2]) < 10,
        reason="All of the time is α. A latency that long is start-up.",
        chosen=False,
    ),
    _times(
        name="rate_of_the_links",
        says="The bus bandwidth that the time of 1000 MB means, at most",
        printed=lambda: round(float(_largest()["bus_gb_per_s"]), 2),
        recomputed=lambda: float(_largest()["limit"]),
        recomputes="all six NVLinks of a V100",
        holds=lambda printed, recomputed: 0.1 * recomputed <= printed <= recomputed,
        unit="GB/s",
        reason="Even where a single link joins a pair, it is 9 % of that link's rate.",
    ),
    _times(
        name="growth_with_processes",
        says="From 2 to 6 processes, small and large messages take longer",
        printed=lambda: f"{_growth(1.0):.1f} × (1 MB), {_growth(1000.0):.1f} × (1000 MB)",
        recomputed=lambda: f"{_of_ring(hops):.1f} × (latency), {_of_ring(bus_factor):.1f} × (transfer)",
        recomputes="a ring",
        holds=_rings_growth,
        reason="A fixed cost per call makes both grow alike, in our NCCL run, too. Growth alone decides nothing.",
    ),
    _resnet(
        name="exchanged_bytes",
        where="table of communication",
        says="The GPUs exchange 0.87 to 5.7 GB per second",
        printed=lambda: f"{_span(communication()['bandwidth_gb_per_second'], '{:.3g}')} GB/s",
        recomputed=_product,
        recomputes="bandwidth × time",
        holds=lambda _printed, recomputed: "every row" not in recomputed,
        reason="An epoch's gradients depend on the batch; one size in every row is that of the data set.",
    ),
    _resnet(
        name="rate_of_gradients",
        where="§3.1, batch 32 on 2 GPUs",
        says="The rate between GPUs, over the time that its data loader took",
        printed=lambda: round(float(_most_gradients()["bandwidth_gb_per_second"]), 2),
        recomputed=lambda: float(_most_gradients()["needed_gb_per_s"]),
        recomputes="what gradients would need in this time",
        holds=within(1.1),
        unit="GB/s",
        reason="The report says itself that it timed the data loader. No exchange was measured.",
    ),
    _resnet(
        name="stated_bytes",
        where="the text on bandwidth",
        says="The data set has 0.1718 GB",
        printed=lambda: float(published("resnet_statements").set_index("statement")["value"]["data_set_gb"]),
        recomputed=lambda: fact(communication(), "product_mb") / 1e3,
        recomputes="bandwidth × time, in its table",
        holds=within(1.005),
        unit="GB",
        digits=4,
        reason="Text and table differ. CIFAR-10's files have 186.2 MB, or 177.6 MiB; its training images 153.6 MB.",
        chosen=False,
    ),
    _times(
        name="gloo_against_nccl",
        says="gloo's time of 1000 MB, divided by NCCL's",
        printed=lambda: round(seconds("gloo", 2, 1000.0) / seconds("nccl", 2, 1000.0), 1),
        recomputed=lambda: recorded_us("sweep", "gloo", 2, 2**26) / recorded_us("sweep", "nccl", 2, 2**26),
        recomputes="our 64 MiB, host memory against 2 of 4 × H200",
        holds=undecided,
        unit="×",
        reason="Both printed times contain start-up. gloo was timed at one size, so its rate cannot be computed.",
        chosen=False,
    ),
    _times(
        name="gloo_times",
        says="gloo's times of 1000 MB on 2, 4 and 6 processes",
        printed=lambda: _listed_s([seconds("gloo", count, 1000.0) for count in (2, 4, 6)]),
        recomputed=lambda: _listed_s(
            [recorded_us("gloo", "gloo", count, 2**30) / 1e6 * _MB_OF_GIB for count in (2, 4, 6)]
        ),
        recomputes="our run after start-up, on another processor",
        holds=undecided,
        reason="Ours are a third to a quarter; our very first calls took 1.3 to 1.6 s. The processors differ.",
        chosen=False,
    ),
)
