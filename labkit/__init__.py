"""labkit: the thin package under the workbook.

A run crosses a wall: the notebook's kernel on one side, torchrun's worker processes (one a GPU) on the other. Only two
things cross it: a plan, inward, and rows, outward.

    engine/   a plan in, a table out: launch, replay, Run
    node/     what this machine is, and what it can do at best: here, against_limit
    theory/   what can be said before anything runs
    worker/   what several labs' workers need
    tables/   rows → tables, and what published reports printed: published("broadcast")
    charts/   the canvas, the palette, and the parts of figures
    story/    words, units, names, and sentences that several labs say
    course/   predictions, the student's own code, checks that explain

The lessons are beside their notebooks, in notebooks/lessons: plan → worker → tables → charts → story.

    from labkit import launch
    from lessons import broadcast

    run = launch(broadcast.Sweep(gpus=4))
    broadcast.methods_chart(broadcast.methods(run))

Importing labkit loads neither torch nor a drawing library: the kernel holds no GPU memory and cannot disturb what it
measures.
"""

import importlib
import sys
from typing import TYPE_CHECKING

from labkit import hidden_modules

if TYPE_CHECKING:
    from labkit import node as node
    from labkit.charts.calibration import predictions_chart as predictions_chart
    from labkit.charts.conditions import conditions_chart as conditions_chart
    from labkit.charts.nodes import nodes_map as nodes_map
    from labkit.claims import show_claims as show_claims
    from labkit.cluster.stand_in import launch_or_replay as launch_or_replay
    from labkit.course.course_map import course_map as course_map
    from labkit.course.predict import predict as predict
    from labkit.course.predict import predictions as predictions
    from labkit.course.source import source as source
    from labkit.engine.errors import RunError as RunError
    from labkit.engine.launch import launch as launch
    from labkit.engine.plan import Plan as Plan
    from labkit.engine.run import Run as Run
    from labkit.engine.run import replay as replay
    from labkit.node import here as here
    from labkit.node.limits import against_limit as against_limit
    from labkit.parameters import check_parameters as check_parameters
    from labkit.story.conditions import explain_conditions as explain_conditions
    from labkit.story.nodes import explain_links as explain_links
    from labkit.story.words import beside as beside
    from labkit.story.words import together as together
    from labkit.tables.nodes import nodes_table as nodes_table
    from labkit.tables.published import published as published
    from labkit.tables.published import published_reports as published_reports
    from labkit.tables.published import published_topology as published_topology
    from labkit.tables.targets import compare_targets as compare_targets
    from labkit.tables.targets import join_cards as join_cards

hidden_modules.require_none()
importlib.import_module("labkit.repository").put_lessons_on_path()

_ROOMS = {
    "launch": "labkit.engine.launch",
    "launch_or_replay": "labkit.cluster.stand_in",
    "nodes_map": "labkit.charts.nodes",
    "nodes_table": "labkit.tables.nodes",
    "replay": "labkit.engine.run",
    "Run": "labkit.engine.run",
    "RunError": "labkit.engine.errors",
    "members": "labkit.engine.processes",
    "Plan": "labkit.engine.plan",
    "against_limit": "labkit.node.limits",
    "here": "labkit.node",
    "check_parameters": "labkit.parameters",
    "published": "labkit.tables.published",
    "published_reports": "labkit.tables.published",
    "published_topology": "labkit.tables.published",
    "show_claims": "labkit.claims",
    "compare_targets": "labkit.tables.targets",
    "join_cards": "labkit.tables.targets",
    "source": "labkit.course.source",
    "course_map": "labkit.course.course_map",
    "predict": "labkit.course.predict",
    "predictions": "labkit.course.predict",
    "conditions_chart": "labkit.charts.conditions",
    "predictions_chart": "labkit.charts.calibration",
    "beside": "labkit.story.words",
    "explain_conditions": "labkit.story.conditions",
    "explain_links": "labkit.story.nodes",
    "together": "labkit.story.words",
}
__all__ = sorted([*_ROOMS, "node"])


def __getattr__(name: str):
    """Open a room when something in it is first used, so that `import labkit` itself takes no time."""
    if name == "node":
        return importlib.import_module("labkit.node")
    if name not in _ROOMS:
        raise AttributeError(f"labkit has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_ROOMS[name]), name)


def __dir__() -> list[str]:
    """List what a notebook may use, for Tab completion."""
    return [*__all__, "__doc__"]


if "IPython" in sys.modules:  # in a notebook `%%answer` works from here on, and tables show whole texts
    importlib.import_module("labkit.course")
    importlib.import_module("labkit.tables.display").show_whole_text()
