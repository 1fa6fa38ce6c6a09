"""The recorded runs of lab 09: verified, within the links, and told and drawn without a gap."""

import pytest
from figures import drawn

from labkit.engine.recordings import replay
from labkit.tables.published import published
from lessons import collectives
from lessons.collectives.exercises import verdict_of
from lessons.collectives.theory import COLLECTIVES


@pytest.fixture(scope="module")
def runs():
    return {name: replay(path) for name, path in collectives.RECORDED.items()}


def test_all_are_whole(runs):
    for name, run in runs.items():
        assert run.status.get("state") == "finished", f"{name} was cut off"
        assert (run.plan.lab, run.plan.size) == ("collectives", "full"), name
        assert run.plan.device == ("cpu" if name == "growth" else "cuda"), name
        assert set(run.rows["point"]) == {point.point for point in run.plan.points()}, name


def test_every_value_is_right_and_no_rate_beats_the_links(runs):
    for name in ("sweep", "growth"):
        table = collectives.bandwidths(runs[name])
        assert set(table["status"]) == {"ok"}, name
        assert "impossible" not in set(table["verdict"]), name
    table = collectives.bandwidths(runs["sweep"])
    assert set(table["collective"]) == set(COLLECTIVES) and set(table["backend"]) == {"nccl", "gloo"}
    assert (table["bytes"].min(), table["bytes"].max()) == (2**10, 2**30)
    assert (table["count"] >= 5).all()


def test_small_is_latency_and_large_is_bandwidth(runs):
    table = collectives.bandwidths(runs["sweep"])
    first = table[
        (table["backend"] == "nccl") & (table["clock"] == "in flight") & (table["collective"] == "all-reduce")
    ]
    by_size = first[first["ranks"] == first["ranks"].max()].set_index("bytes")
    assert by_size.loc[2**14, "median_us"] < 2 * by_size.loc[2**10, "median_us"]
    assert by_size.loc[2**30, "share_of_limit"] > 0.5
    fits = collectives.fits(runs["sweep"])
    knees = fits[(fits["backend"] == "nccl")]["knee_bytes"]
    assert knees.between(2**14, 2**30).all()


def test_rings_send_what_the_formula_says(runs):
    table = collectives.rings(runs["ring"])
    assert set(table["status"]) == {"ok"} and (table["sent_bytes"] == table["formula_bytes"]).all()


def test_each_benchmark_is_named_by_its_fault(runs):
    for row in collectives.symptoms(runs["trial"]).to_dict("records"):
        assert set(verdict_of(row).faults) == ({row["variant"]} - {"right"}), row


def test_the_verdicts_have_no_gap(runs):
    sweep, growth = (collectives.bandwidths(runs[name]) for name in ("sweep", "growth"))
    said = [
        *(tell(sweep) for tell in (collectives.smallest, collectives.first_call, collectives.knee)),
        *(tell(sweep) for tell in (collectives.libraries, collectives.reached)),
        collectives.growth(growth, sweep),
        collectives.in_one_minute(runs, runs),
    ]
    for sentence in said:
        assert not any(word in sentence.data for word in ("nan", "no value", "None", "inf ")), sentence.data


def test_the_charts_are_drawn(runs):
    sweep, growth = (collectives.bandwidths(runs[name]) for name in ("sweep", "growth"))
    times = collectives.published_times(published("all_reduce"))
    drawn(collectives.times_chart(None, sweep, guess=20), 1)
    drawn(collectives.bandwidth_chart(None, sweep, guess=300), 1)
    drawn(collectives.growth_chart(growth, sweep, published=times), 2)
    drawn(collectives.reports_chart(times, growth, sweep), 1)
