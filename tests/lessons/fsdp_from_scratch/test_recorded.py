"""Lab 15's tables, charts and verdicts of the recorded runs, and of small ones made here."""

import pytest
from figures import checked

from labkit.engine.recordings import replay
from labkit.launching import launch
from lessons import fsdp_from_scratch as fsdp
from lessons.fsdp_from_scratch.exercises import verdict_of
from lessons.fsdp_from_scratch.plan import CASES
from lessons.fsdp_from_scratch.story import first_hidden


@pytest.fixture(scope="module")
def recorded():
    return {name: replay(path) for name, path in fsdp.RECORDED.items()}


def test_the_formula_of_tokens_is_what_two_gpus_measured(recorded):
    table = fsdp.batches(recorded["batches"])
    assert table.attrs["hidden_from"] == pytest.approx(520, rel=0.01)
    ours = table[table["strategy"] == "ours"].set_index("tokens")["longer_share"]
    assert ours[128] > 0.15 > 0.06 > ours[512] and ours.loc[2048:].max() < 0.02
    assert first_hidden(table) == 1024
    assert "from 1 024 tokens on" in fsdp.from_how_many_tokens(table).data.replace("\u202f", " ")


def test_ours_sends_and_holds_what_the_formulas_and_torch_do(recorded):
    table = fsdp.ledgers(recorded["steps"])
    assert table["equal"].all() and {*table["strategy"]} == {"ours", "torch"}
    assert fsdp.as_formula(table).data.startswith("✔")
    table.loc[0, "equal"] = False
    assert fsdp.as_formula(table).data.startswith("✘")


def test_peaks_are_the_formula_s_within_a_tenth(recorded):
    table = fsdp.steps(recorded["steps"])
    assert table["unexplained_share"].abs().max() < 0.11
    assert (table.loc[table["precision"] == "float32", "unexplained_share"].abs() < 0.02).all()


def test_one_unit_ahead_hides_what_none_ahead_does_not(recorded):
    table = fsdp.steps(recorded["steps"])
    blocks = table[(table["strategy"] == "ours") & (table["unit"] == "block") & (table["precision"] == "float32")]
    longer = blocks.set_index("prefetch")["longer_ms"]
    assert longer[1] < longer[0] / 2
    ours = table[(table["strategy"] == "ours") & (table["unit"] == "block") & (table["prefetch"] == 1)]
    assert (ours["over_torch"] + ours["spread_over_torch"] < 1.10).all()


def test_releasing_saves_the_model_but_for_what_is_gathered(recorded):
    peaks = fsdp.peaks(recorded["timeline"]).set_index(["release", "prefetch"])["peak_gb"]
    model = 4e-9 * recorded["timeline"].plan.model.parameters
    assert peaks[False, 0] - peaks[True, 0] == pytest.approx(model, rel=0.05)


def test_symptoms_are_told_apart(recorded):
    table = fsdp.symptoms(recorded["suspects"])
    assert [[*verdict_of(row).faults] for row in table.to_dict("records")] == [[name] for name in table["variant"]]
    assert not verdict_of({"variant": "right", "norm_error": 1e-7, "weight_error": 1e-7}).faults


def test_charts_of_recorded_and_of_small_runs(recorded):
    small = launch(fsdp.Steps.small(units=("block", "model"), repeats=2), progress=False)
    pair = fsdp.steps(small), fsdp.steps(recorded["steps"])
    checked(fsdp.steps_chart(*pair))
    checked(fsdp.steps_chart(pair[1], precision="float32"))
    assert "say nothing about GPUs" in fsdp.what_units_cost(*pair).data
    assert fsdp.ledgers(small)["equal"].all()
    batches = launch(fsdp.Batches.small(repeats=2), progress=False)
    checked(fsdp.hiding_chart(fsdp.batches(batches), fsdp.batches(recorded["batches"])))
    timeline = launch(fsdp.Timeline.small(), progress=False)
    checked(fsdp.timeline_chart(fsdp.timelines(timeline), fsdp.timelines(recorded["timeline"])), drawing=True)
    peaks = fsdp.peaks(timeline).set_index(["release", "prefetch"])["peak_gb"]
    assert peaks[True, 0] < peaks[False, 0] and peaks[True, 0] < peaks[True, 2]
    checked(fsdp.whole_chart(8), drawing=True)
    runs = {"steps": small, "batches": batches, "timeline": timeline, "equality": recorded["equality"]}
    said = fsdp.in_one_minute(runs, recorded).data
    assert "not measured" not in said and "14 of 14" in said


def test_every_case_is_right_on_two_processes():
    table = fsdp.cases(launch(fsdp.Equality.small(gpus=2), progress=False))
    assert [*table["case"]] == [*CASES] and table["right"].all(), table


@pytest.mark.parametrize("gpus", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_symptoms_are_told_apart_on_any_number_of_ranks(gpus):
    table = fsdp.symptoms(launch(fsdp.Trial.small(gpus=gpus, variants=fsdp.suspects()), progress=False))
    assert [[*verdict_of(row).faults] for row in table.to_dict("records")] == [[name] for name in table["variant"]]


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [3, 4])
def test_every_case_is_right_on_more_processes(gpus):
    table = fsdp.cases(launch(fsdp.Equality.small(gpus=gpus), progress=False))
    assert table["right"].all(), table
