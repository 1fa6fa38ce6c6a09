"""Lab 05's lines of links and projections: steps are those computed by hand."""

import math

import numpy as np
import pytest
from made import CPU, gpu_node, write_run

from labkit.tables.alpha_beta import fits, links
from labkit.theory.alpha_beta import Link
from labkit.theory.gpt import gpt
from labkit.theory.shapes import Model, elements
from labkit.theory.traffic import Sent, bucket_count, through_a_link, traffic
from lessons.sharding.plan import Links, Strategies
from lessons.sharding.tables import projection
from lessons.sharding.theory import project

NAMES = ("all-reduce", "all-gather", "reduce-scatter")
STRATEGIES = ("ddp", "fsdp_full", "fsdp_grad", "fsdp_root")
MODEL = gpt(4, 128, 512, 128)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_free_links_cost_nothing_and_dead_ones_everything(strategy):
    free = dict.fromkeys(NAMES, Link(0.0, math.inf))
    assert project(MODEL, strategy, 8, 0.3, free, fitted_ranks=2).step_s == 0.3
    dead = dict.fromkeys(NAMES, Link(math.inf, 100.0))
    assert project(MODEL, strategy, 2, 0.3, dead, fitted_ranks=2).step_s == math.inf
    assert project(MODEL, strategy, 1, 0.3, dead, fitted_ranks=2) == (0.3, 0, 0, 0)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_without_compute_all_that_is_sent_is_exposed(strategy, ranks):
    step = project(MODEL, strategy, ranks, 0.0, dict.fromkeys(NAMES, Link(0.0, 1.0)), fitted_ranks=ranks)
    sent = through_a_link(traffic(MODEL, strategy, ranks), ranks) / 1e9
    assert (step.exposed_s, step.communication_s, step.latency_s) == pytest.approx((sent, sent, 0))
    calls = project(MODEL, strategy, ranks, 0.0, dict.fromkeys(NAMES, Link(1.0, math.inf)), fitted_ranks=ranks)
    assert calls.exposed_s == calls.latency_s == sum(one.calls for one in traffic(MODEL, strategy, ranks))


def test_what_never_hides():
    slow, long = dict.fromkeys(NAMES, Link(1.0, math.inf)), 1e6
    exposed = {name: project(MODEL, name, 2, long, slow, fitted_ranks=2).exposed_s for name in STRATEGIES}
    # The last bucket; root and first block gathered, first block and root scattered; once more in backward; both.
    assert exposed == {"ddp": 1, "fsdp_grad": 4, "fsdp_full": 5, "fsdp_root": 2}
    wide, tiny = dict.fromkeys(NAMES, Link(0.0, 1.0)), Model(((8, 8),), ((4, 4),), (), 2)
    assert bucket_count(MODEL.shapes) > bucket_count(tiny.shapes) == 1
    for model, last in ((MODEL, elements(MODEL.before)), (tiny, 96)):
        assert project(model, "ddp", 2, long, wide, fitted_ranks=2).exposed_s == pytest.approx(4 * last / 1e9)


def test_windows_are_a_third_and_two_thirds():
    # 3 gathers of the other blocks against a third of 6 s; 3 gathers and 3 scatters against two thirds.
    slow = dict.fromkeys(NAMES, Link(1.0, math.inf))
    assert project(MODEL, "fsdp_full", 2, 6.0, slow, fitted_ranks=2).exposed_s == 5 + (3 - 2) + (6 - 4)
    assert project(MODEL, "fsdp_grad", 2, 6.0, slow, fitted_ranks=2).exposed_s == 4 + (3 - 2) + 0


def test_rings_grow_and_nodes_end():
    hop = dict.fromkeys(NAMES, Link(1e-3, math.inf))
    latencies = [project(MODEL, "fsdp_root", n, 0.0, hop, fitted_ranks=2).latency_s for n in (2, 8)]
    assert latencies == pytest.approx([2e-3, 14e-3])

    def rate(ranks: int, gb_per_s: float) -> float:
        step = project(MODEL, "ddp", ranks, 0.0, dict.fromkeys(NAMES, Link(0.0, gb_per_s)), fitted_ranks=8)
        return through_a_link(traffic(MODEL, "ddp", ranks), ranks) / step.communication_s / 1e9

    assert rate(8, 600.0) == pytest.approx(600)
    assert rate(16, 600.0) == pytest.approx(400)  # eight network cards of a node together
    assert rate(16, 300.0) == pytest.approx(300)


def links_run(folder, *, ranks=(2, 4), alpha_us=20.0, beta=250.0, device="cuda", status="ok", sizes=None):
    """Write a run whose medians lie on one line over the bytes through a link, alike for all ranks."""
    plan = Links(
        device=device,
        gpus=max(ranks),
        size="full" if device == "cuda" else "small",
        repeats=3,
        sizes_kib=sizes or (64, 8192, 524288),
    )
    rows = []
    for point in plan.points():
        whole = 1024 * point.kib
        sent = through_a_link([Sent(point.collective, 1, whole)], point.ranks)
        for iteration, factor in enumerate((30, 0.99, 1.0, 1.01)):
            seconds = factor * (alpha_us / 1e6 + sent / beta / 1e9)
            said = status if point.kib == 64 else "ok"
            rows += [
                (
                    rank,
                    dict(vars(point))
                    | {
                        "iteration": iteration,
                        "warm_up": iteration == 0,
                        "status": said,
                        "seconds": seconds,
                        "whole_bytes": whole,
                    },
                )
                for rank in range(point.ranks)
            ]
    return write_run(folder, plan, gpu_node(max(ranks)) if device == "cuda" else CPU, rows)


