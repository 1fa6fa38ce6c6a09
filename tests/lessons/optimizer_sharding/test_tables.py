"""Lab 11's tables, card and charts on runs made by hand."""

import json

import pytest
from figures import checked
from made import gpu_node, write_run
from made_optimizer_sharding import TIMES, memory_run, steps_run

from labkit.node import limits
from labkit.tables.goals import scorecard_of
from lessons import optimizer_sharding


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    return {
        "memory": memory_run(folder / "memory"),
        "steps": steps_run(folder / "steps"),
        "small memory": memory_run(folder / "small", device="cpu", size="small", layers=2, hidden=64, heads=4),
        "small steps": steps_run(folder / "slow", device="cpu", size="small"),
        "full": memory_run(folder / "full", unexplained=0.2, uneven=1.1, more_sent=10**6),
    }


def test_memory(runs):
    table = optimizer_sharding.memory(runs["memory"])
    assert table["unexplained_share"].max() == pytest.approx(0.02)
    assert (table["counted_error"] < 1e-9).all()
    saved = optimizer_sharding.saving(table).set_index(["kernel", "way"])
    half = 2 * sum(optimizer_sharding.Memory(device="cuda", gpus=2).model.parameters for _ in "ab") / 2**20
    assert saved.loc[("fused", "sharded"), "states"] == pytest.approx(half, rel=1e-6)
    ours = saved.loc["foreach", :].loc["sharded"]
    assert ours["predicted"] == pytest.approx(ours["states"] + ours["temporary"], rel=0.01)
    assert ours["measured"] == pytest.approx(ours["predicted"] / 0.98, rel=0.01)
    assert optimizer_sharding.memory(runs["full"])["counted_error"].max() == pytest.approx(0.1)
    assert optimizer_sharding.owned(runs["full"]).set_index("way").loc["sharded", "excess"] == pytest.approx(0.1)
    assert not optimizer_sharding.sent(runs["full"])["equal"].any()


def test_a_run_without_whole_states_saves_nothing_to_speak_of(runs, tmp_path):
    table = optimizer_sharding.memory(memory_run(tmp_path / "few", ways=("sharded",)))
    assert optimizer_sharding.saving(table).empty
    assert list(optimizer_sharding.saving(table)) == list(
        optimizer_sharding.saving(optimizer_sharding.memory(runs["memory"]))
    )


def test_a_way_that_ran_out_of_memory_saves_nothing(runs):
    table = optimizer_sharding.memory(runs["memory"])
    ours = (table["kernel"] == "fused") & (table["way"] == "sharded")
    stopped = table[~(ours & (table["moment"] == "after update") & (table["step"] == 1))]
    saved = optimizer_sharding.saving(stopped)
    assert len(saved) == len(optimizer_sharding.saving(table)) - 1
    assert not ((saved["kernel"] == "fused") & (saved["way"] == "sharded")).any()


def test_steps(runs):
    table = optimizer_sharding.steps(runs["steps"])
    rows = table[(table["optimizer"] == "adamw") & (table["kernel"] == "foreach")].set_index("way")
    assert rows[["step_ms", "update_ms", "local_ms"]].to_numpy().tolist() == [list(TIMES[way]) for way in rows.index]
    assert rows.loc["sharded", "exposed_ms"] == pytest.approx(1.6)
    assert rows.loc["sharded", "over_torch"] == pytest.approx(20 / 40)
    assert rows.loc["sharded", "step_over_torch"] == pytest.approx(125 / 145)
    gpu = limits.spec(gpu_node(2).gpus[0].name)
    elements = runs["steps"].plan.model.parameters
    assert rows.loc["unsharded", "least_local_ms"] == pytest.approx(80e3 * elements / gpu.hbm_gb_per_s / 1e9)
    assert rows.loc["sharded", "least_sent_ms"] == pytest.approx(2e3 * elements / gpu.nvlink_gb_per_s / 1e9)
    assert rows.loc["zero_buckets", "least_sent_ms"] == pytest.approx(2 * rows.loc["sharded", "least_sent_ms"])
    assert rows.loc["unsharded", "least_sent_ms"] == 0


def test_scorecard(runs, tmp_path):
    assert scorecard_of(runs["memory"])["met"].all()
    bad = scorecard_of(runs["full"]).set_index("figure")
    assert not bad.loc["largest unexplained share of a peak, 2 GPUs", "met"]
    card = scorecard_of(runs["steps"]).set_index("figure")
    assert card.loc["adamw, foreach: update over torch's faster one", "measured"] == 0.5
    assert card["met"].all()
    slow = steps_run(tmp_path / "slow", TIMES | {"sharded": (144.0, 39.0, 18.0)}, spread=0.001)
    assert not scorecard_of(slow)["met"].any()
    assert scorecard_of(runs["small steps"]).empty


@pytest.mark.parametrize("guess", [None, 12.0])
def test_runs_are_drawn_alone_and_one_beside_the_other(runs, guess):
    held = [optimizer_sharding.memory(runs[name]) for name in ("small memory", "memory")]
    times = [optimizer_sharding.steps(runs[name]) for name in ("small steps", "steps")]
    for table in held:
        checked(optimizer_sharding.memory_chart(table))
    for table in times:
        checked(optimizer_sharding.steps_chart(table, guess=guess))
    assert len(checked(optimizer_sharding.memory_chart(*held)).axes) == 4
    assert len(checked(optimizer_sharding.steps_chart(*times, guess=guess)).axes) == 4


def test_other_charts():
    checked(optimizer_sharding.balance_chart(optimizer_sharding.balance()))
    checked(
        optimizer_sharding.stages_chart(optimizer_sharding.by_ranks("xl"), optimizer_sharding.stages("xl", ranks=2))
    )


@pytest.mark.parametrize("parts", [("step",), ("step", "update"), ()])
def test_a_point_that_is_not_complete_is_left_out(tmp_path, parts):
    """A run that is going on, or that ended early, shows the settings that have every part, and no others."""
    whole = steps_run(tmp_path / "whole")
    rows = [json.loads(line) for line in whole.rows_file(0).read_text().splitlines()]
    first, second = (point.point for point in whole.plan.points()[:2])
    for name, kept in (("one", {first: ("step", "update", "local"), second: parts}), ("none", {first: parts})):
        own = [(0, row) for row in rows if row["part"] in kept.get(row["point"], ())]
        run = write_run(tmp_path / name, whole.plan, gpu_node(2), own, {"state": "ended early"})
        table = optimizer_sharding.steps(run)
        assert table["way"].tolist() == ["unsharded"] * (name == "one")
        assert scorecard_of(run).empty
    checked(optimizer_sharding.steps_chart(table))


def test_a_time_as_good_as_the_goal_is_open(tmp_path):
    near = TIMES | {"sharded": (137.0, 38.2, 18.4)}
    card = scorecard_of(steps_run(tmp_path / "near", near)).set_index("figure")
    assert card.loc["adamw, foreach: update over torch's faster one", "met"] == "open"
    quiet = scorecard_of(steps_run(tmp_path / "quiet", near, spread=0.0)).set_index("figure")
    assert quiet.loc["adamw, foreach: update over torch's faster one", "met"] == False  # noqa: E712
