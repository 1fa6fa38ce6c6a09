"""What two reports claim about collectives: times of all-reduces, and the communication of a ResNet-18."""

from __future__ import annotations

import pandas as pd

from labkit.engine.run import replay
from labkit.tables.claims import claim
from labkit.tables.published import published
from labkit.tables.resnet import published_bandwidth
from lessons.collectives.tables import bandwidths, published_fits, published_times
from lessons.collectives.theory import bus_factor, hops

TIMES, RESNET = "cs336-a2", "hpml4"
_ALL_REDUCE = "all-reduce"
_1000_MB = 1e9 / 2**30  # of 1 GiB
_RING_LIKE = 0.1  # largest relative difference from a ring's growth


def times() -> pd.DataFrame:
    """Return the printed all-reduces, with rates and limits."""
    return published_times(published("all_reduce"))


def seconds(backend: str, processes: int, megabytes: float) -> float:
    """Return a printed time."""
    table = published("all_reduce").set_index(["backend", "processes", "megabytes"])
    return float(table["seconds"][backend, processes, megabytes])


def recorded_us(run: str, backend: str, ranks: int, message_bytes: int) -> float:
    """Return the time of an all-reduce in flight in a recorded run, in µs."""
    table = bandwidths(replay(f"h200x2/collectives/{run}"))
    table = table[(table["collective"] == _ALL_REDUCE) & (table["clock"] == "in flight")]
    rows = table[(table["backend"] == backend) & (table["ranks"] == ranks) & (table["bytes"] == message_bytes)]
    return float(rows["median_us"].iloc[0])


def span(values: pd.Series, form: str = "{:.3g}") -> str:
    """Return the smallest and the largest value as words."""
    return f"{form.format(values.min())} to {form.format(values.max())}"


@claim(TIMES, "an all-reduce of 1 MB takes 365 ms on two V100s with NCCL", "ms")
def small_message():
    """Recomputed is our time for 1 MiB on 2 × H200. All six NVLinks of a V100 need 0.007 ms for these bytes, one 0.04.

    No link and no launch takes hundreds of milliseconds: the start-up of NCCL is inside the clock.
    """
    printed = 1e3 * seconds("nccl", 2, 1.0)
    recomputed = recorded_us("sweep", "nccl", 2, 2**20) / 1e3
    return round(printed, 1), recomputed, printed < 100 * recomputed


@claim(TIMES, "1000 times the bytes take 1.2 times the time", "×")
def growth_with_size():
    """Recomputed is the growth of our times from 1 MiB to 1 GiB on 2 × H200.

    Where the size hardly matters, the transfer is not what was timed.
    """
    printed = seconds("nccl", 2, 1000.0) / seconds("nccl", 2, 1.0)
    recomputed = recorded_us("sweep", "nccl", 2, 2**30) / recorded_us("sweep", "nccl", 2, 2**20)
    return round(printed, 2), recomputed, printed > 1000**0.5


@claim(TIMES, "the times of 1 MB are times of a transfer")
def latency():
    """Printed are the times of 1 MB on 2 to 6 processes. Recomputed is α of the line α + bytes/β through all sizes.

    All of the printed time is α, a time that does not depend on the size. The sizes leave a rate β of 11 to 19 GB/s.
    A latency that long belongs to start-up, not to a call.
    """
    lines = published_fits(times())
    table = published("all_reduce")
    smallest = 1e3 * table.loc[table["megabytes"] == table["megabytes"].min(), "seconds"]
    alpha_ms = lines["alpha_us"] / 1e3
    return f"{span(smallest, '{:.0f}')} ms", f"{span(alpha_ms, '{:.0f}')} ms", bool(alpha_ms.max() < 10)


@claim(
    TIMES,
    "the largest message shows the rate of the links",
    "GB/s",
    recomputes="the most that all six NVLinks of a V100 carry",
)
def rate_of_the_links():
    """Printed is the bus bandwidth that the time of 1000 MB means, the largest of 2, 4 and 6 processes.

    The printed times are possible, but they use at most 1.5 % of what all links of a V100 carry. If the eight V100s are
    connected as in a DGX-1, two of them share one or two links, 26 or 52 GB/s: of these they use 5 to 9 %. In either
    case the links are not what was measured.
    """
    table = times()
    rows = table[(table["backend"] == "nccl") & (table["megabytes"] == table["megabytes"].max())]
    possible = not (table["verdict"] == "impossible").any()
    fast = rows["share_of_limit"].max() >= 0.1
    return round(rows["bus_gb_per_s"].max(), 2), float(rows["limit"].iloc[0]), bool(possible and fast)


