"""The recorded runs of lab 10: all that was asked for was sent, and targets are met."""

import pytest

from labkit.engine.recordings import replay
from labkit.tables.goals import scorecard_of
from lessons import ddp_from_scratch as ddp
from lessons.ddp_from_scratch.plan import STRATEGIES


@pytest.fixture(scope="module")
def runs():
    """Every recorded run; a folder that is missing fails here."""
    return {name: replay(path) for name, path in ddp.RECORDED.items()}


def test_what_was_recorded(runs):
    for positions in (128, 32):
        plan = runs[f"report_{positions}"].plan
        assert (plan.gpus * plan.samples, plan.sequence) == (32, positions)
    for run in runs.values():
        plan = run.plan
        assert (plan.device, plan.size) == ("cuda", "full")
        assert set(run.rows["point"]) == {point.point for point in plan.points()}
        assert set(run.rows["rank"]) == set(range(plan.gpus))
    for name in ("implementations", "buckets", "profiles"):
        assert runs[name].plan.model.parameters == pytest.approx(2.0e9, rel=0.01)
    assert len(runs["implementations"].plan.seeds) >= 3


def test_what_was_sent_is_the_formulas(runs):
    for name in ("implementations", "buckets"):
        table = ddp.overlap(runs[name])
        assert table["equal"].all(), table[~table["equal"]]
    table = ddp.overlap(runs["implementations"]).set_index("strategy")
    assert set(table.index) == set(STRATEGIES)
    assert (table.loc[["naive", "flat"], "before_last_gradient"] == 0).all()
    assert (table.loc[["overlapped", "bucketed", "ddp"], "before_last_gradient"] > 0).all()


def test_sending_takes_time_and_backward_hides_some_of_it(runs):
    table = ddp.implementations(runs["implementations"]).set_index("strategy")
    assert (table["status"] == "ok").all()
    assert table.loc["naive", "longer_ms"] > table.loc["naive", "spread_longer_ms"]
    assert table.loc["bucketed", "step_ms"] < table.loc["naive", "step_ms"]
    assert table.loc["flat", "extra_mib"] > 7000, "a second copy of all gradients"
    assert (ddp.sending(runs["implementations"])["verdict"] == "ok").all()


def test_traces_show_overlap_and_its_absence(runs):
    table = ddp.profile(runs["profiles"]).set_index("strategy")
    assert table.loc["naive", "overlap"] < 0.2
    assert table.loc["bucketed", "overlap"] > table.loc["naive", "overlap"] + 0.2


def test_goals_are_met_or_open(runs):
    cards = {name: scorecard_of(run) for name, run in runs.items()}
    assert {name for name, card in cards.items() if card.empty} == {"profiles", "trial", "report_128", "report_32"}
    assert [row.target for card in cards.values() for row in card.itertuples() if not row.met] == []


def test_every_suspect_shows_itself(runs):
    said = ddp.diagnose(runs["trial"], {}).data
    assert "differs" not in said and said.count("\n") == len(runs["trial"].plan.variants) - 1
    assert said.count("nothing is wrong with it") == runs["trial"].plan.variants.count("right")


def test_backward_hides_a_part_at_the_reports_batch(runs):
    for name, part in (("report_128", "hides 21 %"), ("report_32", "hides 49 % of what *flat* adds")):
        assert part in ddp.what_is_hidden(ddp.implementations(runs[name]), ddp.costs(runs[name])).data


def test_in_one_minute(runs):
    text = ddp.in_one_minute(runs, runs).data
    for figures in (
        "a step becomes 7.5 ms shorter",
        "193 of 194 buckets leave before the last gradient",
        "no best size between smallest and largest",
        "14 of 14 cases are right",
    ):
        assert text.count(figures) == 2, text