def steps_run(folder, *, slower=None, gpus=4, failed=()):
    """Write a run of all strategies; `slower` is a strategy's step at `large` over the single GPU's."""
    plan, rows = Strategies(device="cuda", gpus=gpus, size="full", seeds=(0,)), []
    for point in plan.points():
        step_ms = (360.0 if point.load == "large" else 180.0) * (slower or {}).get(point.strategy, 1.0)
        for iteration in range(3):
            row = {"entry": "step", "iteration": iteration, "warm_up": iteration == 0}
            row |= {"status": "out of memory"} if point.strategy in failed else {"step_ms": step_ms}
            rows += [(rank, dict(vars(point)) | row) for rank in range(point.ranks)]
        rows.append((0, dict(vars(point)) | {"entry": "traffic", "collective": "all-gather", "calls": 3}))
    return write_run(folder, plan, gpu_node(gpus), rows)


def test_links_and_fits(tmp_path):
    run = links_run(tmp_path / "run")
    table, lines = links(run), fits(run)
    assert len(table) == 18 and set(table["count"]) == {3} and set(table["verdict"]) == {"ok"}
    first = table.set_index(["collective", "ranks", "kib"]).loc[("all-reduce", 4, 524288)]
    assert first["bus_gb_per_s"] == pytest.approx(250, rel=0.01) and first["limit"] == pytest.approx(1.2 * 478.116)
    assert first["link_bytes"] == 1.5 * 2**29
    assert len(lines) == 6 and lines["alpha_us"].to_numpy() == pytest.approx(20)
    assert lines[["beta_gb_per_s", "knee_mib"]].to_numpy() == pytest.approx(np.array([[250, 5e6 / 2**20]] * 6))
    quick = links(links_run(tmp_path / "quick", beta=900.0)).set_index("kib")
    assert quick.loc[524288, "verdict"].eq("impossible").all()


def test_what_failed_is_in_no_line(tmp_path):
    run = links_run(tmp_path / "run", status="wrong result")
    assert links(run).loc[links(run)["kib"] == 64, "median_us"].isna().all()
    assert fits(run)["alpha_us"].to_numpy() == pytest.approx(20)
    assert fits(links_run(tmp_path / "few", sizes=(64, 8192), status="wrong result")).empty
    small = links(links_run(tmp_path / "small", device="cpu", ranks=(2,)))
    assert set(small["verdict"]) == {"no limit known"} and small.attrs["small"]


def test_projection_beside_what_was_measured(tmp_path):
    network, quick = links_run(tmp_path / "links", alpha_us=0.0, beta=1e6), {"ddp": 1.02, "fsdp_full": 1.25}
    table = projection(network, steps_run(tmp_path / "steps", slower=quick, failed=("fsdp_root",)))
    assert [*table["strategy"].unique()] == [*STRATEGIES] and table["gpus"].max() == 64
    cells = table.set_index(["strategy", "gpus"])
    assert cells.loc["ddp", "efficiency"].to_numpy()[:4] == pytest.approx(1, abs=1e-3)
    assert cells.loc[("ddp", 2), "tokens_per_s"] == pytest.approx(2 * 48 * 1024 / 0.36, rel=1e-3)
    assert cells.loc[("ddp", 4), "measured_tokens_per_s"] == pytest.approx(4 * 48 * 1024 / 0.36 / 1.02)
    assert cells.loc[("ddp", 2), "error"] == pytest.approx(0.02, abs=1e-3)
    assert cells.loc[("fsdp_full", 4), "error"] == pytest.approx(0.25, abs=2e-3)
    assert cells.loc["fsdp_root", "error"].isna().all() and cells.loc[("ddp", 8), ["error"]].isna().all()
    assert table.attrs["micro_batch"] == 48
    # bfloat16 weights: two bytes an element
    whole = Strategies(gpus=2).model(50304).parameters * 2
    sent_ms = 1e3 * through_a_link([Sent("all-reduce", 1, whole)], 64) / 400e9
    assert cells.loc[("ddp", 64), "communication_ms"] == pytest.approx(sent_ms, rel=1e-3)


def test_lines_of_the_most_ranks_serve_more_gpus(tmp_path):
    table = projection(links_run(tmp_path / "links"), steps_run(tmp_path / "steps"))
    latency = table[table["strategy"] == "ddp"].set_index("gpus")["latency_ms"]
    assert latency[2] == pytest.approx(latency[4]) and latency[8] == pytest.approx(latency[4] * 7 / 3)
    gained = (table["efficiency_at_fixed_alpha"] - table["efficiency"]).groupby(table["gpus"]).max()
    assert gained[64] > 0 == gained[4]


def test_projection_says_what_it_lacks(tmp_path):
    failed = steps_run(tmp_path / "failed", failed=("single",))
    with pytest.raises(ValueError, match="no single GPU took a step of one large micro-batch"):
        projection(links_run(tmp_path / "links"), failed)
    with pytest.raises(ValueError, match="at two sizes"):
        projection(links_run(tmp_path / "few", sizes=(64,)), steps_run(tmp_path / "steps"))
