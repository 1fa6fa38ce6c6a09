"""Every chart of lab 07 draws, from small runs and from recorded ones: this run first, the recorded one beside it."""

import figures
import pandas as pd
import pytest
from figures import checked

from labkit.engine.recordings import replay
from labkit.provenance import of_source
from lessons import precision_memory

PRECISIONS = ("float32", "bfloat16")


@pytest.fixture(autouse=True)
def units(monkeypatch):
    monkeypatch.setattr(figures, "UNITS", (*figures.UNITS, "GiB", "MiB", "number", "sum", "error", "step", "input"))


@pytest.fixture(scope="module")
def recorded():
    return {name: replay(path) for name, path in precision_memory.RECORDED.items()}


@pytest.fixture(params=["small", "full"])
def runs(request, small, recorded):
    """Gives a function from a plan's name to two runs: one of this machine, or one of full size, and the recorded."""
    here = small if request.param == "small" else recorded.__getitem__
    return lambda name: (here(name), recorded[name])


def test_numbers(runs):
    checked(precision_memory.spacing_chart(precision_memory.spacing()))
    here, _ = runs("numbers")
    for guess in (None, 7.5):
        figure = precision_memory.sums_chart(precision_memory.running_sums(), precision_memory.sums(here), guess)
        labels = [text.get_text() for text in checked(figure).legends[0].get_texts()]
        assert ("your prediction" in labels) == (guess is not None) and "torch, this run" in labels


def test_scaling(runs, request):
    pairs = [(precision_memory.gradients(run), precision_memory.scaling(run)) for run in runs("scaling")]
    assert len(checked(precision_memory.scaling_chart(*pairs)).axes) == (4 if "small" in request.node.name else 2)


def test_ledger(runs, request):
    tables = [*map(precision_memory.memory, runs("memory"))]
    figure = checked(precision_memory.ledger_chart(*tables))
    is_small = "small" in request.node.callspec.id
    assert len(figure.axes) == (4 if is_small else 2)
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "gradients" in named and ("temporary" in named) == is_small, "at full size it would never be visible"
    checked(precision_memory.ledger_chart(tables[1]))


def test_a_recorded_run_of_the_same_size_is_a_mark_on_the_bars_and_a_step_without_memory_says_so(recorded):
    table = precision_memory.memory(replay("h100/precision_memory/memory"))
    figure = checked(precision_memory.ledger_chart(table, precision_memory.memory(recorded["memory"])))
    assert "recorded peak" in [text.get_text() for text in figure.legends[0].get_texts()]
    said = [[(text.get_text(), text.xy[1]) for text in ax.texts] for ax in figure.axes]
    assert said == [[("out of memory", 3)]] * 2, "at 2048 both precisions reach no steady step"


@pytest.mark.slow
def test_timeline(runs, request):
    lines = [[precision_memory.timeline(run, name) for name in PRECISIONS] for run in runs("timeline")]
    assert len(checked(precision_memory.timeline_chart(*lines)).axes) == (4 if "small" in request.node.name else 2)


@pytest.mark.slow
def test_levers(runs):
    tables = [*map(precision_memory.levers, runs("levers"))]
    figure = checked(precision_memory.levers_chart(*tables))
    missing = [text for ax in figure.axes for text in ax.texts if "not measured" in text.get_text()]
    assert len(missing) == 12 - len(tables[0]), "a lever that this machine did not run says so"


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
    checked(precision_memory.timeline_chart([made]))
