"""The recorded runs of lab 07: the ledger explains every peak, formulas count as tensors do."""

import pytest

from labkit import published
from labkit.engine.recordings import replay
from labkit.theory.sizes import MIB
from lessons import precision_memory
from lessons.precision_memory import tables
from lessons.precision_memory.theory.memory import checkpointed_step, shape_of


@pytest.fixture(scope="module")
def runs():
    """Every recorded run."""
    return {name: replay(path) for name, path in precision_memory.RECORDED.items()}


def test_what_was_recorded(runs):
    for run in runs.values():
        assert (run.plan.device, run.plan.size, run.plan.gpus) == ("cuda", "full", 1)
        assert (run.rows["status"] == "ok").all()
        assert set(run.rows["point"]) == {point.point for point in run.plan.points()}
    assert (runs["memory"].plan.hidden, runs["memory"].plan.layers) == (2560, 32), "the largest size"


def test_the_ledger_explains_every_peak(runs):
    table = precision_memory.memory(runs["memory"])
    assert len(table) == 32 and table["peak"].notna().all()
    assert table["unexplained_share"].abs().max() < 0.03
    assert table["counted_error"].max() < 0.001


def test_the_printed_peaks_are_those_of_a_first_step(runs):
    """Weights, gradients and moments: the same at 128, 256 and 512, as the report prints; a steady step holds more."""
    peaks = (
        precision_memory.memory(runs["memory"]).set_index(["precision", "phase", "sequence"])["peak"].sort_index()
        * 2**20
        / 1e9
    )
    first, steady = peaks["float32", "first step"], peaks["float32", "steady step"]
    printed = published("transformer_memory").query("phase == 'train_step' and quantity == 'peak'")["value"]
    assert first[[128, 256, 512]].to_list() == pytest.approx([printed.iloc[0]] * 3, rel=0.02)
    assert steady[2048] > 1.3 * first[2048]


def test_torch_sums_and_casts_as_said(runs):
    assert precision_memory.sums(runs["numbers"])["equal"].dropna().all()
    casts = tables.dtypes(runs["numbers"]).set_index("what")
    assert casts.loc["loss"].to_list() == casts.loc["LayerNorm's output"].to_list() == ["float32"] * 3


def test_levers_need_the_same_memory_on_another_gpu(runs):
    """All twelve fit into 80 GB; peaks are those of the H200, though times are not."""
    here, there = (
        precision_memory.levers(run).set_index("lever")
        for run in (runs["levers"], replay("h100/precision_memory/levers"))
    )
    assert (there["status"] == "ok").all() and len(there) == len(here) == 12
    assert there["peak_mib"].to_numpy() == pytest.approx(here["peak_mib"].to_numpy(), rel=1e-3)
    assert set(there.index[there["best"]]) == set(here.index[here["best"]])


@pytest.mark.parametrize("every", [1, 2, 4])
def test_a_recorded_step_with_checkpoints_peaks_as_the_formula_says(runs, every):
    table = precision_memory.levers(runs["levers"]).set_index("lever")
    names = {1: "every block", 2: "every 2nd block", 4: "every 4th block"}
    due = checkpointed_step(shape_of(runs["levers"].plan, precision="bfloat16"), every) / MIB
    assert table.loc[f"checkpoint {names[every]}", "peak_mib"] == pytest.approx(due, rel=0.01)
