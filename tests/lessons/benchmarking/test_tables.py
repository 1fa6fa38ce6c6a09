"""Rows of lab 06 → tables: of runs made by hand, whose figures are known, and of the recorded ones."""

import json

import pytest
from made_benchmarking import HOST_US, KERNELS, launches_run, profiles_run, steps_run

from labkit.engine.recordings import replay
from labkit.provenance import fact
from labkit.tables.goals import scorecard_of
from labkit.tables.measures import measures_of
from labkit.theory.transformer import NAMES
from lessons import benchmarking as lab
from lessons.benchmarking.tables import attention_parts, kernels
from lessons.benchmarking.theory import parameters_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def steps(folder):
    return steps_run(folder / "steps")


@pytest.fixture(scope="module")
def launches(folder):
    return launches_run(folder / "launches")


@pytest.fixture(scope="module")
def profiles(folder):
    return profiles_run(folder / "profiles")


def test_a_step_has_its_median_its_rate_and_its_share_of_the_peak(steps):
    table = lab.steps(steps).set_index(["model", "precision", "mode", "phase"])
    assert len(table) == 5 * (3 * 3 + 3 * 2)
    row = table.loc[("2.7b", "autocast", "graph", "forward")]
    assert row["tflops"] == pytest.approx(500, rel=0.01) and row["mfu"] == pytest.approx(500 / 989.5, rel=0.01)
    assert row["least_ms"] == pytest.approx(3483.66 / 989.5, rel=1e-3)
    assert table.loc[("2.7b", "autocast", "eager", "both"), "flop"] == 3 * row["flop"]
    assert ("2.7b", "autocast", "graph", "both") not in table.index
    assert set(table["verdict"]) == {"ok"}


def test_a_time_that_beats_the_gpu_is_flagged(tmp_path):
    table = lab.steps(steps_run(tmp_path / "run", fusion=3.0))
    assert "impossible" in set(table[table["mode"] == "compiled_graph"]["verdict"])


def test_modes_say_what_launches_and_what_fusion_bring(steps):
    table = lab.modes(steps).set_index(["model", "phase"])
    assert list(table.index.get_level_values(0).unique()) == list(NAMES)
    small, large = table.loc[("small", "forward")], table.loc[("2.7b", "forward")]
    assert small["launches"] == pytest.approx(small["eager_ms"] / small["graph_ms"]) and small["launches"] > 5
    assert large["launches"] == pytest.approx(1, abs=0.02) and large["fusion"] == pytest.approx(1.4, rel=0.02)


def test_iterations_keep_the_first_and_warm_ups_drop_it(steps):
    table = lab.iterations(steps)
    first = table[(table["model"] == "small") & (table["iteration"] == 0)].iloc[0]
    assert bool(first["warm_up"]) and first["times_later"] == pytest.approx(40, rel=0.05)
    dropped = lab.warm_ups(steps).set_index(["phase", "warm_ups"])
    assert list(dropped.loc["forward", "count"]) == [15, 14, 13, 10]
    assert dropped.loc[("forward", 0), "mean_ms"] > 3 * dropped.loc[("forward", 1), "mean_ms"]
    assert dropped.loc[("forward", 0), "std_ms"] > 100 * dropped.loc[("forward", 1), "std_ms"]
    assert dropped.loc[("forward", 0), "median_ms"] == pytest.approx(dropped.loc[("forward", 5), "median_ms"])


def test_the_launch_model_predicts_the_sizes_from_what_a_launch_costs(launches):
    table = lab.launches(launches)
    assert fact(table, "launch_us") == pytest.approx(HOST_US)
    assert table["host_ms"].to_numpy() == pytest.approx(HOST_US * table["kernels"].to_numpy() / 1e3)
    assert fact(table, "layer_kernels") == pytest.approx(KERNELS)
    assert fact(table, "layer_host_us") == pytest.approx(KERNELS * HOST_US)
    assert fact(table, "knee_width") == 4096
    assert table["error"].abs().max() < 0.02
    assert list(table[table["axis"] == "model"]["model"]) == list(NAMES)


