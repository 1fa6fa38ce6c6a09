"""What a page shows of a run in which points are missing: the recorded run where it can stand in, else one sentence.

A GPU that holds little leaves points out, and a chart of what is left may not be drawable: where a lesson's function
fails on such a run, and on no other, its door answers instead.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

from IPython.display import Markdown, display

from labkit.engine.run import Run
from labkit.provenance import fact_or

_NO_NUMBER = re.compile(r"(?<![\w.])-?(?:nan|inf)(?!\w)", re.IGNORECASE)


class NotMeasured:
    """What stands for a table, a chart or a sentence of points that are missing; whatever is made of it, too."""

    def __init__(self, gaps: str):
        self.gaps = gaps

    def __getattr__(self, name: str) -> NotMeasured:
        if name.startswith("_"):  # what IPython, copy and pickle look for
            raise AttributeError(name)
        return self

    def __getitem__(self, key: object) -> NotMeasured:
        return self

    def __call__(self, *_: object, **__: object) -> NotMeasured:
        return self

    def __truediv__(self, other: object) -> NotMeasured:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __float__(self) -> float:
        return float("nan")

    def __repr__(self) -> str:
        return f"Not measured ({self.gaps})."

    def _repr_markdown_(self) -> str:
        return repr(self)


def stand_in(door: dict[str, Any]) -> None:
    """Let the functions of a lesson's front door answer, too, where points are missing and they cannot."""
    for name, value in door.items():
        if isinstance(value, FunctionType) and value is not stand_in:
            door[name] = _answering(value)


def gaps_of(value: Any) -> str:
    """Return what the run lacks that a value is from, as `Run.gaps` says it; "" where it lacks nothing."""
    if isinstance(value, Run | NotMeasured):
        return value.gaps
    if hasattr(value, "attrs"):
        return fact_or(value, "gaps", "")
    return next(filter(None, map(gaps_of, _parts(value))), "")


def without_number(result: object) -> bool:
    """Whether a sentence says "nan" where a number is due."""
    text = result.data if isinstance(result, Markdown) else result
    return isinstance(text, str) and _NO_NUMBER.search(text) is not None


def _answering(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, which shows the recorded run, or that nothing was measured, where points are missing."""

    @functools.wraps(function)
    def answer(*arguments: Any, **options: Any) -> Any:
        gaps = next(filter(None, map(gaps_of, [*arguments, *options.values()])), "")
        if not gaps:
            return function(*arguments, **options)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # such as an axis without any row
                warnings.simplefilter("error", RuntimeWarning)
                result = function(*arguments, **options)
                if hasattr(result, "draw_without_rendering"):  # a figure, which would fail when it is shown
                    result.draw_without_rendering()
        except Exception:
            result = None
        if result is not None and not without_number(result):
            return result
        recorded = [_of_recorded_run(argument, arguments) for argument in arguments]
        if any(map(gaps_of, [*recorded, *options.values()])):
            return NotMeasured(gaps)
        display(Markdown(f"Not measured here ({gaps}): the recorded run stands in."))
        return function(*recorded, **options)

    return answer


def _of_recorded_run(argument: object, arguments: Sequence[object]) -> object:
    """Return the argument or, where points of its run are missing, its like from the recorded run among the others."""
    if not gaps_of(argument):
        return argument
    alike = (other for other in arguments if isinstance(argument, NotMeasured | type(other)) and not gaps_of(other))
    return next(filter(_is_recorded, alike), argument)


def _is_recorded(value: Any) -> bool:
    if isinstance(value, Run):
        return value.recorded
    if hasattr(value, "attrs"):
        return fact_or(value, "recorded", False)
    return any(map(_is_recorded, _parts(value)))


def _parts(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
