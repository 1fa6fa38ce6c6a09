"""What matters of lab 09: what large and small messages reach, how near nccl-tests ours are, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.tables.measures import CODE, HOST, LOWER, Measure, Measured, figure, message, workers
from lessons.collectives import tables
from lessons.collectives.plan import Sweep
from lessons.collectives.theory import COLLECTIVES

if TYPE_CHECKING:
    import pandas as pd

    from labkit.engine.run import Run

    Shown = Callable[[Run], Measured | None]

LARGE_BYTES = 64 * 2**20  # from here on ours are compared with nccl-tests
_ON_CARD = ("all-reduce", "all-gather", "all-to-all")


def card_plans() -> list[Sweep]:
    """Return what `make card` launches: a small and a large message, among all GPUs."""
    if not Sweep.on_gpus():
        return [Sweep.small(collectives=_ON_CARD, sizes_kib=(1, 1024))]
    chosen = {"counts": (Sweep.full().gpus,), "backends": ("nccl",), "sizes_kib": (1, 1048576)}
    return [Sweep.full(collectives=_ON_CARD, **chosen)]


def _row(run: Run, collective: str, clock: str, largest: bool) -> pd.Series | None:
    """Return the row of `bandwidths` for the largest or smallest message among all of the run's workers."""
    table = tables.bandwidths(run)
    chosen = (table["collective"] == collective) & (table["clock"] == clock) & (table["status"] == "ok")
    rows = table[chosen & (table["ranks"] == run.plan.gpus) & (table["backend"] == run.plan.backend)]
    return None if rows.empty else rows.loc[rows["bytes"].idxmax() if largest else rows["bytes"].idxmin()]


def _bus(collective: str) -> Shown:
    """Return how a run gives the bus bandwidth of the largest message."""

    def measured(run: Run) -> Measured | None:
        row = _row(run, collective, "in flight", largest=True)
        if row is None:
            return None
        rate, setting = row["bus_gb_per_s"], f"{message(row['bytes'])}, {workers(run)}"
        half = rate * row["spread_us"] / row["median_us"]
        return Measured(rate, rate - half, rate + half, int(row["count"]), setting, row["limit"])

    return measured


def _one_small_call(run: Run) -> Measured | None:
    row = _row(run, "all-reduce", "one call", largest=False)
    if row is None:
        return None
    time, half, setting = row["median_us"], row["spread_us"], f"{message(row['bytes'])}, {workers(run)}"
    return Measured(time, time - half, time + half, int(row["count"]), setting)


def _over_nccl_tests(collective: str) -> Shown:
    """Return how a run gives the lowest ratio of our bus bandwidth to nccl-tests', with our times' spread there.

    None where one of the sizes has no ratio: the others do not speak for it.
    """

    def measured(run: Run) -> Measured | None:
        table = tables.against(run)
        rows = table[(table["collective"] == collective) & (table["bytes"] >= LARGE_BYTES)]
        if rows.empty or rows["ratio"].isna().any():
            return None
        lowest = rows.loc[rows["ratio"].idxmin()]
        return figure(run, float(lowest["ratio"]), float(lowest["ratio"] * lowest["spread_share"]))

    return measured


def _wrong_settings(run: Run) -> Measured:
    """Return how many settings gave wrong values, or were faster than the links allow."""
    table = tables.bandwidths(run)
    return figure(run, float(((table["status"] != "ok") | (table["verdict"] == "impossible")).sum()))


def _wrong_rings(run: Run) -> Measured:
    """Return how many of our rings gave wrong sums, or sent other bytes than the formula."""
    table = tables.rings(run)
    wrong = (table["status"] != "ok") | (table["sent_bytes"] != table["formula_bytes"])
    return figure(run, float(wrong.sum()))


def _misjudged(run: Run) -> Measured:
    """Return how many wrong benchmarks are not caught, and how many right ones are accused."""
    table = tables.symptoms(run)
    return figure(run, float((tables.caught(table) != (table["variant"] != "right")).sum()))


def _at(gpus: int, shown: Shown) -> Shown:
    """Return the same of runs on this number of GPUs alone: each number has goals of its own."""
    return lambda run: shown(run) if run.plan.gpus == gpus else None


_GOAL = {"on_card": False, "least_gpus": 2}
_NONE_WRONG = {"better": LOWER, "comparison": "=", "goal": 0, "depends_on": CODE, **_GOAL}

MEASURES = (
    *(Measure(name=f"{name}, bus bandwidth", unit="GB/s", plan="sweep", measured=_bus(name)) for name in _ON_CARD),
    Measure(
        name="all-reduce, one small call",
        unit="µs",
        plan="sweep",
        measured=_one_small_call,
        better=LOWER,
        depends_on=HOST,
    ),
    *(
        Measure(
            name=f"{name} over nccl-tests, ≥ 64 MiB, {gpus} GPUs",
            unit="×",
            plan="nccltests",
            measured=_at(gpus, _over_nccl_tests(name)),
            comparison="≥",
            goal=0.98,
            **_GOAL,
        )
        for gpus in (2, 4)
        for name in COLLECTIVES
    ),
    *(
        Measure(name=f"{name}, {gpus} GPUs", unit=unit, plan=plan, measured=_at(gpus, shown), **_NONE_WRONG)
        for gpus in (2, 4)
        for name, unit, plan, shown in (
            ("settings wrong, or faster than the links", "settings", "sweep", _wrong_settings),
            ("rings not right or not of the formula", "rings", "ring", _wrong_rings),
        )
    ),
    Measure(
        name="benchmarks that are judged wrongly", unit="benchmarks", plan="trial", measured=_misjudged, **_NONE_WRONG
    ),
)