@claim(TIMES, "from 2 to 6 processes the time grows like a ring's")
def growth_with_processes():
    """A ring's latency grows with its hops, and its transfer with 2(N − 1)/N.

    The printed small and large messages grow alike, by about 2. Neither factor is a ring's latency, and no ring makes
    both grow alike.
    """
    table = published("all_reduce")
    nccl = table[table["backend"] == "nccl"].set_index(["processes", "megabytes"])["seconds"]
    growth = nccl[6] / nccl[2]
    small, large = growth.iloc[0], growth.iloc[-1]
    ring = hops(_ALL_REDUCE, 6) / hops(_ALL_REDUCE, 2), bus_factor(_ALL_REDUCE, 6) / bus_factor(_ALL_REDUCE, 2)
    holds = abs(small / ring[0] - 1) <= _RING_LIKE and abs(large / ring[1] - 1) <= _RING_LIKE
    printed = f"{small:.1f} × (1 MB), {large:.1f} × (1000 MB)"
    return printed, f"{ring[0]:.1f} × (latency), {ring[1]:.1f} × (transfer)", bool(holds)


@claim(TIMES, "gloo takes 3 times as long as NCCL at 1000 MB", "×", digits=2)
def gloo_against_nccl():
    """Both printed times contain start-up, and gloo was timed at one size only, so its own rate cannot be computed.

    Recomputed is the ratio of the rates in our recorded runs: gloo in host memory against NCCL on 2 × H200, 64 MiB.
    """
    printed = seconds("gloo", 2, 1000.0) / seconds("nccl", 2, 1000.0)
    recomputed = recorded_us("sweep", "gloo", 2, 2**26) / recorded_us("sweep", "nccl", 2, 2**26)
    return round(printed, 1), recomputed, None


@claim(
    TIMES,
    "gloo takes 1.47, 2.13 and 2.67 s for 1000 MB on 2, 4 and 6 processes",
    recomputes="our recorded run on a node with 32 CPU cores, after start-up",
)
def gloo_times():
    """Recomputed are the recorded times of 1 GiB on 2, 4 and 6 processes, scaled to 1000 MB.

    They are a third to a quarter of the printed times. The very first calls of that size took 1.3 to 1.6 s in the same
    run, also scaled. The processors differ, so these times alone decide nothing.
    """
    processes = (2, 4, 6)
    printed_s = [seconds("gloo", count, 1000.0) for count in processes]
    recorded_s = [recorded_us("gloo", "gloo", count, 2**30) / 1e6 * _1000_MB for count in processes]
    return _listed_s(printed_s), _listed_s(recorded_s), None


def _listed_s(values: list[float]) -> str:
    return f"{', '.join(f'{value:.2f}' for value in values)} s"


def communication() -> pd.DataFrame:
    """Return the printed communication of ResNet-18, with product_mb (bandwidth × time) and a training's gradients."""
    return published_bandwidth(published("resnet_compute_communication"))


@claim(RESNET, "the GPUs exchange 0.87 to 5.7 GB per second")
def exchanged_bytes():
    """Bandwidth × time is 178.0 MB in all six rows, whatever the batch and the number of GPUs.

    CIFAR-10's files on disk have nearly as many MiB, 177.6, and GPUs do not exchange these. Gradients of an epoch are 1
    to 35 GB, and they depend on the batch.
    """
    table = communication()
    printed = f"{span(table['bandwidth_gb_per_second'])} GB/s"
    product = table["product_mb"]
    constant = product.max() / product.min() - 1 <= 0.02
    figure = f"{product.median():.1f} MB" if constant else f"{span(product)} MB"
    return printed, f"{figure} in every row" if constant else figure, not constant


@claim(RESNET, "0.1718 GB are moved per epoch", "GB", digits=4)
def stated_bytes():
    """Recomputed is bandwidth × time of the report's own table, 3.6 % more than its text states.

    Neither is a number of bytes that training exchanges. Files on disk have 186.2 MB, or 177.6 MiB; the training
    images have 153.6 MB.
    """
    printed = float(published("resnet_statements").set_index("statement")["value"]["data_set_gb"])
    recomputed = communication()["product_mb"].median() / 1e3
    return printed, recomputed, abs(recomputed / printed - 1) <= 0.005


@claim(RESNET, "with batch 32 on 2 GPUs an epoch's communication runs at 1.19 GB/s", "GB/s")
def rate_of_gradients():
    """An epoch of 782 steps exchanges 35 GB of gradients. Recomputed is the rate for that in the printed 149 ms.

    It is about 200 times the printed rate, which counts 178 MB instead. NVLink can carry the recomputed rate, and the
    report names no GPUs. So the printed time may be that of gradients, or of something else, such as loading data.
    """
    row = communication().sort_values("gradients_gb").iloc[-1]
    printed, needed = row["bandwidth_gb_per_second"], row["needed_gb_per_s"]
    return round(printed, 2), needed, bool(abs(needed / printed - 1) <= 0.1)
