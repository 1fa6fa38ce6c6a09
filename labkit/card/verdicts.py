"""What a key figure says of the node: sound, below the reference, impossible, not comparable, or not measured.

The threshold is the recorded reference's own spread, as Tukey's fence draws it ("Exploratory Data Analysis", 1977): a
repeat farther than 1.5 interquartile ranges outside of the quartiles is an outlier. Repeats of one process may agree to
a thousandth, while clocks resolve two percent: the fence stands at least that far from the median. A node whose median,
with half of its own spread, lies beyond that fence on the worse side is below the reference. Where several recorded
runs show the figure, the fence goes around all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from labkit.card.readings import Reading
from labkit.node.comparability import THROTTLED_PERCENT
from labkit.node.limits import RESOLUTION
from labkit.tables.measures import LOWER, Measure

SOUND, BELOW, IMPOSSIBLE = "sound", "below", "impossible"
NOT_COMPARABLE, NOT_MEASURED = "not comparable", "not measured"
KINDS = (SOUND, BELOW, IMPOSSIBLE, NOT_COMPARABLE, NOT_MEASURED)
FENCE = 1.5
HEAT = "temperature"  # among the reasons of labkit.node.comparability
THRESHOLD = (
    "A figure is below the reference where its median, with half of its own spread, lies beyond the fence of the "
    f"recorded repeats: their quartiles and {FENCE:g} interquartile ranges more (Tukey's rule for outliers), and at "
    f"least {100 * RESOLUTION:g} % from their median. It is impossible where it exceeds the datasheet's limit by more "
    f"than {100 * RESOLUTION:g} %."
)


@dataclass(frozen=True)
class FigureVerdict:
    """One of KINDS, the words for it, and the reference it is based on (None where there is none).

    percent: by how much the figure is worse than the reference's median; negative where it is better; NaN without one.
    """

    kind: str
    text: str
    reference: Reading | None = None
    percent: float = math.nan


def fences(low: float, median: float, high: float) -> tuple[float, float]:
    """Return the lowest and the highest value that are no outliers among repeats with these quartiles."""
    reach = FENCE * (high - low)
    return min(low - reach, median * (1 - RESOLUTION)), max(high + reach, median * (1 + RESOLUTION))


def _fence(reading: Reading, better: str, *, on_the_worse_side: bool = True) -> float:
    lowest, highest = fences(reading.low, reading.value, reading.high)
    return highest if (better == LOWER) == on_the_worse_side else lowest


def judge(
    figure: Measure, here: Reading | None, recorded: Sequence[Reading], gpus: int, reason: str = ""
) -> FigureVerdict:
    """Return what the figure says of a node with so many GPUs; `reason`: why it was not measured, where known.

    `recorded` are the readings of this figure on the node's GPU model.
    """
    if here is None:
        few = f"needs {figure.least_gpus} GPU{'s' * (figure.least_gpus > 1)}" if gpus < figure.least_gpus else ""
        reason = few or reason
        return FigureVerdict(NOT_MEASURED, f"{NOT_MEASURED}: {reason}" if reason else NOT_MEASURED)
    if contradicts_physics(figure, here):
        return FigureVerdict(IMPOSSIBLE, "impossible: check the clock")
    same = [reading for reading in recorded if reading.setting == here.setting]
    if not same:
        return FigureVerdict(NOT_COMPARABLE, f"{NOT_COMPARABLE}: {_missing_reference(here, recorded)}")
    nearest = min(same, key=lambda reading: _worse_by(figure, here, reading))
    percent = _worse_by(figure, here, nearest)
    side = 1 if figure.better == LOWER else -1
    at_best = here.value - side * (here.high - here.low) / 2  # as good as the node's own spread allows
    if not all(side * at_best > side * _fence(reading, figure.better) for reading in same):
        worse = f": {percent_text(percent)} % worse, within the repeats' spread" if percent > 100 * RESOLUTION else ""
        at_worst = here.value + side * (here.high - here.low) / 2
        beyond = (_fence(reading, figure.better, on_the_worse_side=False) for reading in same)
        better = -max(_worse_by(figure, here, reading) for reading in same)
        stale = f": {percent_text(better)} % better, the reference is stale"
        is_stale = not figure.by_host and all(side * at_worst < side * fence for fence in beyond)  # hosts differ
        remark = stale if is_stale else worse
        return FigureVerdict(SOUND, SOUND + remark, nearest, percent)
    if disturbed_by := disturbance(here, nearest):
        return FigureVerdict(NOT_COMPARABLE, f"{NOT_COMPARABLE}: {disturbed_by}", nearest, percent)
    return FigureVerdict(BELOW, f"below the reference by {percent_text(percent)} %", nearest, percent)


def contradicts_physics(figure: Measure, here: Reading) -> bool:
    """Return whether no clock can show this figure: it beats its limit, or is no positive finite number."""
    if not 0 < here.value < math.inf:
        return True
    if here.limit is None:
        return False
    share = here.limit / here.value if figure.better == LOWER else here.value / here.limit
    return share > 1 + RESOLUTION


def disturbance(here: Reading, reference: Reading) -> str:
    """Return what disturbed the run, in a word or two: "throttled"; "" where nothing is known to.

    A sound GPU reaches its power cap under full load, so a share of throttled time disturbs only where it exceeds the
    reference's. Where the reference's is not known, only heat disturbs.
    """
    throttled, usual = here.conditions.get("throttled_percent", 0), reference.conditions.get("throttled_percent")
    if here.shared or here.conditions.get("other_processes"):
        return "another process used the GPUs"
    reasons = str(here.conditions.get("throttle_reasons") or "")
    if throttled > THROTTLED_PERCENT + (usual or 0) and (usual is not None or HEAT in reasons):
        return f"throttled ({reasons})" if reasons else "throttled"
    return ""


def _worse_by(figure: Measure, here: Reading, reference: Reading) -> float:
    """Return by how many percent of the reference's median the figure is worse than it."""
    change = 100 * (here.value / reference.value - 1)
    return change if figure.better == LOWER else -change


def _missing_reference(here: Reading, recorded: Iterable[Reading]) -> str:
    """Return what the reference lacks."""
    settings = sorted({reading.setting for reading in recorded})
    if not here.model:
        return "no reference for CPUs"
    if not settings:
        return f"not recorded on {here.model}"
    return f"recorded with {' or '.join(settings)}"


def percent_text(percent: float) -> str:
    """Return two digits, never "0": 0.31, 7.2, 34."""
    return f"{percent:.2g}" if percent < 99.5 else f"{percent:.0f}"
