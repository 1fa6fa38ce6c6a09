"""What a report claims about bucket sizes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

from labkit.engine.run import replay
from labkit.tables.claims import claim
from labkit.tables.published import published
from labkit.theory.traffic import buckets
from lessons.ddp_from_scratch.claims._printed import (
    GRADIENT_BYTES,
    MODEL,
    REPORT,
    RUNS,
    naive_steps,
    noise,
    recorded_steps,
    sent_s,
    step_s,
)
from lessons.ddp_from_scratch.tables.buckets import overhead
from lessons.ddp_from_scratch.tables.steps import row_of

MB = 1e6


def calls(cap_bytes: float) -> int:
    """Return how many all-reduces buckets of this size make of XL's gradients."""
    return buckets(MODEL.shapes, 4, cap=round(cap_bytes), first=round(cap_bytes))


@claim(
    REPORT,
    "buckets of 10 MB make the step shorter than buckets of 1 MB",
    "%",
    recomputes="how many more calls buckets of 1 MB make",
)
def size_1_against_10():
    """A bucket takes whole gradients, and XL's matrices hold 10 MB or more, so both sizes make the same 338 calls.

    The printed difference has another cause than the bucket size. If MB
    means MiB, buckets of 10 MiB make 242 calls.
    """
    printed = step_s("bucketed", 1) / step_s("bucketed", 10) - 1
    more_calls = calls(1 * MB) / calls(10 * MB) - 1
    return round(100 * printed, 1), 100 * more_calls, more_calls > 0 and printed > noise()


@claim(
    REPORT,
    "buckets of 100 MB make the step longer than buckets of 10 MB",
    "%",
    recomputes="difference of the report's two naive steps",
)
def size_100_against_10():
    """The printed difference is smaller than that of the two printed naive steps, so it can be noise."""
    printed = step_s("bucketed", 100) / step_s("bucketed", 10) - 1
    return round(100 * printed, 1), 100 * noise(), True if printed > noise() else None


@claim(
    REPORT,
    "the best bucket size is the printed expression",
    recomputes="the expression's value with o and w of our recorded sweep",
)
def best_size_formula():
    """The assignment asks for a size in bytes, √(s·w·o). The printed expression is the number of buckets.

    s is the total size of all gradients, w the link's rate, o the cost per call. The fit of our recorded sweep on 2 ×
    H200 has w = 257 GB/s and o = 41 µs; its largest error is 9 %. With these the expression gives about 27. That is the
    best number of XL's buckets, not their size: each of them has about 291 MB (278 MiB).
    """
    number = overhead(replay(RUNS + "buckets")).iloc[0]["optimum_buckets"]
    recomputed = f"{number:.1f} buckets, of {GRADIENT_BYTES / number / MB:.0f} MB"
    return stated("best bucket size"), recomputed, stated("best bucket size") == "√(s·w·o)"


def stated(statement: str) -> str:
    """Return a statement of the report's text; an empty string if it gives no value."""
    return str(published("ddp_from_scratch_statements").set_index("statement")["value"].fillna("")[statement])


def fits() -> pd.DataFrame:
    """Return base + n·o + s/(n·w) through the printed bucket sizes: gb_per_s (w) and best_mb, √(s·w·o).

    The first row is as printed. In the others each step is moved up or down by half of `noise`. A fit with a negative o
    or w has no best size: NaN.
    """
    sizes = np.array([1.0, 10.0, 100.0]) * MB
    steps = np.array([step_s("bucketed", size / MB) for size in sizes])
    design = np.column_stack([np.ones(len(sizes)), GRADIENT_BYTES / sizes, sizes])
    half_s = noise() * min(naive_steps()) / 2
    moves = np.array([(0, 0, 0), *product((-1, 1), repeat=3)])
    _, call_s, per_byte_s = np.transpose([np.linalg.lstsq(design, steps + half_s * move)[0] for move in moves])
    table = pd.DataFrame({"gb_per_s": 1 / per_byte_s / 1e9})
    table["best_mb"] = np.sqrt(GRADIENT_BYTES * (call_s / per_byte_s).clip(min=0)) / MB
    table.loc[(call_s <= 0) | (per_byte_s <= 0)] = np.nan
    return table


@claim(
    REPORT,
    "the steps follow n·o + s/(n·w), with w the link's rate",
    "GB/s",
    recomputes="the w that fits the printed bucketed steps",
)
def steps_follow_the_formula():
    """Printed is the rate at which the report's own naive communication ran.

    That is more than 30 times the fitted w, so the last bucket's transfer is not what made the steps differ.
    """
    rate = GRADIENT_BYTES / sent_s("naive") / 1e9
    fitted = fits()["gb_per_s"].iloc[0]
    return round(rate, 1), fitted, bool(abs(fitted / rate - 1) <= 0.5)


@claim(REPORT, "10 MB is the fastest bucket size", recomputes="best sizes of fits through the printed steps")
def best_size():
    """Through three printed sizes the formula has a best size. But two naive steps differ by 70 ms.

    With each bucketed step moved up or down by half of that, some fits have no best size at all.
    """
    printed = min((1, 10, 100), key=lambda size: step_s("bucketed", size))
    moved = fits()["best_mb"].iloc[1:]
    lost = int(moved.isna().sum())
    recomputed = f"{moved.min():.0f} to {moved.max():.0f} MB; none in {lost} of {len(moved)} fits"
    return f"{printed} MB", recomputed, None if lost else printed > 0


@claim(
    REPORT,
    "buckets of 1000 MB are too large for the GPU's memory",
    recomputes="the peak of our recorded step with buckets of 25 MiB and 128 positions",
)
def large_buckets_do_not_fit():
    """All buckets together hold all gradients, 8.0 GB, whatever the size of one. Buckets of 100 MB need as much, and
    they ran.

    With buckets our recorded step on 2 × H200 fits into an H100's 80 GB, too. Something else than the buckets filled
    the memory.
    """
    failed, smaller_ran = np.isnan(step_s("bucketed", 1000)), not np.isnan(step_s("bucketed", 100))
    peak_gb = row_of(recorded_steps(128), "bucketed")["peak_mib"] * 2**20 / 1e9
    return "out of memory" if failed else "ran", f"{peak_gb:.1f} of 80 GB", bool(failed and not smaller_ran)
