"""Lab 12's charts: they draw, have units, nothing overlaps."""

import figures
import numpy as np
import pytest
from figures import checked
from made import CPU, gpu_node

from labkit.course.predictions import Prediction
from lessons import accounting
from lessons.accounting.theory import COURSE_MESH, MODELS, Mesh

NEVER = Mesh(1, 8, bytes_per_s=32e9)


@pytest.fixture(autouse=True)
def accounts_have_units(monkeypatch):
    monkeypatch.setattr(figures, "UNITS", (*figures.UNITS, "GB", "GiB", "tokens", "GPUs"))


@pytest.mark.parametrize("guess", [None, 30, 90])
@pytest.mark.parametrize("model", ["XXL", "405 B"])
def test_parts_chart(model, guess):
    parts, labels = accounting.parts(MODELS[model]), accounting.labels(MODELS[model])
    (ax,) = checked(accounting.parts_chart(parts, labels, guess=guess)).axes
    diamonds = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "D"]
    assert diamonds == ([] if guess is None else [80 * guess])


@pytest.mark.parametrize("guess", [None, 50, Prediction("How many?", "devices", 45.0)])
def test_devices_chart(guess):
    figure = checked(accounting.devices_chart(accounting.over_devices(), published=34, guess=guess))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert ("your prediction" in labels) == (guess is not None)


@pytest.mark.parametrize(
    "knobs", [{}, {"precision": "float32", "recompute": False}, {"tokens": 8192}, {"models": {"mine": MODELS["70 B"]}}]
)
def test_fit_chart(knobs):
    table = accounting.fit(**knobs)
    figure = checked(accounting.fit_chart(table))
    for ax, strategy in zip(figure.axes, dict.fromkeys(table["strategy"]), strict=True):
        own = table[table["strategy"] == strategy]
        said = [text.get_text() for text in ax.texts]
        assert len(said) == len(own), "every cell has one text"
        assert said.count("×") == (own["status"] == "does not fit").sum()


@pytest.mark.parametrize("mesh", [Mesh(), COURSE_MESH, Mesh(1, 8), NEVER])
@pytest.mark.parametrize("guess", [None, 5000])
def test_batch_chart(mesh, guess):
    table = accounting.over_tokens(mesh)
    (ax,) = checked(accounting.batch_chart(table, guess=guess)).axes
    marks = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "s"]
    assert marks == [tokens for tokens in [table.attrs["bound"]] if 0 < tokens < float("inf")]


@pytest.mark.parametrize("gpus", [("H200", "L40S"), ("B200",)])
def test_splits_chart(gpus):
    table = accounting.splits(gpus)
    figure = checked(accounting.splits_chart(table))
    for ax, gpu in zip(figure.axes, gpus, strict=True):
        said = [text.get_text() for text in ax.texts]
        assert said.count("no batch") == table[table["gpu"] == gpu]["tokens"].isna().sum()
        assert all(np.isfinite(text.xy[0]) for text in ax.texts), "what is drawn beyond every axis is not seen"


@pytest.mark.parametrize("node", [CPU, gpu_node(2)])
def test_machines_chart(node):
    table = accounting.machines(node)
    figure = checked(accounting.machines_chart(table))
    (ax,) = figure.axes
    assert sum("(here)" in label.get_text() for label in ax.get_yticklabels()) == table["here"].sum()
