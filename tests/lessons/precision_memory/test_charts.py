"""Every chart of lab 07 draws, from small runs."""

import figures
import numpy as np
import pandas as pd
import pytest
from figures import checked

from labkit import published
from labkit.provenance import of_source
from lessons import precision_memory
from lessons.precision_memory.theory.levers import LEVERS


@pytest.fixture(autouse=True)
def units(monkeypatch):
    monkeypatch.setattr(figures, "UNITS", (*figures.UNITS, "GiB", "MiB", "number", "sum", "error", "step", "input"))


def test_theory():
    checked(precision_memory.spacing_chart(precision_memory.spacing()))
    checked(precision_memory.sums_chart(precision_memory.running_sums()))
    checked(precision_memory.sums_chart(precision_memory.running_sums(), guess=4))


def test_numbers(small):
    checked(precision_memory.norms_chart(precision_memory.norms(small("numbers"))))


@pytest.mark.slow
def test_scaling(small):
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


@pytest.mark.slow
def test_timeline(small):
    lines = [precision_memory.timeline(small("timeline"), name) for name in ("float32", "bfloat16")]
    checked(precision_memory.timeline_chart(*lines))


@pytest.mark.slow
def test_pareto(small):
    table = precision_memory.levers(small("levers"))
    assert table["best"].any()
    checked(precision_memory.pareto_chart(table))


@pytest.mark.parametrize("seed", range(8))
def test_pareto_of_any_times_can_be_read(seed):
    """Dots that lie on each other, in a column, or far apart; spreads of nothing to more than the time itself."""
    random = np.random.default_rng(seed)
    peaks = random.choice([24.0, 40.0, 41.0, 60.0], len(LEVERS))
    times = 20 * np.exp([0.02, 0.2, 1.0, 2.0][seed % 4] * random.normal(size=len(LEVERS)))
    table = pd.DataFrame({"lever": [*LEVERS], "peak_mib": peaks, "step_ms": times})
    table["spread_step_ms"] = times * random.choice([0, 0.1, 1.5], len(LEVERS))
    table["best"], table["best_exact"] = random.integers(2, size=(2, len(LEVERS))).astype(bool)
    checked(precision_memory.pareto_chart(of_source(table, "no machine", ranks=1, device="cpu", sequence=32)))


@pytest.mark.parametrize("share", [0.008, 0.0091, 0.0097, 0.2])
def test_phases_of_any_length_can_be_read(share):
    """A short phase between two long ones: its letter stands clear of the lines beside it, or is left out."""
    ends = [0.4, 0.4 + share, 0.4 + 2 * share, 1.0]
    phases = ["forward", "backward", "optimizer", "forward"]
    rows = [{"t_ms": at, "phase": phase} for at, phase in zip([0, *ends], [*phases, phases[-1]], strict=True)]
    table = pd.DataFrame(rows).assign(reserved_mib=0.0, allocated_mib=4.0, base_mib=3.0, activations_mib=1.0)
    for kind in ("optimizer", "gradients", "temporary"):
        table[f"{kind}_mib"] = 0.0
    made = of_source(table, "no machine", ranks=1, device="cpu", sequence=32, precision="float32")
    checked(precision_memory.timeline_chart(made))
