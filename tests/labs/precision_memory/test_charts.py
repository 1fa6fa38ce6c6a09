"""Every chart of lab 07 draws, from small runs."""

import figures
import pytest
from figures import checked

from labkit import published
from labkit.labs import precision_memory


@pytest.fixture(autouse=True)
def units(monkeypatch):
    monkeypatch.setattr(figures, "UNITS", (*figures.UNITS, "GiB", "MiB", "number", "sum", "error", "step", "input"))


def test_theory():
    checked(precision_memory.spacing_chart(precision_memory.spacing()))
    checked(precision_memory.sums_chart(precision_memory.running_sums()))
    checked(precision_memory.sums_chart(precision_memory.running_sums(), guess=4))


def test_numbers(small):
    checked(precision_memory.norms_chart(precision_memory.norms(small("numbers"))))
    run = small("scaling")
    checked(precision_memory.scaling_chart(precision_memory.gradients(run), precision_memory.scaling(run)))


def test_speed(small):
    table = precision_memory.speed(small("speed"))
    figure = checked(
        precision_memory.speed_chart(table, precision_memory.published_speed(published("transformer_steps")))
    )
    least, most = figure.axes[0].get_xlim()
    assert least == 0 and most > 3, "the report's largest gain is inside"


def test_memory(small):
    table = precision_memory.memory(small("memory"))
    checked(precision_memory.ledger_chart(table))
    checked(precision_memory.ledger_chart(table, guess=0.005))
    lines = [precision_memory.timeline(small("timeline"), name) for name in ("float32", "bfloat16")]
    checked(precision_memory.timeline_chart(*lines))


def test_pareto(small):
    table = precision_memory.levers(small("levers"))
    assert table["best"].any()
    checked(precision_memory.pareto_chart(table))
