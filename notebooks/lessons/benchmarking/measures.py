"""What matters of lab 06: products and a training step on the card; how far the clocks and the model may be off."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.tables.measures import CODE, HOST, LOWER, Measure, Measured, datasheet, on_one, repeats
from labkit.tables.rates import PEAK
from lessons.benchmarking.plan import Products
from lessons.benchmarking.tables import accounts, launches, wrong_by_rows

if TYPE_CHECKING:
    from labkit.engine.run import Run

_NAMES = {"float32": "float32", "tf32": "TF32", "bfloat16": "bfloat16"}
_LARGEST = "2.7b"


def card_plans() -> list[Products]:
    """Return what `make card` launches: the products."""
    return [Products.full() if Products.on_gpus() else Products.small(gpus=2, warm_ups=2, repeats=7)]


def _product(precision: str) -> Callable[[Run], Measured | None]:
    """Return how a run gives the rate of the GPU that multiplies most slowly while all GPUs multiply."""

    def measured(run: Run) -> Measured | None:
        rows = run.rows
        rows = rows[(rows["precision"] == precision) & ~rows["warm_up"].astype(bool) & (rows["status"] == "ok")]
        if rows.empty:
            return None
        medians, side = rows.groupby("rank")["ms"].transform("median"), int(rows["side"].iloc[0])
        slowest = rows[medians == medians.max()]["ms"]
        limits = datasheet(run)
        made = Measured.of(slowest, on_one(run, f"{side} × {side}, all at the same time"))
        return made and made.rate(2 * side**3 / 1e9, limits and limits.tflops(PEAK[precision]))

    return measured


def _step(run: Run) -> Measured | None:
    knobs = {"model": _LARGEST, "precision": "autocast", "phase": "step", "mode": "compiled_graph"}
    setting = f"{run.plan.samples} × {run.plan.sequence} tokens, compiled, one graph"
    return Measured.of(repeats(run, "ms", **knobs), setting)


def _counted(value: float) -> Measured:
    """Return a figure that has no repeats of its own."""
    return Measured(float(value), float(value), float(value), 1, "")


def _model_error(run: Run) -> Measured:
    table = launches(run)
    return _counted(100 * table[table["axis"] == "model"]["error"].abs().max())


def _clocks_apart(run: Run) -> Measured:
    table = accounts(run)
    return _counted(100 * table[table["phase"] == "forward"]["apart"].abs().max())


def _bugs_caught(run: Run) -> Measured:
    rows = run.rows[run.rows["variant"] != "right"].to_dict("records")
    return _counted(sum(row["variant"] in wrong_by_rows(row) for row in rows))


_GOAL = {"on_card": False, "least_gpus": 1}

MEASURES = (
    *(
        Measure(
            name=f"matrix product, {name}, slowest GPU",
            unit="TFLOP/s",
            plan="products",
            measured=_product(precision),
            least_gpus=0 if precision == "float32" else 1,
        )
        for precision, name in _NAMES.items()
    ),
    Measure(
        name=f"training step, {_LARGEST}, autocast",
        unit="ms",
        plan="steps",
        measured=_step,
        better=LOWER,
        depends_on=HOST,
        least_gpus=1,
    ),
    Measure(
        name="launch model's largest error, the five sizes' eager forwards",
        unit="%",
        plan="launches",
        measured=_model_error,
        better=LOWER,
        comparison="≤",
        goal=10,
        depends_on=HOST,
        reason="the host enqueued one size of five at another speed than the small forward just before it",
        **_GOAL,
    ),
    Measure(
        name="profiler's window against the clock of the same forwards, at most",
        unit="%",
        plan="profiles",
        measured=_clocks_apart,
        better=LOWER,
        comparison="≤",
        goal=3,
        depends_on=HOST,
        **_GOAL,
    ),
    Measure(
        name="broken benchmarks caught, of 5",
        unit="",
        plan="trial",
        measured=_bugs_caught,
        comparison="=",
        goal=5,
        depends_on=CODE,
        **_GOAL,
    ),
)
