"""How far a student is: predictions made and exercises right, lesson by lesson."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from labkit.course import answers, guesses
from labkit.course.lessons import Lesson, lessons
from labkit.provenance import of_source

if TYPE_CHECKING:
    import pandas as pd

RECORD = "coursework.json"  # beside the answers: what is kept of each exercise


def progress(course: list[Lesson] | None = None) -> pd.DataFrame:
    """Return one row per lesson: lesson, title, predictions, predicted, exercises, right (four counts).

    An exercise counts as right once one of its answers was.
    """
    import pandas as pd

    right = exercises_right()
    guessed = {(one["question"], one["unit"]) for one in guesses.kept() if one.get("guessed") is not None}
    rows = [
        {
            "lesson": lesson.number,
            "title": lesson.title,
            "predictions": len(lesson.questions),
            "predicted": sum(question in guessed for question in lesson.questions),
            "exercises": len(lesson.exercises),
            "right": sum(name in right for name in lesson.exercises),
        }
        for lesson in (lessons() if course is None else course)
    ]
    columns = ["lesson", "title", "predictions", "predicted", "exercises", "right"]
    return of_source(pd.DataFrame(rows, columns=columns), "your predictions and verdicts, kept beside your answers")


def exercises_right() -> set[str]:
    """Return the exercises that an answer was right for once, such as "broadcast.pipelined"; none in a damaged file."""
    try:
        kept = json.loads((answers.folder() / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return set()
    entries = kept.items() if isinstance(kept, dict) else ()
    return {name for name, entry in entries if isinstance(entry, dict) and entry.get("right_at")}
