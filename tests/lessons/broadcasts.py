"""What the tests of a student's broadcast share: two right answers, and a launch that watches many answers together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from labkit.course import answers
from labkit.engine.run import Run
from labkit.launching import launch
from lessons.broadcast.plan import Trial

PIPELINED = """
def {name}(source, copies, chunks, lanes):
    for part in lanes.parts(len(source), chunks):
        arrived = lanes.host(0).copy(copies[0][part], source[part])
        for gpu in lanes.others(0):
            lanes.peer(0, gpu).copy(copies[gpu][part], copies[0][part], after=arrived)
"""

SCATTER = """
def {name}(source, copies, chunks, lanes):
    share = len(source) // len(copies)
    for gpu in range(len(copies)):
        for part in lanes.parts(share, chunks, first=gpu * share):
            arrived = lanes.host(gpu).copy(copies[gpu][part], source[part])
            for other in lanes.others(gpu):
                lanes.peer(gpu, other).copy(copies[other][part], copies[gpu][part], after=arrived)
"""

REFERENCES = ("methods.staged", "methods.pipelined", "methods.scatter_all_gather")


def watched(folder: Path, texts: Mapping[str, str], others: Iterable[str] = (), **knobs) -> Run:
    """Launch a trial of the reference solutions, `others`, and answers by name, with runs and answers in the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_ANSWERS", str(folder / "answers"))
        patch.setenv("LABKIT_RUNS", str(folder / "runs"))
        for name, text in texts.items():
            answers.save(f"broadcast.{name}", text.format(name=name))
        functions = (*REFERENCES, *others, *(f"answers.{name}" for name in texts))
        return launch(Trial.small(functions=functions, answers=str(answers.folder()), **knobs), progress=False)
