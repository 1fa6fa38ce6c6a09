"""The recorded runs of lab 06: what the notebook and the scorecard say of them holds, and every chart draws."""

import pytest
from figures import checked

from labkit.engine.recordings import replay
from labkit.provenance import fact
from labkit.tables.goals import scorecard_of
from labkit.tables.measures import measures_of
from labkit.tables.published import published
from lessons import benchmarking as lab


@pytest.fixture(scope="module")
def runs():
    return {name: replay(path) for name, path in lab.RECORDED.items()}


def test_the_first_forward_of_a_process_sets_things_up(runs):
    iterations = lab.iterations(runs["steps"])
    assert iterations.loc[0, "times_later"] > 10 and iterations.loc[1, "times_later"] < 1.5


def test_a_mean_without_warm_ups_is_twice_the_median(runs):
    table = lab.warm_ups(runs["steps"]).set_index(["phase", "warm_ups"])
    none, some = table.loc[("forward", 0)], table.loc[("forward", 1)]
    assert none["mean_ms"] > 2 * none["median_ms"] and none["std_ms"] > 30 * some["std_ms"]
    assert none["median_ms"] == pytest.approx(some["median_ms"], rel=0.02)


def test_in_bfloat16_the_largest_model_is_faster_than_the_deepest(runs):
    table = lab.steps(runs["steps"]).set_index(["model", "precision", "mode", "phase"])
    assert set(table["verdict"]) == {"ok"}
    xl, largest = (table.loc[(name, "autocast", "eager", "forward")] for name in ("xl", "2.7b"))
    assert largest["ms"] < xl["ms"] and largest["flop"] > 1.6 * xl["flop"]
    eager = table.loc[(slice(None), "autocast", "eager", "forward"), "ms_per_layer"]
    assert eager.max() / eager.min() < 1.15  # launches, whatever the width
    full = table.loc[(slice(None), "float32", "eager", "forward"), "ms_per_layer"]
    assert full.max() / full.min() > 3  # in float32 the GPU is the limit


def test_launches_cost_more_than_fusion_brings_in_the_smallest(runs):
    table = lab.modes(runs["steps"]).set_index(["model", "phase"])
    small, largest = table.loc[("small", "forward")], table.loc[("2.7b", "forward")]
    assert small["launches"] > 5 > 2 > small["fusion"]
    assert largest["launches"] < 2


def test_the_launch_model_follows_a_host_whose_speed_changes(runs):
    table = lab.launches(runs["launches"])
    sizes = table[table["axis"] == "model"]
    assert sizes["error"].abs().max() < 0.10 and sizes["launch_bound"].all()
    assert fact(table, "knee_width") == 6144
    assert fact(table, "high_us") > 1.5 * fact(table, "low_us")


def test_the_largest_size_is_faster_than_the_deepest_in_bfloat16_alone(runs):
    forwards = lab.steps(runs["steps"]).query("mode == 'eager' and phase == 'forward'")
    ms = forwards.set_index(["precision", "model"])["ms"]
    assert ms["autocast", "2.7b"] < ms["autocast", "xl"]
    assert ms["float32", "2.7b"] > ms["float32", "xl"]


def test_the_profile_answers_the_questions(runs):
    run = runs["profiles"]
    accounts = lab.accounts(run).set_index(["model", "precision", "phase"])
    assert accounts.loc[("small", "autocast", "forward"), "idle_share"] > 0.8
    assert accounts.loc[("2.7b", "float32", "forward"), "idle_share"] < 0.05
    shares = lab.families(run).set_index(["model", "precision", "phase", "family"])["share"]
    assert shares["2.7b", "float32", "forward", "matmul"] > 0.9 > shares["2.7b", "float32", "step", "matmul"]
    assert shares["2.7b", "autocast", "forward", "copy"] > shares["2.7b", "autocast", "forward", "matmul"]


def test_an_operator_never_has_more_time_than_its_step(runs):
    """Watching host and GPU at once, the profiler gave AdamW 0.5 s in a step of 0.28 s."""
    table = lab.roofline(runs["profiles"]).set_index("operator")
    busy_ms = lab.accounts(runs["profiles"]).set_index(["model", "precision", "phase"])["busy_ms"]
    assert table["total_us"].sum() / 1e3 == pytest.approx(busy_ms["2.7b", "autocast", "step"], rel=0.03)
    assert table.loc["aten::_fused_adamw_", "of_roof"] == pytest.approx(0.85, abs=0.03)
    assert table.loc["aten::mm", "bound"] == "compute"


def test_recorded_runs_reach_every_goal(runs):
    cards = [scorecard_of(run).set_index("target")["met"] for run in runs.values()]
    met = {name: reached for card in cards for name, reached in card.items()}
    assert met == {one.name: True for one in measures_of("benchmarking") if one.comparison}


def test_the_recorded_runs_draw(runs):
    steps = lab.steps(runs["steps"])
    checked(lab.iterations_chart(lab.iterations(runs["steps"])))
    checked(lab.phases_chart(steps, published=published("transformer_steps")))
    checked(lab.modes_chart(steps, steps))
    checked(lab.launches_chart(lab.launches(runs["launches"])))
    checked(lab.families_chart(lab.families(runs["profiles"])))
    checked(lab.roofline_chart(lab.roofline(runs["profiles"])))
    checked(lab.timeline_chart(*lab.timelines(runs["profiles"])))
