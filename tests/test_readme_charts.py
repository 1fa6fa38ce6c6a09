"""README's charts are what the code draws of the recorded runs; `python tests/test_readme_charts.py` stores them."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from labkit.engine.recordings import replay
from labkit.repository import RECORDED, REPOSITORY
from lessons import attention, pipeline

STORED = RECORDED / "charts"
CHARTS = {
    "attention_race": lambda: attention.race_chart(attention.race(replay(attention.RECORDED["race"]))),
    "pipeline_timelines": lambda: pipeline.timelines_chart(
        *pipeline.gantt(replay(pipeline.RECORDED["schedules"]), schedule="1f1b")
    ),
}


def store(name: str, folder: Path) -> Path:
    file = folder / f"{name}.png"
    CHARTS[name]().savefig(file, dpi=110)
    return file


@pytest.mark.parametrize("name", CHARTS)
def test_readme_shows_what_the_code_draws(name, tmp_path):
    stored, drawn = (plt.imread(file) for file in (STORED / f"{name}.png", store(name, tmp_path)))
    assert stored.shape == drawn.shape
    # Another CPU may round a pixel to the next shade: half a shade is what rounding itself leaves open.
    shades = 255 * np.sqrt(np.mean((stored - drawn) ** 2))
    assert shades < 0.5, "python tests/test_readme_charts.py stores it"


def test_readme_shows_every_stored_chart():
    shown = re.findall(r"data/recorded/charts/(\w+)\.png", (REPOSITORY / "README.md").read_text())
    assert sorted(shown) == sorted(file.stem for file in STORED.iterdir()) == sorted([*CHARTS, "book"])


if __name__ == "__main__":
    for name in CHARTS:
        store(name, STORED)
