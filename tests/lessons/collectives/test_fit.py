"""Lab 09's bandwidths and lines: an exact line comes back, a bent one leaves residuals, limits are kept apart."""

import math

import pytest
from made_collectives import GIB, KIB, LINES, made_sweep

from lessons import collectives
from lessons.collectives.theory import COLLECTIVES, bus_factor, hops

H200 = 18 * 26.562  # GB/s over all NVLinks


@pytest.mark.parametrize("gpus", [2, 3, 4, 8])
def test_an_exact_line_comes_back_for_every_collective(tmp_path, gpus):
    table = collectives.fits(made_sweep(tmp_path / "run", gpus=gpus))
    assert len(table) == 2 * len(COLLECTIVES)
    for row in table.itertuples():
        hop, rate = LINES[row.backend]
        assert row.hops == hops(row.collective, gpus)
        assert row.alpha_us == pytest.approx(1e6 * hop * row.hops, rel=1e-3)
        assert row.hop_us == pytest.approx(1e6 * hop, rel=1e-3)
        assert row.beta_gb_per_s == pytest.approx(rate, rel=1e-3)
        knee = hop * row.hops * rate * 1e9 / bus_factor(row.collective, gpus)
        assert row.knee_bytes == pytest.approx(knee, rel=2e-3)
        assert row.residual < 1e-6


def test_the_knee_parts_latency_from_bandwidth(tmp_path):
    run = made_sweep(tmp_path / "run", gpus=4)
    table = collectives.residuals(run)
    assert table["residual"].abs().max() < 1e-6
    below = table["bytes"] < table["knee_bytes"]
    assert (table["region"] == below.map({True: "latency", False: "bandwidth"})).all()
    assert set(table[table["bytes"] == KIB]["region"]) == {"latency"}
    assert set(table[table["bytes"] == GIB]["region"]) == {"bandwidth"}
    line = table[table["collective"] == "all-reduce"]
    assert line["fitted_us"].to_list() == pytest.approx(line["median_us"].to_list())


def test_what_one_line_does_not_fit_is_left_as_residuals(tmp_path):
    def slow_middle(size, took, knobs):
        return took * (1.5 if size == 4096 * KIB else 1)

    run = made_sweep(tmp_path / "run", gpus=4, bend=slow_middle)
    table = collectives.residuals(run)
    by = [table["backend"], table["collective"]]
    worst = table.loc[table["residual"].abs().groupby(by, sort=False).idxmax()]
    assert set(worst["bytes"]) == {4096 * KIB} and (worst["residual"] < -0.1).all()
    fits = collectives.fits(run).set_index(["backend", "collective"])["residual"]
    assert fits.to_list() == pytest.approx(worst["residual"].abs().to_list(), rel=1e-6)


def test_one_size_makes_no_line_and_failed_settings_are_left_out(tmp_path):
    one = made_sweep(tmp_path / "one", sizes_kib=(64,))
    assert collectives.fits(one).empty and "beta_gb_per_s" in collectives.fits(one)
    assert collectives.residuals(one).empty
    run = made_sweep(tmp_path / "wrong", status={"broadcast": "wrong result"})
    assert set(collectives.fits(run)["collective"]) == set(COLLECTIVES) - {"broadcast"}
    table = collectives.bandwidths(run)
    assert set(table[table["status"] != "ok"]["collective"]) == {"broadcast"}


def test_every_clock_has_a_line_of_its_own(tmp_path):
    run = made_sweep(tmp_path / "run")
    alpha = {
        clock: collectives.fits(run, clock).query("backend == 'nccl'")["hop_us"].iloc[0]
        for clock in ("in flight", "one call", "captured")
    }
    assert alpha["captured"] < alpha["in flight"] < alpha["one call"]


def test_bandwidths_are_the_definitions_and_have_spreads(tmp_path):
    run = made_sweep(tmp_path / "run", gpus=4, spread=0.05)
    table = collectives.bandwidths(run).set_index(["backend", "collective", "clock", "bytes"])
    row = table.loc[("nccl", "all-reduce", "in flight", GIB)]
    assert row["algorithm_gb_per_s"] == pytest.approx(GIB / row["median_us"] / 1e3)
    assert row["bus_gb_per_s"] == pytest.approx(1.5 * row["algorithm_gb_per_s"])
    assert row["spread_us"] == pytest.approx(0.05 * row["median_us"])
    assert row["first_us"] == pytest.approx(30 * row["median_us"])
    assert (row["in_flight"], row["count"]) == (20, 7)
    assert (table.loc["gloo"]["verdict"] == "no limit known").all() and table.loc["gloo"]["limit"].isna().all()


def test_an_all_reduce_in_the_switch_is_no_contradiction_and_an_all_gather_is(tmp_path):
    fast = {"nccl": (1e-6, 520.0), "gloo": LINES["gloo"]}  # more than a ring's, less than NVLS's 1.2 × on four GPUs
    table = collectives.bandwidths(made_sweep(tmp_path / "run", gpus=4, lines=fast))
    large = table[(table["bytes"] == GIB) & (table["backend"] == "nccl")].set_index("collective")
    assert large["above_ring"].all()
    assert large.loc["all-reduce", "verdict"] == "ok"
    assert large.loc["all-reduce", "limit"] == pytest.approx(1.2 * H200)
    assert set(large.drop("all-reduce")["verdict"]) == {"impossible"}
    two = collectives.bandwidths(made_sweep(tmp_path / "two", gpus=2, lines=fast))
    alone = two[(two["bytes"] == GIB) & (two["collective"] == "all-reduce")]
    assert set(alone["verdict"]) == {"impossible"}, "the switch's adding gains nothing for two"
    slow = collectives.bandwidths(made_sweep(tmp_path / "slow", gpus=4))
    assert not slow["above_ring"].any() and set(slow[slow["backend"] == "nccl"]["verdict"]) == {"ok"}


def test_unknown_gpus_have_no_limit(tmp_path):
    table = collectives.bandwidths(made_sweep(tmp_path / "run", name="NVIDIA Unheard-of"))
    assert set(table["verdict"]) == {"no limit known"} and not table["above_ring"].any()


def test_where_a_setting_ran_out_of_memory_its_numbers_are_missing(tmp_path):
    run = made_sweep(tmp_path / "run", gpus=2)
    point = len(run.plan.points())
    knobs = {"backend": "nccl", "collective": "all-reduce", "ranks": 2, "clock": "in flight", "bytes": 4 * GIB}
    run.append(1, knobs | {"point": point, "seed": 0, "status": "out of memory"})
    (row,) = collectives.bandwidths(run).query(f"bytes == {4 * GIB}").to_dict("records")
    assert row["status"] == "out of memory" and math.isnan(row["median_us"]) and row["verdict"] == "not measured"
    assert collectives.fits(run).set_index(["backend", "collective"]).loc[("nccl", "all-reduce"), "points"] == 6


def test_tables_say_where_they_are_from(tmp_path):
    large, small = made_sweep(tmp_path / "large"), made_sweep(tmp_path / "small", device="cpu", gpus=2)
    for run, is_small in ((large, False), (small, True)):
        for table in (collectives.bandwidths(run), collectives.fits(run), collectives.residuals(run)):
            assert (table.attrs["source"], table.attrs["small"]) == (run.source, is_small)
