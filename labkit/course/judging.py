"""A judge for functions that return a value: it compares each with the right one, and names the mistake behind it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from labkit.course.answer_launch import call_text, truncate
from labkit.course.verdict import Verdict
from labkit.story import units
from labkit.story.words import capitalised

CLOSE = 1e-6  # relative, of two numbers that count as equal
TINY = 1e-12  # absolute
LARGEST = 1e300  # of a whole number, which may be too large for a float
_NO_RESULT = object()  # of a mistake that cannot be made with the given arguments


def relative_distance(mine: np.ndarray, right: np.ndarray) -> float:
    """Return the length of the difference over that of the right one; infinity for another shape, or for NaN."""
    if mine.shape != right.shape:
        return math.inf
    off = float(np.linalg.norm(mine - right) / max(np.linalg.norm(right), 1e-30))
    return math.inf if math.isnan(off) else off


class Mistake(NamedTuple):
    """A mistake that students make: its kind, the function that makes it, and what to say about it.

    One that is made in all cases or in none (`throughout`) is not named if another case gives something else: there
    this result may be by chance.
    """

    kind: str
    made: Callable[..., Any]
    why: str
    throughout: bool = False


def float32_mistakes(right: Callable[..., float], everywhere: str) -> tuple[Mistake, ...]:
    """Return the mistakes in a number of bytes: numbers counted, or numbers of 2 or 8 bytes `everywhere`."""
    return (
        Mistake(
            "numbers",
            lambda *arguments: right(*arguments) / 4,
            "that counts numbers, not bytes: in float32 each number takes 4",
        ),
        Mistake(
            "half_precision",
            lambda *arguments: right(*arguments) / 2,
            f"that is half of it {everywhere}: in float32 each number takes 4 bytes, and 2 in bfloat16",
            throughout=True,
        ),
        Mistake(
            "double_precision",
            lambda *arguments: right(*arguments) * 2,
            f"that is twice as much {everywhere}: in float32 each number takes 4 bytes, and 8 in float64",
            throughout=True,
        ),
    )


def judge_of(
    name: str,
    reference: Callable[..., Any],
    mistakes: Sequence[Mistake],
    *,
    result_form: str,
    rule: str,
    merit: str,
    close: tuple[float, float] = (CLOSE, TINY),
) -> Callable[..., Verdict]:
    """Return the judge of an exercise: it takes what the answer gave for each list of arguments, and these.

    `result_form` says what a result is ("a number of bytes"), `rule` what is right in words, for a value that no
    mistake explains, and `merit` what a right answer does. `close` are the tolerances of a number, relative and
    absolute.
    """

    def same(value: Any, expected: Any) -> bool:
        return is_same(value, expected, *close)

    def judge(given: list, cases: Sequence[Sequence[Any]]) -> Verdict:
        """Return the verdict on what the answer returned for each list of arguments, with a sentence per mistake."""
        expected_values = [_result_of(reference, arguments) for arguments in cases]
        forms = {_form_of(value) for value in expected_values}
        results = {mistake: [_result_of(mistake.made, each) for each in cases] for mistake in mistakes}
        everywhere = next((mistake for mistake in mistakes if all(map(same, given, results[mistake]))), None)
        possible = [
            mistake
            for mistake in mistakes
            if not mistake.throughout or not _is_refuted(given, results[mistake], forms, same)
        ]
        faults: dict[str, str] = {}
        for arguments, value, expected in zip(cases, given, expected_values, strict=True):
            if same(value, expected):
                continue
            gives = f"{call_text(name, list(arguments))} gives {_as_read(value, expected)}"
            if _form_of(value) not in forms:
                missing = " Is a `return` missing on some path?" if value is None else ""
                faults.setdefault("form", f"{gives}. Return {result_form}.{missing}")
                continue
            here = (mistake for mistake in possible if same(value, _result_of(mistake.made, arguments)))
            mistake = everywhere or next(here, Mistake("wrong", reference, rule))
            faults.setdefault(
                mistake.kind, f"{gives} instead of {_as_read(expected, value)}. {capitalised(mistake.why)}."
            )
        return Verdict.of_faults(name, faults, merit)

    return judge


def not_the_form(value: Any, result_form: str) -> str:
    """Return that a value is not what a result is ("a list of whole numbers"), and for None, what may be missing."""
    return f"{value!r:.60}, not {result_form}{': is a `return` missing?' if value is None else ''}"


def is_number(value: Any) -> bool:
    """Return whether it is a number that can be right: no bool, no NaN, finite, and not too large for a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def is_close(value: Any, expected: float, relative: float = CLOSE, absolute: float = TINY) -> bool:
    """Return whether `value` is the number `expected` up to one of two tolerances: NaN never is."""
    if not is_number(expected):
        return value == expected
    return is_number(value) and abs(value - expected) <= max(relative * abs(expected), absolute)


def is_same(value: Any, expected: Any, relative: float = CLOSE, absolute: float = TINY) -> bool:
    """Return whether two values are equal, lists item by item, numbers up to one of two tolerances."""
    if _form_of(value) != _form_of(expected):
        return False
    if _form_of(expected) == "number":
        return is_close(value, expected, relative, absolute)
    if _form_of(expected) == "list":
        pairs = zip(value, expected, strict=False)
        return len(value) == len(expected) and all(is_same(*pair, relative, absolute) for pair in pairs)
    return value == expected


def _is_refuted(given: list, results: list, forms: set[str], same: Callable[[Any, Any], bool]) -> bool:
    """Return whether a result of a right form is another one than the mistake gives."""
    return any(
        _form_of(value) in forms and result is not _NO_RESULT and not same(value, result)
        for value, result in zip(given, results, strict=True)
    )


def _result_of(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    try:
        return function(*copy.deepcopy(list(arguments)))
    except (ArithmeticError, ValueError, LookupError, TypeError):
        return _NO_RESULT


def _form_of(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(type(value).__name__)
    if isinstance(value, int | float):
        return "number" if isinstance(value, float) or is_number(value) else "a number too large"
    return "list" if isinstance(value, list | tuple) else type(value).__name__


def _as_read(value: Any, beside: Any) -> str:
    """Return a value as a sentence shows it: a number with as many digits as tell it from the one beside it."""
    if _form_of(value) != "number":
        return truncate(_list_text(value, beside))
    return repr(value) if _short(value) == _short(beside) else _short(value)


def _list_text(value: Any, beside: Any) -> str:
    """Return a list with six digits of each float, and all of one that would look like another one beside it."""
    if isinstance(value, list | tuple) and isinstance(beside, list | tuple):  # no deeper than what is right
        pairs = zip(value, [*beside, *[None] * (len(value) - len(beside))], strict=False)
        items = ", ".join(_list_text(*pair) for pair in pairs)
        return f"[{items}]" if isinstance(value, list) else f"({items}{',' * (len(value) == 1)})"
    if not isinstance(value, float) or (_short(value) == _short(beside) and not is_close(value, beside)):
        return repr(value)
    return f"{value:.6g}"


def _short(value: Any) -> str:
    if _form_of(value) != "number" or not math.isfinite(value):
        return repr(value)
    return units.count(round(value)) if abs(value) >= 1e5 or value == round(value) else f"{value:.6g}"
