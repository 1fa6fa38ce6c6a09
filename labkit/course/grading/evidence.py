"""What a student's own record tells of the way to the answers, in words: something to ask about, and never a grade."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any

from labkit.course import record
from labkit.course.predictions import PREDICTIONS_FILE, is_prediction

FILES = (record.FILE, PREDICTIONS_FILE)
MOST_BYTES = 2**20  # of each file; a year's record has some 50 KiB
MOST_PREDICTIONS = 100  # the lessons ask for some twenty
MOST_CHARACTERS = 200  # of a text in them
CAVEAT = (
    "What stands here from the student's record is evidence to ask about, and no points depend on it: the record is "
    "the student's own file, and can be edited by hand."
)


@dataclass
class Evidence:
    """The content of a student's record: `entries` by exercise, and `predictions`. Nothing in them can be relied on."""

    entries: dict[str, Any] = field(default_factory=dict)
    predictions: list[Any] = field(default_factory=list)

    def take_file(self, name: str, text: str) -> None:
        """Take what one of FILES holds. Raises ValueError where that is of another form."""
        content = json.loads(text)
        if not isinstance(content, dict if name == record.FILE else list):
            raise ValueError("it is of another form")
        if isinstance(content, dict):
            self.entries = content
        else:
            self.predictions = content[:MOST_PREDICTIONS]

    def way_to(self, exercise: str) -> str:
        """Return how the answer to an exercise came about; "" where no record tells."""
        if exercise not in self.entries:
            return ""
        entry = record.exercise_record_in(self.entries, exercise)
        when_right = f", first right at {_short(entry['right_at'])}" if entry["right_at"] else ""
        hints = entry["hints"] if 0 <= entry["hints"] < 100 else "?"
        asked = f"asked for at {_short(entry['solution_at'])}" if entry["solution_at"] else "not asked for"
        attempts = f"attempts: {len(entry['attempts'])}{when_right}"
        return f"{attempts}; hints: {hints}; reference solution before a right answer: {asked}"

    def bugs_of(self, lab: str) -> str:
        """Return which bug was named for each suspect of a lab, and how many rightly; "" where none was."""
        named = record.exercise_record_in(self.entries, f"{lab}.bugs")["named"]
        suspects = getattr(importlib.import_module(f"lessons.{lab}"), "suspects", tuple)()
        named = {letter: named[letter] for letter in ascii_uppercase[: len(suspects)] if letter in named}
        if not named:
            return ""
        right = sum(named.get(letter) == name for letter, name in zip(ascii_uppercase, suspects, strict=False))
        chosen = ", ".join(f"{letter}: {_short(name)}" for letter, name in named.items())
        return f"{right} of {len(suspects)} rightly ({chosen})"

    def prediction_rows(self) -> Iterator[tuple[str, str, str]]:
        """Give each prediction that was made: question, what was guessed, what was measured ("–" if nothing)."""
        for kept in filter(is_prediction, self.predictions):
            if (guessed := _number(kept.get("guessed"))) != "–":
                unit = _short(kept["unit"])
                measured = _number(kept.get("measured"))
                yield (
                    _short(kept["question"]),
                    f"{guessed} {unit}",
                    measured if measured == "–" else f"{measured} {unit}",
                )


def _number(value: Any) -> str:
    """Return a number as text; "–" for what is none."""
    if isinstance(value, float) or (type(value) is int and abs(value) < 10**300):
        return f"{value:.4g}" if math.isfinite(value) else "–"
    return "–"


def _short(value: Any) -> str:
    return value[:MOST_CHARACTERS] if isinstance(value, str) else "?"
