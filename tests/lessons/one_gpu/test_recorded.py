"""The recorded runs of lab 17: what their tables, scorecards and verdicts have to show."""

import pytest

from labkit.engine.recordings import replay
from labkit.tables.goals import scorecard_of
from lessons import one_gpu
from lessons.one_gpu.exercises import verdict_of
from lessons.one_gpu.plan import LADDER, VARIANTS

PUBLISHED = 32582  # tokens/s


@pytest.fixture(scope="module")
def runs():
    return {name: replay(path) for name, path in one_gpu.RECORDED.items()}


def test_all_points_are_there(runs):
    for name, run in runs.items():
        kind, device = ("trial", "cpu") if name == "suspects" else (name, "cuda")
        assert (run.plan.lab, run.plan.name, run.plan.device) == ("one_gpu", kind, device)
        assert {point.point for point in run.plan.points()} <= set(run.rows["point"]), name
    assert all(runs[name].plan.of_the_report for name in ("ladder", "batches"))


def test_the_ledger_explains_within_a_tenth(runs):
    table = one_gpu.batches(runs["batches"])
    fits = table[table["peak_mib"].notna()]
    assert len(fits) >= 4
    assert (fits["predicted_mib"] / fits["peak_mib"] - 1).abs().max() <= 0.1
    for row in table[table["tokens_per_s"].isna()].itertuples():
        assert row.status == "out of memory"
        memory = runs["batches"].node.gpus[0].memory_mib
        assert row.predicted_mib > memory, "the ledger knew"


def test_the_ladder_reaches_its_height(runs):
    table = one_gpu.ladder(runs["ladder"])
    assert table["knob"].tolist() == list(LADDER)
    assert (table["verdict"] == "ok").all()
    peaks = table.set_index("knob")["peak_tflops"]
    assert peaks["float8 products"] == 2 * peaks["by hand"]
    assert table["tokens_per_s"].max() >= 3.1 * PUBLISHED  # the target is 3.2; nodes differ by some percent


def test_without_a_slower_clock_no_power_limit_is_named(runs):
    table = one_gpu.ladder(runs["ladder"])
    table["sm_mhz"] = 1980.0
    assert "does not show" in one_gpu.power_limit(table).data


def test_the_last_rungs_meet_the_power_limit(runs):
    assert "meet the GPU's power limit" in one_gpu.power_limit(one_gpu.ladder(runs["ladder"])).data


def test_scorecards(runs):
    cards = {name: scorecard_of(run) for name, run in runs.items()}
    assert {name for name, card in cards.items() if len(card)} == {"ladder", "batches"}
    for name in ("ladder", "batches"):
        assert cards[name]["measured"].notna().all() and set(cards[name]["lab"]) == {"one_gpu"}
    assert cards["batches"]["met"].all()


def test_each_suspect_is_named_by_its_row(runs):
    rows = one_gpu.symptoms(runs["suspects"]).to_dict("records")
    assert {row["variant"] for row in rows} == {*VARIANTS[1:]} == {*one_gpu.suspects()}
    assert all({*verdict_of(row).faults} == {row["variant"]} for row in rows), rows