def test_the_knee_is_where_launches_end_to_bound(tmp_path):
    slow, fast = (lab.launches(launches_run(tmp_path / str(us), host_us=us)) for us in (1000.0, 0.001))
    assert fact(slow, "knee_width") == float("inf") and slow["launch_bound"].all()
    assert fact(fast, "knee_width") == 256 or not fast["launch_bound"].any()


def test_without_a_gpu_there_is_no_work_apart_from_the_hosts(tmp_path):
    table = lab.launches(launches_run(tmp_path / "small", device="cpu", size="small"))
    assert table["gpu_ms"].isna().all()
    assert fact(table, "knee_width") != fact(table, "knee_width")


def test_three_clocks_stand_side_by_side(folder):
    run = profiles_run(folder / "off", apart=-0.05)
    table = lab.accounts(run)
    assert table["apart"].to_numpy() == pytest.approx(-0.05)
    assert table["slowed"].to_numpy() == pytest.approx(0.1)
    assert (table["idle_share"] > 0.5).all()


def test_kernels_and_families_are_shares_of_all(profiles):
    top = kernels(profiles).groupby("phase").first()
    assert set(top["family"]) == {"matmul"} and top["share"].tolist() == pytest.approx([0.6, 0.6])
    shares = lab.families(profiles).groupby(["model", "precision", "phase"])["share"].sum()
    assert shares.to_numpy() == pytest.approx(1)


def test_an_operator_has_its_place_under_the_roofs(profiles):
    table = lab.roofline(profiles).set_index("operator")
    assert "aten::copy_" not in table.index  # it computes nothing
    product, times = table.loc["aten::mm"], table.loc["aten::mul"]
    assert product["flop_per_byte"] == pytest.approx(100) and product["bound"] == "memory"
    assert times["flop_per_byte"] == pytest.approx(1 / 12) and times["roof_tflops"] == pytest.approx(0.4)
    assert fact(lab.roofline(profiles), "peak_tflops") == 989.5
    step = lab.accounts(profiles).query("model == '2.7b' and precision == 'autocast' and phase == 'step'").iloc[0]
    assert fact(lab.roofline(profiles), "busy_share") == pytest.approx(step["busy_ms"] / step["plain_ms"])


def test_softmax_stands_beside_the_products(profiles):
    softmax = attention_parts(profiles).set_index(["model", "precision"]).loc[("small", "float32")]
    assert softmax["us"] == pytest.approx(0.5) and softmax["flop"] == pytest.approx(5 / (4 * 64))


def test_a_trace_can_be_read_by_its_viewer(profiles):
    first, second = lab.timelines(profiles)
    assert (fact(first, "model"), fact(second, "model")) == ("small", "2.7b")
    file = lab.export_trace(first, profiles)
    assert file.parent == profiles.folder
    events = json.loads(file.read_text())["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X"]
    assert len(drawn) == len(first) == 36
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {"host", "GPU"}
    assert all(event["dur"] > 0 and event["ts"] >= 0 for event in drawn)


def test_the_trace_of_a_recorded_run_is_written_beside_the_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path))
    recorded = replay(lab.RECORDED["profiles"])
    assert lab.export_trace(lab.timelines(recorded)[0], recorded).parent == tmp_path


def test_a_run_shows_its_goals_and_a_miss_is_one(launches, profiles, tmp_path):
    assert [met for run in (launches, profiles) for met in scorecard_of(run)["met"]] == [True] * 2
    off = scorecard_of(launches_run(tmp_path / "l", off=1.3))
    assert list(off["measured"]) == pytest.approx([100 * (1 - 1 / 1.3)], rel=0.05)
    apart = scorecard_of(profiles_run(tmp_path / "p", apart=0.04))
    assert [list(card["met"]) for card in (off, apart)] == [[False]] * 2
    assert scorecard_of(steps_run(tmp_path / "s", device="cpu", size="small")).empty


