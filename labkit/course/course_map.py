"""The map of the course: which lesson builds on which, and how far the student is in each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

from labkit.charts import svg
from labkit.course import record
from labkit.course.lessons import Lesson, lessons
from labkit.course.predictions import kept_predictions
from labkit.provenance import of_source

if TYPE_CHECKING:
    import networkx
    import pandas as pd

COLORS = {"all done": "#009E73", "begun": "#E69F00", "not begun": "#8C8C8C"}  # a box says in words, too, how far it is
BOX = "border-radius:7px; padding:6px; margin:6px 0; text-align:center; font-size:11px; line-height:1.45"


@dataclass(frozen=True)
class CourseMap:
    """The lessons as boxes in columns: a lesson stands right of all that it builds on, and names the last of these."""

    course: list[Lesson]
    progress: pd.DataFrame

    @cached_property
    def _graph(self) -> networkx.DiGraph:
        """From a lesson to each one that builds on it, without the ways that follow from two others."""
        import networkx  # here, so that `import labkit` stays fast

        names = [lesson.name for lesson in self.course]
        graph: networkx.DiGraph = networkx.DiGraph()
        graph.add_nodes_from(names)
        graph.add_edges_from((before, lesson.name) for lesson in self.course for before in lesson.builds_on)
        return networkx.transitive_reduction(graph.subgraph(names))

    @property
    def columns(self) -> list[list[str]]:
        """The names of the lessons by column, top to bottom."""
        import networkx

        return [sorted(names) for names in networkx.topological_generations(self._graph)]

    def after(self, name: str) -> list[str]:
        """The lessons that one builds on, without those on which another of them builds."""
        return sorted(self._graph.pred[name])

    def _repr_html_(self) -> str:
        rows = zip(self.course, self.progress.itertuples(), strict=True)
        boxes = {lesson.name: self._box(lesson, row) for lesson, row in rows}
        columns = ("".join(map(boxes.__getitem__, column)) for column in self.columns)
        cells = (f'<div style="flex:1 0 104px; align-self:center">{column}</div>' for column in columns)
        row = f"display:flex; flex-wrap:wrap; gap:14px; color:{svg.TEXT}"  # three columns on a phone
        return f'<div style="{row}">{"".join(cells)}</div>{svg.legend(COLORS)}'

    def __repr__(self) -> str:
        lines = []
        for lesson, row in zip(self.course, self.progress.itertuples(), strict=True):
            after = ", ".join(name[:2] for name in lesson.builds_on)
            follows = f" after {after}" if after else ""
            lines.append(f"{lesson.number} {lesson.title}{follows}: {_state(row)}, {', '.join(_progress_lines(row))}")
        return "\n".join(["Map of the course.", *lines])

    def _box(self, lesson: Lesson, row) -> str:
        subject = escape(f"{lesson.number} {lesson.title.partition(':')[0]}")
        after = ", ".join(name[:2] for name in self.after(lesson.name))
        lines = [
            f'<b style="font-size:12px"><a href="{escape(lesson.name)}.ipynb">{subject}</a></b>',
            *_progress_lines(row),
        ]
        lines += [f"after {after}"] if after else []
        return f'<div style="{BOX}; border:2px solid {COLORS[_state(row)]}">{"<br>".join(lines)}</div>'


def course_map() -> CourseMap:
    """Return the map of all lessons, with the student's progress."""
    course = lessons()
    return CourseMap(course, progress(course))


def _progress_lines(row) -> list[str]:
    lines = [f"predicted {row.predicted} of {row.predictions}"] if row.predictions else ["no prediction"]
    return [*lines, f"exercises right {row.right} of {row.exercises}" if row.exercises else "no exercise"]


def _state(row) -> str:
    done, asked = row.predicted + row.right, row.predictions + row.exercises
    return "not begun" if not done else "all done" if done == asked else "begun"


def progress(course: list[Lesson] | None = None) -> pd.DataFrame:
    """Return one row per lesson: lesson, title, predictions, predicted, exercises, right (four counts).

    An exercise counts as right once one of its answers was.
    """
    import pandas as pd

    guessed = {question for question, guess in kept_predictions().items() if guess.get("guessed") is not None}
    rows = [
        {
            "lesson": lesson.number,
            "title": lesson.title,
            "predictions": len(lesson.questions),
            "predicted": sum(question in guessed for question in lesson.questions),
            "exercises": len(lesson.exercises),
            "right": sum(bool(record.exercise_record(name)["right_at"]) for name in lesson.exercises),
        }
        for lesson in (lessons() if course is None else course)
    ]
    columns = ["lesson", "title", "predictions", "predicted", "exercises", "right"]
    return of_source(pd.DataFrame(rows, columns=columns), "your predictions and verdicts, kept beside your answers")
