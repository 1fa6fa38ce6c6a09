"""Lab 12's charts: they draw, have units, nothing overlaps."""

import figures
import pytest
from figures import checked
from made import CPU, gpu_node

from labkit.course.predictions import Prediction
from lessons import accounting
from lessons.accounting.theory import MODELS, Mesh


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
        assert said.count("–") == (own["status"] == "no bfloat16").sum()


@pytest.mark.parametrize("mesh", [Mesh(), Mesh(8, 8), Mesh(2, 32), Mesh(4, 16)])
@pytest.mark.parametrize("guess", [None, 5000])
def test_batch_chart(mesh, guess):
    table = accounting.over_tokens(mesh)
    (ax,) = checked(accounting.batch_chart(table, guess=guess)).axes
    marks = [line.get_xdata()[0] for line in ax.lines if line.get_marker() in ("o", "s")]
    assert marks == [tokens for tokens in table.attrs["bounds"].values() if tokens < float("inf")]


@pytest.mark.parametrize("devices", [8, 64, 256])
def test_splits_chart(devices):
    table = accounting.splits(devices)
    figure = checked(accounting.splits_chart(table))
    assert bool(figure.axes[0].patches) == table["together"].isna().any()


@pytest.mark.parametrize("node", [CPU, gpu_node(2)])
def test_machines_chart(node):
    table = accounting.machines(node)
    figure = checked(accounting.machines_chart(table))
    (ax,) = figure.axes
    assert sum("(here)" in label.get_text() for label in ax.get_yticklabels()) == table["here"].sum()