@pytest.fixture(scope="module")
def recorded():
    return {name: replay(path) for name, path in lab.RECORDED.items()}


def test_no_step_beats_the_gpu(recorded):
    assert set(lab.steps(recorded["steps"])["verdict"]) == {"ok"}


def test_the_launch_model_follows_a_host_whose_speed_changes(recorded):
    table = lab.launches(recorded["launches"])
    sizes = table[table["axis"] == "model"]
    assert sizes["error"].abs().max() < 0.10 and sizes["launch_bound"].all()


def test_an_operator_never_has_more_time_than_its_step(recorded):
    """Watching host and GPU at once, the profiler gave AdamW 0.5 s in a step of 0.28 s."""
    table = lab.roofline(recorded["profiles"]).set_index("operator")
    busy_ms = lab.accounts(recorded["profiles"]).set_index(["model", "precision", "phase"])["busy_ms"]
    assert table["total_us"].sum() / 1e3 == pytest.approx(busy_ms["2.7b", "autocast", "step"], rel=0.03)


def test_operators_move_the_bytes_that_they_moved_while_timed(recorded):
    """Gradients add up in place when nothing counts; AdamW reads weight, gradient and two states, and writes three."""
    table = lab.roofline(recorded["profiles"]).set_index("operator")
    assert "aten::add_" not in table.index and table.loc["aten::add", "total_us"] == pytest.approx(1731, abs=1)
    drawn = table[table["share"] >= 1e-3]
    assert drawn["of_roof"].max() < 1
    weights = parameters_of("2.7b")
    adamw = table.loc["aten::_fused_adamw_"]
    assert adamw["moved_bytes"] == pytest.approx(7 * 4 * weights, rel=1e-4)
    assert adamw["of_roof"] == pytest.approx(0.79, abs=0.005)


def test_recorded_runs_reach_every_goal(recorded):
    cards = [scorecard_of(run).set_index("figure")["met"] for run in recorded.values()]
    met = {name: reached for card in cards for name, reached in card.items()}
    assert met == {one.name: True for one in measures_of("benchmarking") if one.comparison}


def test_the_texts_figures_of_the_recorded_hosts_speed_are_true(recorded):
    sizes = lab.launches(recorded["launches"]).query("axis == 'model'").set_index("model")
    deep, large, medium = (sizes.loc[model] for model in ("xl", "2.7b", "medium"))
    assert deep["kernels"] / large["kernels"] == pytest.approx(1.5, abs=0.01)
    assert deep["eager_ms"] / large["eager_ms"] == pytest.approx(1.5, abs=0.05)
    assert medium["eager_ms"] > large["eager_ms"] and medium["kernels"] < large["kernels"]
    assert (round(medium["launch_us"]), round(large["launch_us"])) == (47, 35)
    steps = lab.steps(recorded["steps"]).query("mode == 'eager'")
    forwards = steps.query("precision == 'autocast' and phase == 'forward'").set_index("model")["ms"]
    per_kernel = 1e3 * forwards / sizes["kernels"]
    assert per_kernel[["small", "medium", "large"]].between(35, 41).all()
    assert per_kernel[["xl", "2.7b"]].between(20, 22).all()
    longer = steps.query("phase == 'step'").pivot_table(index="model", columns="precision", values="ms")
    longer = longer.div(longer["float32"], axis=0).round(1)
    assert longer.loc["medium", ["tf32", "autocast"]].tolist() == [1.5, 1.8] and longer.loc["small", "autocast"] == 1.2
    accounts = lab.accounts(recorded["profiles"]).set_index(["model", "precision", "phase"])
    kernels = accounts["kernels"]
    assert kernels["small", "autocast", "step"] / kernels["small", "float32", "step"] == pytest.approx(1.2, abs=0.01)
    assert (
        round(sizes.loc["small", "eager_ms"], 1),
        round(accounts["plain_ms"]["small", "autocast", "forward"], 1),
    ) == (
        11.4,
        15.1,
    )
