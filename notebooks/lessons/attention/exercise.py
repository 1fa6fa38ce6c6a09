"""The student's online softmax and the attentions with a bug: how each is judged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from math import exp, isinf, isnan

from labkit.course.exercises import CORE, WARM_UP, Exercise, Exercises
from labkit.course.judging import close, is_number
from labkit.course.lineup import line_up
from labkit.course.verdict import RAISED, RIGHT, WRONG, Verdict
from labkit.story import units
from lessons.attention.hints import HINTS
from lessons.attention.listings import CODES
from lessons.attention.plan import PROBE
from lessons.attention.theory import Running, merged
from lessons.attention.tile_work import TILES, judge_tile

SYMPTOMS = {  # find the bug: attentions that claim to be FlashAttention-2, and what each suspect shows
    "no_diagonal_mask": "the tile on the diagonal is not masked: queries see keys up to its end",
    "not_rescaled": "what was summed under a lower maximum keeps its weight when the maximum rises",
    "square_backward": "the backward builds the whole N×N matrix of probabilities again",
}
_TOLERANCE = 1e-3  # float32
_TOO_MUCH = 1.01  # a probability may be this times too large

_VALUES = [[1.0, -2.0], [0.5, 3.0], [-1.5, 0.25]]
_WIDE = [[0.5, -1.0, 2.0], [1.5, 0.25, -0.5], [-2.0, 1.0, 0.75], [3.0, -0.25, 1.25]]
SETTINGS = {  # what one row keeps (m, l, o), the tile's scores and values
    "at a row's first tile": (-math.inf, 0.0, [0.0, 0.0], [0.5, 1.5, -1.0], _VALUES),
    "where the maximum rises from 1 to 3": (1.0, 2.5, [1.25, -0.75], [0.5, 3.0, 2.0], _VALUES),
    "where the maximum stays 3": (3.0, 1.5, [0.5, 2.0], [1.0, -0.5, 2.0], _VALUES),
    "where two keys of three are masked": (1.0, 2.0, [-0.5, 1.0], [1.5, -math.inf, -math.inf], _VALUES),
    "where the first key is masked": (1.0, 2.0, [-0.5, 1.0], [-math.inf, 0.5, 2.0], _VALUES),
    "where the middle key is masked": (2.0, 1.5, [0.5, 2.0], [0.25, -math.inf, 1.5], _VALUES),
    "at a row's first tile, with its first key masked": (-math.inf, 0.0, [0.0, 0.0], [-math.inf, 0.5, -0.5], _VALUES),
    "with four keys, values of three numbers and two keys masked": (
        0.5,
        1.25,
        [0.5, -1.0, 2.0],
        [-math.inf, 1.25, -math.inf, -0.75],
        _WIDE,
    ),
    "with one key and values of one number": (0.25, 1.5, [0.75], [1.0], [[-2.0]]),
    "with scores near 1000": (998.0, 1.5, [0.5, -1.0], [1000.0, 999.0, 997.5], _VALUES),
    "with scores near −1000": (-1000.0, 1.5, [0.5, -1.0], [-999.0, -1001.5, -1000.5], _VALUES),
    "where all keys are masked": (1.0, 2.0, [-0.5, 1.0], [-math.inf] * 3, _VALUES),
    "where all keys are masked, and all before were": (
        -math.inf,
        0.0,
        [0.0, 0.0],
        [-math.inf] * 3,
        _VALUES,
    ),
}
_CLOSE = 1e-5  # float32's rounding, added up over a tile, stays below
OVERFLOW = "exp overflows above 709: take the new maximum from each score first, so that no exponent is above 0"


def explain_overflow(verdict: Verdict) -> Verdict:
    """Return the verdict on a call that raised or hung; where exp overflowed, it says why."""
    overflowed = verdict.outcome == RAISED and "OverflowError" in verdict.detail
    return replace(verdict, faults=verdict.faults | {"overflow": OVERFLOW}) if overflowed else verdict


def judge_online(given: list, settings: Mapping[str, tuple] = SETTINGS) -> Verdict:
    """Return the verdict on m, l and o after one more tile, a [m, l, o] for each of `settings`."""
    faults: dict[str, str] = {}
    for (where, setting), found in zip(settings.items(), given, strict=True):
        for kind, sentence in _faults(setting, found).items():
            faults.setdefault(kind, f"{where}, {sentence}")
    if len(faults) > 1:
        faults.pop("masked", None)  # most other mistakes show in masked tiles, too
    merits = ("as the maximum rises, l and o are rescaled alike", "no exponent is above 0; masked keys change nothing")
    return Verdict("online_softmax", WRONG if faults else RIGHT, faults, () if faults else merits)


def _right(maximum: float, total: float, output: list[float], scores: list[float], values: list) -> Running:
    """Return m, l and o after one more tile."""
    return merged(Running(maximum, total, tuple(output)), scores, values)


def _faults(setting: tuple, found) -> dict[str, str]:
    """Return what is wrong after one tile: a sentence a kind."""
    (old, _, output, scores, _), wanted = setting, _right(*setting)
    if not _is_formed(found, len(output)):
        why = ": is a `return` missing?" if found is None else ""
        return {"form": f"it gives {found!r:.80}, not m, l and a list of {len(output)} numbers{why}"}
    numbers = [*found[:2], *found[2]]
    if _near(numbers, [*wanted[:2], *wanted.output]):
        return {}
    if max(scores) == -math.inf:
        why = ": −inf − (−inf) is nan" if any(map(isnan, numbers)) else ""
        return {"masked": f"nothing may change, yet m, l and o become {_as_read(found)}{why}"}
    if isinf(found[1]):
        return {"overflow": f"m, l and o are {_as_read(found)}: {OVERFLOW}"}
    if any(map(isnan, numbers)):
        why = ": exp(m_old − m_new) is exp(−inf) there, which is 0" if old == -math.inf else ""
        if old == -math.inf and -math.inf in scores:
            why = ": −inf − (−inf) is nan; take the new maximum, which is finite, from each score"
        return {"nan": f"m, l and o are {_as_read(found)}{why}"}
    if not _near(found[0], wanted.maximum):
        if found[0] == max(scores):
            return {
                "own_maximum": f"m is {_as_read(found[0])}, the maximum of the tile alone; the row had "
                f"{_as_read(old)} before"
            }
        return {"maximum": f"m is {_apart(found[0], wanted.maximum)}"}
    return _wrong_sums(setting, found, wanted)


def _wrong_sums(setting: tuple, found: list, wanted: Running) -> dict[str, str]:
    (old, total, output, scores, values), top = setting, wanted.maximum
    factor, upside_down, tile_max = exp(old - top), exp(top - old), max(scores)

    def made(keep: float, base: float) -> Running:
        """Return the row if its old sums are multiplied by `keep` and its scores count from `base`."""
        return _right(base, keep * total, [keep * part for part in output], scores, values)

    times = f"exp(m_old − m_new) = {_as_read(factor)}"
    normalised = wanted._replace(output=tuple(part / wanted.total for part in wanted.output))
    seen = [score for score in scores if score != -math.inf]
    shifted = _right(old, total, output, seen, values[: len(seen)])
    mistakes = {
        "not_rescaled": (made(1.0, top), f": the old one is kept as it was, not times {times}"),
        "forgotten": (made(0.0, top), f": the old one, times {times}, is missing"),
        "upside_down": (made(upside_down, top), f": the old one is times {_as_read(upside_down)}, not times {times}"),
        "own_maximum": (
            made(factor, tile_max),
            f": the scores count from {_as_read(tile_max)}, the tile's own maximum",
        ),
        "misaligned": (shifted, ": scores and values are out of step: leave out a masked key's value with its score"),
        "normalised": (
            normalised,
            ": it is already divided by l, and that division comes after the last tile of the row",
        ),
    }
    faults = {}
    for place, name in ((1, "l"), (2, "o")):
        if not _near(found[place], wanted[place]):
            made_so = (
                (f"{name}_{kind}", why) for kind, (row, why) in mistakes.items() if _near(found[place], row[place])
            )
            kind, why = next(made_so, (name, ""))
            faults[kind] = f"{name} is {_apart(found[place], wanted[place])}{why}"
    return faults


def _is_formed(found, length: int) -> bool:
    """Say whether it is m, l and o, `length` numbers."""
    if not (isinstance(found, list | tuple) and len(found) == 3 and isinstance(found[2], list | tuple)):
        return False
    numbers = [*found[:2], *found[2]]
    return len(found[2]) == length and all(isinstance(number, float) or is_number(number) for number in numbers)


def _near(found, wanted) -> bool:
    if isinstance(found, int | float):
        found, wanted = [found], [wanted]
    return all(close(number, due, _CLOSE, _CLOSE) for number, due in zip(found, wanted, strict=True))


def _apart(found, wanted) -> str:
    """Return "1.451, not 1.45", with as many digits as tell the two apart."""
    pairs = ((_as_read(found, digits), _as_read(wanted, digits)) for digits in (4, 6, 9, 17))
    found_text, wanted_text = next((pair for pair in pairs if pair[0] != pair[1]), (repr(found), repr(wanted)))
    return f"{found_text}, not {wanted_text}"


def _as_read(value, digits: int = 4) -> str:
    if isinstance(value, int | float):
        return f"{value:.{digits}g}"
    return f"[{', '.join(_as_read(part, digits) for part in value)}]"


check = Exercises(
    "attention",
    Exercise("tile_work", TILES, judge_tile, hints=HINTS["tile_work"], grade=WARM_UP),
    Exercise(
        "online_softmax",
        list(SETTINGS.values()),
        judge_online,
        on_failure=explain_overflow,
        hints=HINTS["online_softmax"],
        grade=CORE,
    ),
)
hint, solution, attempts = check.hint, check.solution, check.attempts


def verdict_of(row: dict) -> Verdict:
    """Return the verdict on one variant's row: a sentence a fault."""
    faults: dict[str, str] = {}
    if row["sees_ahead"] >= PROBE - 1:
        faults["not_causal"] = f"with a mask asked for, a query still sees all {row['sees_ahead']} keys after its own"
    elif row["sees_ahead"] > 0:
        faults["no_diagonal_mask"] = (
            f"a query sees up to {row['sees_ahead']} keys after its own: nothing is masked inside the diagonal's tile"
        )
    if row["early_weight"] > _TOO_MUCH:
        faults["not_rescaled"] = (
            f"a probability comes out {units.times(row['early_weight'])} too large: what was summed under a lower "
            "maximum is not scaled down when the maximum rises"
        )
    if row["forward_largest"] >= 1:
        faults["square"] = "its forward makes an N×N tensor"
    if row["backward_largest"] >= 1:
        faults["square_backward"] = "its backward makes an N×N tensor"
    if row["products"]:
        faults["torch_inside"] = f"{row['products']} of torch's own matrix operators run in it: no kernel does its work"
    if not row["keeps_lse"]:
        faults["no_lse"] = "it keeps no log-sum-exp per row, from which a backward by tiles could compute P again"
    worst = max(row["all_error"], row["causal_error"], row["gradient_error"])
    if worst > _TOLERANCE and not faults:
        faults["wrong"] = f"it differs from float64 by {units.number(worst)}"
    merits = ("values and gradients are float64's, masks hold, and nothing N×N is ever there",)
    return Verdict(row["variant"], WRONG if faults else RIGHT, faults, () if faults else merits)


suspects, diagnose, show_suspects = line_up(
    "attention", SYMPTOMS, lambda run: run.rows.to_dict("records"), verdict_of, CODES
)
