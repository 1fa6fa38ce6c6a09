"""Lab 12's charts: they draw, have units, nothing overlaps, and what they mark is where the tables have it."""

import figures
import pytest
from figures import checked
from made import CPU, gpu_node

from labkit.course.predictions import Prediction
from labkit.engine.recordings import replay
from lessons import accounting, sharding
from lessons.accounting.theory import MODELS, Mesh


@pytest.fixture(autouse=True)
def accounts_have_units(monkeypatch):
    monkeypatch.setattr(figures, "UNITS", (*figures.UNITS, "GB", "GiB", "tokens", "GPUs"))


@pytest.mark.parametrize("guess", [None, 30, 90])
@pytest.mark.parametrize("model", ["XXL", "405 B"])
def test_parts_chart(model, guess):
    parts, labels = accounting.parts(MODELS[model]), accounting.labels(MODELS[model])
    figure = checked(accounting.parts_chart(parts, labels, guess=guess))
    (ax,) = figure.axes
    model_bar, boxes = ax.patches[:4], ax.patches[4:]
    assert sum(bar.get_width() for bar in model_bar) == pytest.approx(parts["gb"].sum())
    assert len(boxes) == labels["devices"].sum()
    diamonds = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "D"]
    assert diamonds == ([] if guess is None else [80 * guess])
    assert [text.get_text() for text in ax.texts] == [f"{count} devices" for count in labels["devices"]]


@pytest.mark.parametrize("guess", [None, 50, Prediction("How many?", "devices", 45.0)])
def test_devices_chart(guess):
    table = accounting.over_devices()
    figure = checked(accounting.devices_chart(table, published=34, guess=guess))
    (ax,) = figure.axes
    rings = sorted(line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o")
    assert rings == [35, 38, 38, 41]
    assert sorted(text.get_text() for text in ax.texts) == ["35", "38", "38", "41"]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "published: more than 34" in labels and ("your prediction" in labels) == (guess is not None)


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
    figure = checked(accounting.batch_chart(table, guess=guess))
    (ax,) = figure.axes
    marks = [line for line in ax.lines if line.get_marker() in ("o", "s")]
    finite = [tokens for tokens in table.attrs["bounds"].values() if tokens < float("inf")]
    assert [line.get_xdata()[0] for line in marks] == finite
    for line in marks[:1]:  # at once: the crossing lies on the weights' line
        assert line.get_ydata()[0] == pytest.approx(table["fsdp_ms"].iloc[0])


@pytest.mark.parametrize("devices", [8, 64, 256])
def test_splits_chart(devices):
    table = accounting.splits(devices)
    figure = checked(accounting.splits_chart(table))
    assert bool(figure.axes[0].patches) == table["at_once"].isna().any()


@pytest.mark.parametrize("node", [CPU, gpu_node(2)])
def test_machines_chart(node):
    table = accounting.machines(node)
    figure = checked(accounting.machines_chart(table))
    (ax,) = figure.axes
    assert sorted(bar.get_width() for bar in ax.patches) == pytest.approx(table["tokens"].tolist())
    assert sum("(here)" in label.get_text() for label in ax.get_yticklabels()) == table["here"].sum()


def test_measured_chart():
    table = accounting.measured(*(replay(sharding.RECORDED[name]) for name in ("strategies", "links")))
    figure = checked(accounting.measured_chart(table))
    assert "2 GPUs" in figure.axes[0].get_title(loc="left")
    unknown = table.assign(bound_tokens=float("nan"))
    unknown.attrs = table.attrs
    checked(accounting.measured_chart(unknown))
