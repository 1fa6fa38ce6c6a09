"""What matters of lab 08: the rates of two kernels on the card; errors, memory and times against torch's kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.tables.key_figures import LOWER, Measured, datasheet
from labkit.tables.measures import Measure, ratio
from labkit.tables.targets import CODE, GPU, HOST
from lessons.attention.plan import Race
from lessons.attention.tables import memory, speed
from lessons.attention.theory import flops

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SEQUENCE, _LONGEST = 16384, 65536
_SHOWN = (("flash", 64, "FlashAttention in Triton"), ("sdpa_cudnn", 128, "cuDNN's attention"))


def card_plans() -> list[Race]:
    """Return what `make card` launches; without a GPU nothing, because Triton's interpreter says nothing of speed."""
    kernels = tuple(kernel for kernel, *_ in _SHOWN)
    return [Race.full(implementations=kernels, sequences=(_SEQUENCE,), captured=0)] if Race.on_gpus() else []


def _launched(run: Run, implementation: str, head_dim: int) -> Measured | None:
    """Return forward and backward in ms as autograd calls them, at 16 384 positions."""
    rows = run.rows
    wanted = {"implementation": implementation, "head_dim": head_dim, "sequence": _SEQUENCE, "precision": "bfloat16"}
    wanted |= {"clock": "launched", "phase": "both", "status": "ok"}
    rows = rows[(rows[[*wanted]] == pd.Series(wanted)).all(axis=1)]
    if rows.empty:
        return None
    row = rows.iloc[-1]
    setting = f"N 16 384, d {head_dim}, {int(row['heads'])} heads, causal, bfloat16"
    return Measured(row["ms"], row["low_ms"], row["high_ms"], int(row["repeats"]), setting)


def _tflops(implementation: str, head_dim: int) -> Callable[[Run], Measured | None]:
    """Return how a run gives a kernel's rate."""

    def measured(run: Run) -> Measured | None:
        known, times = datasheet(run), _launched(run, implementation, head_dim)
        plan: Any = run.plan
        work = flops("both", _SEQUENCE, _SEQUENCE, head_dim, causal=plan.causal, heads=plan.heads)
        return times and times.rate(work / 1e9, known and known.bf16_tflops)

    return measured


def _over_rival(clock: str) -> Callable[[Run], Measured | None]:
    """Return how a run gives our FlashAttention's time over that of torch's kernel, where it is the longest."""

    def measured(run: Run) -> Measured | None:
        table = speed.race(run)
        own = table[(table["implementation"] == "flash") & (table["clock"] == clock)].dropna(subset=["versus"])
        if own.empty:
            return None
        worst = own.loc[own["versus"].idxmax()]
        cell = ["clock", "precision", "head_dim", "sequence", "phase"]
        same = (table[cell] == worst[cell]).all(axis=1) & (table["implementation"] == speed.rival_of(run.plan))
        return ratio(_figure(worst), _figure(table[same].iloc[0]))

    return measured


def _figure(row: pd.Series) -> Measured:
    """Return a row's time; the captured backward has no quartiles."""
    low, high = (row["ms"] if pd.isna(row[name]) else row[name] for name in ("low_ms", "high_ms"))
    return Measured(row["ms"], low, high, 1, "")


def _counted(value: float) -> Measured:
    """Return a figure that every repeat gives alike."""
    return Measured(float(value), float(value), float(value), 1, "")


def _phases_at_the_longest(run: Run) -> Measured | None:
    if _LONGEST not in run.plan.sequences:
        return None
    table = speed.race(run).query("implementation == 'flash' and clock == 'launched'")
    return _counted(table[table["sequence"] == _LONGEST]["ms"].notna().sum())


def _largest_error(precision: str) -> Callable[[Run], Measured | None]:
    """Return how a run gives the largest error of our FlashAttention in a precision, in thousandths."""

    def measured(run: Run) -> Measured:
        table = memory.errors(run)
        chosen = (table["implementation"] == "flash") & (table["precision"] == precision)
        return _counted(1e3 * table[chosen]["worst"].max())

    return measured


def _same_bits(run: Run) -> Measured:
    table = memory.errors(run)
    return _counted(table[table["implementation"] == "flash"]["same_bits"].all())


def _growth(run: Run) -> Measured:
    table = memory.held(run)
    return _counted(table[table["implementation"] == "flash"]["exponent"].dropna().iloc[-1])


def _missed_bugs(run: Run) -> Measured:
    rows = run.rows[run.rows["variant"] != "right"]
    wrong = (rows["sees_ahead"] > 0) | (rows["early_weight"] > 1.01) | (rows["products"] > 0)
    return _counted((~wrong & (rows[["forward_largest", "backward_largest"]].max(axis=1) < 1)).sum())


_GOAL: Any = {"on_card": False, "least_gpus": 1, "better": LOWER, "depends_on": CODE}

MEASURES = (
    *(
        Measure(
            name=f"{name}, forward + backward",
            unit="TFLOP/s",
            plan="race",
            measured=_tflops(kernel, width),
            least_gpus=1,
        )
        for kernel, width, name in _SHOWN
    ),
    Measure(
        name="forward + backward, N 16 384, d 64, causal",
        unit="ms",
        plan="race",
        measured=lambda run: _launched(run, "flash", 64),
        comparison="≤",
        goal=4.0,
        **_GOAL | {"depends_on": GPU},
    ),
    *(
        Measure(
            name=f"{clock} over SDPA-flash, where it is slowest",
            unit="×",
            plan="race",
            measured=_over_rival(clock),
            comparison="≤",
            goal=1,
            **_GOAL | {"depends_on": on},
        )
        for clock, on in (("launched", HOST), ("captured", GPU))
    ),
    Measure(
        name="phases measured at N 65 536, of 6",
        unit="",
        plan="race",
        measured=_phases_at_the_longest,
        comparison="=",
        goal=6,
        **_GOAL,
    ),
    *(
        Measure(
            name=f"largest error, {precision}",
            unit="thousandths",
            plan="errors",
            measured=_largest_error(precision),
            comparison="≤",
            goal=1e3 * memory.TOLERANCES[precision],
            **_GOAL,
        )
        for precision in memory.TOLERANCES
    ),
    Measure(
        name="a second run gives the same bits",
        unit="",
        plan="errors",
        measured=_same_bits,
        comparison="=",
        goal=1,
        **_GOAL,
    ),
    Measure(
        name="what is kept grows with N to the power",
        unit="",
        plan="memory",
        measured=_growth,
        comparison="≤",
        goal=1.02,
        **_GOAL,
    ),
    Measure(
        name="wrong attentions that no check catches",
        unit="",
        plan="trial",
        measured=_missed_bugs,
        comparison="=",
        goal=0,
        **_GOAL,
    ),
)
