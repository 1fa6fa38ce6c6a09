"""How far a student is: predictions made and exercises right, lesson by lesson."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.course import guesses, record
from labkit.course.lessons import Lesson, lessons
from labkit.provenance import of_source

if TYPE_CHECKING:
    import pandas as pd


def progress(course: list[Lesson] | None = None) -> pd.DataFrame:
    """Return one row per lesson: lesson, title, predictions, predicted, exercises, right (four counts).

    An exercise counts as right once one of its answers was.
    """
    import pandas as pd

    guessed = {(one["question"], one["unit"]) for one in guesses.kept() if one.get("guessed") is not None}
    rows = [
        {
            "lesson": lesson.number,
            "title": lesson.title,
            "predictions": len(lesson.questions),
            "predicted": sum(question in guessed for question in lesson.questions),
            "exercises": len(lesson.exercises),
            "right": sum(bool(record.entry(name)["right_at"]) for name in lesson.exercises),
        }
        for lesson in (lessons() if course is None else course)
    ]
    columns = ["lesson", "title", "predictions", "predicted", "exercises", "right"]
    return of_source(pd.DataFrame(rows, columns=columns), "your predictions and verdicts, kept beside your answers")
