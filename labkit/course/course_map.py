"""The map of the course: which lesson builds on which, and how far the student is in each."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from functools import cached_property
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING

from labkit.charts import svg
from labkit.course import record
from labkit.course.lessons import Lesson, lessons
from labkit.course.predictions import kept_predictions
from labkit.provenance import of_source

if TYPE_CHECKING:
    import pandas as pd

BOX_WIDTH, BOX_HEIGHT = 158, 78  # pixels
ROW, EDGE = 96, 4
LETTERS = 19  # bold letters that fit into a box
DONE, BEGUN, UNTOUCHED = "#009E73", "#E69F00", "#8C8C8C"  # a box says in words, too, how far it is
COLORS = {"all done": DONE, "begun": BEGUN, "not begun": UNTOUCHED}


@dataclass(frozen=True)
class CourseMap:
    """The lessons as boxes, left to right: a lesson stands right of all that it builds on. It shows as a drawing."""

    course: list[Lesson]
    progress: pd.DataFrame

    @cached_property
    def arrows(self) -> list[tuple[str, str]]:
        """From a lesson to each one that builds on it, without those that follow from two others."""
        import networkx  # here, so that `import labkit` stays fast

        graph: networkx.DiGraph = networkx.DiGraph()
        graph.add_edges_from((before, lesson.name) for lesson in self.course for before in lesson.builds_on)
        return sorted(networkx.transitive_reduction(graph.subgraph(self._depths)).edges)

    @cached_property
    def columns(self) -> list[list[str]]:
        """The lessons by column, top to bottom: each column's order keeps arrows short.

        A name such as "04_ddp_fsdp > 2" keeps a place free in column 2 for arrows that pass through it.
        """
        import networkx

        ways: networkx.DiGraph = networkx.DiGraph()
        ways.add_nodes_from(self._depths)
        for arrow in self.arrows:
            networkx.add_path(ways, self._way(*arrow))
        columns: list[list[str]] = []
        heights: dict[str, float] = {}
        for names in networkx.topological_generations(ways):
            means = {name: fmean([heights[before] for before in ways.pred[name]] or [0.0]) for name in names}
            columns.append([name for *_, name in sorted((means[name], " > " in name, name) for name in names)])
            heights |= {name: place / max(len(names) - 1, 1) for place, name in enumerate(columns[-1])}
        return columns

    def _repr_html_(self) -> str:
        most = max(map(len, self.columns), default=0)
        height = 2 * EDGE + ROW * most
        parts = [self._arrow(*ends, height) for ends in self.arrows]
        for name in self._depths:
            parts += self._box(name, height)
        links = " · ".join(
            f'<a href="{escape(lesson.name)}.ipynb">{escape(subject)}</a>'
            for lesson in self.course
            for subject in [f"{lesson.number} {lesson.title.partition(':')[0]}"]
        )
        drawing = svg.page(parts, height, label=repr(self))
        return f'{drawing}{svg.legend(COLORS)}<p style="color:{svg.TEXT}">Open: {links}</p>'

    def __repr__(self) -> str:
        lines = []
        for lesson, row in zip(self.course, self.progress.itertuples(), strict=True):
            after = ", ".join(name[:2] for name in lesson.builds_on)
            follows = f" after {after}" if after else ""
            lines.append(f"{lesson.number} {lesson.title}{follows}: {_state_in_words(row)}")
        return "\n".join(["Map of the course.", *lines])

    @cached_property
    def _depths(self) -> dict[str, int]:
        """Return the column of each lesson."""
        depths: dict[str, int] = {}
        for lesson in self.course:  # a lesson builds on earlier ones alone
            depths[lesson.name] = 1 + max((depths[name] for name in lesson.builds_on if name in depths), default=-1)
        return depths

    def _way(self, before: str, after: str) -> list[str]:
        """Return what an arrow passes through: its two lessons, and the places that are kept free between."""
        return [
            before,
            *(f"{before} > {depth}" for depth in range(self._depths[before] + 1, self._depths[after])),
            after,
        ]

    def _corner(self, name: str, height: float) -> tuple[float, float]:
        """Return the upper left corner of a box, or of a place that is kept free."""
        depth = next(at for at, column in enumerate(self.columns) if name in column)
        column = self.columns[depth]
        apart = (svg.WIDTH - 2 * EDGE - BOX_WIDTH) / max(len(self.columns) - 1, 1)
        top = (height - ROW * len(column)) / 2 + (ROW - BOX_HEIGHT) / 2
        return EDGE + depth * apart, top + ROW * column.index(name)

    def _arrow(self, before: str, after: str, height: float) -> str:
        x, y = self._corner(before, height)
        path, x, y = f"M {x + BOX_WIDTH:.0f} {y + BOX_HEIGHT / 2:.0f}", x + BOX_WIDTH, y + BOX_HEIGHT / 2
        for name in self._way(before, after)[1:]:
            left, top = self._corner(name, height)
            middle, center = (x + left) / 2, top + BOX_HEIGHT / 2
            path += f" C {middle:.0f} {y:.0f} {middle:.0f} {center:.0f} {left:.0f} {center:.0f}"
            x, y = left, center
            if name != after:
                path, x = f"{path} L {left + BOX_WIDTH:.0f} {center:.0f}", left + BOX_WIDTH
        head = f"M {x - 7:.0f} {y - 4:.0f} L {x:.0f} {y:.0f} L {x - 7:.0f} {y + 4:.0f}"
        return f'<path d="{path} {head}" fill="none" stroke="{UNTOUCHED}" stroke-width="1.5"/>'

    def _box(self, name: str, height: float) -> list[str]:
        lesson, row = next(
            pair for pair in zip(self.course, self.progress.itertuples(), strict=True) if pair[0].name == name
        )
        x, y = self._corner(name, height)
        color = COLORS[_state(row)]
        edge = {"stroke": color, "stroke_width": 2.5 if color != UNTOUCHED else 1.2, "rx": 7}
        center, middle = x + BOX_WIDTH / 2, {"text_anchor": "middle"}
        title, done = _title(lesson), _done(row)
        top = y + (BOX_HEIGHT - 16 * (len(title) + len(done))) / 2 + 12
        words = [
            svg.word(center, top + 16 * at, line, font_size=12 if at < len(title) else 11, **bold, **middle)
            for at, line in enumerate([*title, *done])
            for bold in [{"font_weight": "bold"} if at < len(title) else {}]
        ]
        return [svg.bar(x, y, BOX_WIDTH, BOX_HEIGHT, svg.PAPER, **edge), *words]


def course_map() -> CourseMap:
    """Return the map of all lessons, with the student's progress."""
    course = lessons()
    return CourseMap(course, progress(course))


def _title(lesson: Lesson) -> list[str]:
    """Return number and subject in lines that fit into a box."""
    subject = lesson.title.partition(":")[0].removesuffix(" on more GPUs")
    return textwrap.wrap(f"{lesson.number} {subject}", LETTERS)


def _done(row) -> list[str]:
    lines = [f"predicted {row.predicted} of {row.predictions}"] if row.predictions else ["no prediction"]
    return [*lines, f"exercises right {row.right} of {row.exercises}" if row.exercises else "no exercise"]


def _state(row) -> str:
    done, asked = row.predicted + row.right, row.predictions + row.exercises
    return "not begun" if not done else "all done" if done == asked else "begun"


def _state_in_words(row) -> str:
    return f"{_state(row)}, {', '.join(_done(row))}"


def progress(course: list[Lesson] | None = None) -> pd.DataFrame:
    """Return one row per lesson: lesson, title, predictions, predicted, exercises, right (four counts).

    An exercise counts as right once one of its answers was.
    """
    import pandas as pd

    guessed = {(guess["question"], guess["unit"]) for guess in kept_predictions() if guess.get("guessed") is not None}
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
