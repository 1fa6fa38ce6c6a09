"""labkit: the thin package under the workbook.

A run crosses a wall: the notebook's kernel on one side, torchrun's worker processes (one a GPU) on the other. Only two
things cross it: a plan, inward, and rows, outward.

    engine/   a plan in, a table out: launch, replay, Run
    node/     what this machine is, and what it can do at best: here, check
    labs/     one folder a lesson: plan → worker → tables → charts → story
    course/   predictions, the student's own code, checks that explain
    parameters  size, gpus and seeds of a notebook, checked before anything runs
    reports   what published reports printed: published("broadcast")
    ui/       the canvas, palette, units and Markdown that all labs share

    from labkit import launch
    from labkit.labs import broadcast

    run = launch(broadcast.Sweep(gpus=4))
    broadcast.methods_chart(broadcast.methods(run))

Importing labkit loads neither torch nor a drawing library: the kernel holds no GPU memory and cannot disturb what it
measures.
"""

import importlib
import sys

from labkit import hidden_modules

hidden_modules.require_none()

_ROOMS = {
    "launch": "labkit.engine.launch",
    "replay": "labkit.engine.run",
    "Run": "labkit.engine.run",
    "RunError": "labkit.engine.errors",
    "members": "labkit.engine.watch",
    "Plan": "labkit.engine.plan",
    "check": "labkit.node.limits",
    "here": "labkit.node",
    "check_parameters": "labkit.parameters",
    "published": "labkit.tables.published",
    "published_topology": "labkit.tables.published",
    "source": "labkit.course.source",
    "predict": "labkit.course.predict",
    "beside": "labkit.story.words",
}
__all__ = sorted([*_ROOMS, "node"])


def __getattr__(name: str):
    """Open a room when something in it is first used, so that `import labkit` itself takes no time."""
    if name == "node":
        return importlib.import_module("labkit.node")
    if name not in _ROOMS:
        raise AttributeError(f"labkit has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_ROOMS[name]), name)


if "IPython" in sys.modules:  # in a notebook `%%answer` works from here on
    importlib.import_module("labkit.course")
