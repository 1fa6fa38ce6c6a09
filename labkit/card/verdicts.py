"""What a key figure says of the node: sound, below the reference, impossible, not comparable, or not measured.

The threshold is the recorded reference's own spread, as Tukey's fence draws it ("Exploratory Data Analysis", 1977): a
repeat farther than 1.5 interquartile ranges outside of the quartiles is an outlier. Repeats of one process may agree to
a thousandth, while clocks resolve two percent: the fence stands at least that far from the median, and farther where
the host has a part in the figure (see `least_reach`). A node whose median, with half of its own spread, lies beyond
that fence on the worse side is below the reference. Where several recorded runs show the figure, the fence goes around
all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from labkit.card.readings import Reading
from labkit.node.comparability import THROTTLED_PERCENT
from labkit.node.limits import RESOLUTION
from labkit.tables.measures import LOWER, Measure, Part

SOUND, ALIKE = "sound", "alike"
BELOW, ODD, IMPOSSIBLE = "below", "odd one out", "impossible"
NOT_COMPARABLE, NOT_MEASURED = "not comparable", "not measured"
KINDS = (SOUND, ALIKE, BELOW, ODD, IMPOSSIBLE, NOT_COMPARABLE, NOT_MEASURED)
WRONG = (IMPOSSIBLE, BELOW, ODD)
FENCE = 1.5
ODD_PERCENT = 5.0  # GPUs of the recorded nodes are at most 3 % apart: 1930 and 1989 GB/s within two H200
# Four cards of one sound node of two H200 within 40 minutes: copies with the host 89 to 110 GB/s; what the host decides
# 1.1 to 2.7 × apart (start-up 0.74 to 0.79 s, another node 0.50; one small all-reduce 54 to 143 µs).
HOST_RATE, HOST_TIME = 0.25, 1.0
HEAT = "temperature"  # among the reasons of labkit.node.comparability
THRESHOLD = (
    "A figure is below the reference where its median, with half of its own spread, lies beyond the fence of the "
    f"recorded repeats: their quartiles and {FENCE:g} interquartile ranges more (Tukey's rule for outliers), and at "
    f"least {100 * RESOLUTION:g} % from their median; copies with the host have {100 * HOST_RATE:g} %, times that the "
    f"host decides a factor of {1 + HOST_TIME:g}: so much sound nodes differ. It is impossible where it exceeds the "
    f"datasheet's limit by more than {100 * RESOLUTION:g} %. A GPU, or pair, is the odd one out where its median is "
    f"more than {ODD_PERCENT:g} % worse than the median of its peers in this node (of pairs: those with the same kind "
    "of path), and its better quartile is worse than theirs."
)


@dataclass(frozen=True)
class FigureVerdict:
    """One of KINDS, the words for it, and the reference it is based on (None where there is none).

    percent: by how much the figure is worse than the reference's median, or than its peers' where it is the odd one
    out; negative where it is better; NaN without either.
    """

    kind: str
    text: str
    reference: Reading | None = None
    percent: float = math.nan


def least_reach(by_host: bool, better: str) -> float:
    """Return how far a fence stands from the median at least, as a share of it: so much sound nodes differ."""
    if not by_host:
        return RESOLUTION
    return HOST_TIME if better == LOWER else HOST_RATE


def fences(low: float, middle: float, high: float, least: float = RESOLUTION) -> tuple[float, float]:
    """Return the lowest and the highest value that are no outliers among repeats with these quartiles."""
    reach = FENCE * (high - low)
    return min(low - reach, middle / (1 + least)), max(high + reach, middle * (1 + least))


def _fence(reading: Reading, figure: Measure, *, on_the_worse_side: bool = True) -> float:
    least = least_reach(figure.by_host, figure.better)
    lowest, highest = fences(reading.low, reading.value, reading.high, least)
    return highest if (figure.better == LOWER) == on_the_worse_side else lowest


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
    odd = odd_one_out(here.parts, figure.better)
    if not same:
        return _among_peers(here, odd) or FigureVerdict(
            NOT_COMPARABLE, f"{NOT_COMPARABLE}: {_missing_reference(here, recorded)}"
        )
    nearest = min(same, key=lambda reading: _worse_by(figure, here, reading))
    percent = _worse_by(figure, here, nearest)
    side = 1 if figure.better == LOWER else -1
    at_best = here.value - side * (here.high - here.low) / 2  # as good as the node's own spread allows
    if not all(side * at_best > side * _fence(reading, figure) for reading in same):
        if odd is not None and not is_shared(here):
            return FigureVerdict(ODD, odd.text, nearest, odd.percent)
        usual = "as hosts differ" if figure.by_host else "within the repeats' spread"
        worse = f": {percent_text(percent)} % worse, {usual}" if percent > 100 * RESOLUTION else ""
        at_worst = here.value + side * (here.high - here.low) / 2
        beyond = (_fence(reading, figure, on_the_worse_side=False) for reading in same)
        better = -max(_worse_by(figure, here, reading) for reading in same)
        stale = f": {percent_text(better)} % better, the reference is stale"
        is_stale = not figure.by_host and all(side * at_worst < side * fence for fence in beyond)  # hosts differ
        remark = stale if is_stale else worse
        return FigureVerdict(SOUND, SOUND + remark, nearest, percent)
    if disturbed_by := disturbance(here, nearest):
        return FigureVerdict(NOT_COMPARABLE, f"{NOT_COMPARABLE}: {disturbed_by}", nearest, percent)
    return FigureVerdict(BELOW, f"below the reference by {percent_text(percent)} %", nearest, percent)


@dataclass(frozen=True)
class Odd:
    """The part that is worst beside its peers, in words, and by how many percent."""

    text: str
    percent: float


def odd_ones(parts: Sequence[Part], better: str, least_percent: float = ODD_PERCENT) -> dict[str, float]:
    """Return by how many percent each part is worse than its peers: more than its spread and `least_percent`."""
    side, found = 1 if better == LOWER else -1, {}
    for part in parts:
        peers = [peer for peer in parts if peer is not part and peer.path == part.path]
        if not peers:
            continue
        usual = median(peer.value for peer in peers)
        edge = median((peer.high if better == LOWER else peer.low) for peer in peers)
        percent = 100 * side * (part.value / usual - 1)
        best = part.low if better == LOWER else part.high
        if percent > least_percent and side * best > side * edge:
            found[part.name] = percent
    return found


def odd_one_out(parts: Sequence[Part], better: str) -> Odd | None:
    """Return the GPU, or pair, that is worst beside its peers, as `odd_ones` tells; None without."""
    found = odd_ones(parts, better)
    if not found:
        return None
    percent, name = max((percent, name) for name, percent in found.items())
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return Odd(f"{name} is {percent_text(percent)} % worse than its peers{more}", percent)


def _among_peers(here: Reading, odd: Odd | None) -> FigureVerdict | None:
    """Return what a figure without a reference says of the GPUs among each other; None where they have no peers."""
    if len(here.parts) < 2 or not here.model or is_shared(here):
        return None
    if odd is not None:
        return FigureVerdict(ODD, odd.text, percent=odd.percent)
    lowest, highest = (side(part.value for part in here.parts) for side in (min, max))
    apart = f"within {percent_text(100 * (1 - lowest / highest))} %" if highest > lowest else "equal"
    return FigureVerdict(ALIKE, f"{ALIKE}: {len(here.parts)} {'pairs' if here.parts[0].path else 'GPUs'} {apart}")


def is_shared(here: Reading) -> bool:
    """Return whether another program used the run's GPUs, too."""
    return here.shared or bool(here.conditions.get("other_processes"))


def contradicts_physics(figure: Measure, here: Reading) -> bool:
    """Return whether no clock can show this figure: it beats its limit, or is no positive finite number."""
    if not 0 < here.value < math.inf:
        return True
    if not here.has_limit:
        return False
    share = here.limit / here.value if figure.better == LOWER else here.value / here.limit
    return share > 1 + RESOLUTION


def disturbance(here: Reading, reference: Reading) -> str:
    """Return what disturbed the run, in a word or two: "throttled"; "" where nothing is known to.

    A sound GPU reaches its power cap under full load, so a share of throttled time disturbs only where it exceeds the
    reference's. Where the reference's is not known, only heat disturbs.
    """
    throttled, usual = here.conditions.get("throttled_percent", 0), reference.conditions.get("throttled_percent")
    if is_shared(here):
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
