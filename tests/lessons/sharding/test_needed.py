"""What the points of lab 05 need of a GPU's memory: the recorded peaks, and the sizes that follow from it."""

from types import SimpleNamespace

import pytest

from labkit.engine.recordings import replay
from labkit.repository import RECORDED
from labkit.theory.sizes import MIB
from lessons import sharding
from lessons.sharding import Accumulation, AsReported, Links, Profiles, Strategies, Timeline, Trial
from lessons.sharding.measures import efficiency

WITH_PEAKS = ("h200x2/accumulation", "h200x2/asreported", "h200x2/strategies", "h200x4/strategies")
GB = (139, 79, 39, 22, 14.5, 7)
LARGE, MEDIUM, SMALL = "GPT-2 Large", "GPT-2 medium", "GPT-2 small"
SIZES = {  # at the free memories in GB
    Strategies: (
        "full",
        f"{LARGE}, large=32, micro_batch=8",
        f"{LARGE}, large=12, micro_batch=8",
        f"{LARGE}, large=4, micro_batch=2",
        f"{MEDIUM}, large=8, micro_batch=4",
        f"{SMALL}, large=8, micro_batch=4",
    ),
    Accumulation: (
        *("full", "full", "full"),
        *(f"{LARGE}, micro_batch=2", f"{MEDIUM}, micro_batch=4", f"{SMALL}, micro_batch=8"),
    ),
    AsReported: (
        *("full", "full", f"{LARGE}, micro_batch=2"),
        *(f"{MEDIUM}, micro_batch=2", f"{MEDIUM}, micro_batch=1", f"{SMALL}, micro_batch=1"),
    ),
    Profiles: (
        *("full", "full", "full"),
        *(f"{LARGE}, micro_batch=4", f"{MEDIUM}, micro_batch=8", f"{SMALL}, micro_batch=8"),
    ),
    Timeline: (
        *("full", "full", "full"),
        *(f"{LARGE}, micro_batch=4", f"{MEDIUM}, micro_batch=8", f"{SMALL}, micro_batch=8"),
    ),
    Links: ("full",) * 6,
    Trial: ("full",) * 6,
}


@pytest.mark.parametrize("path", WITH_PEAKS)
def test_what_is_needed_is_the_recorded_peak(path):
    """Within 3 %, and never much more: what is left out would not have fitted."""
    machine, _, name = path.partition("/")
    run = replay(RECORDED / machine / "sharding" / name)
    rows = run.rows[run.rows["peak_mib"].notna()]
    assert len(rows) >= 6
    for row in rows.to_dict("records"):
        error = run.plan.needed_bytes(SimpleNamespace(**row)) / (row["peak_mib"] * MIB) - 1
        assert -0.03 < error < 0.003, (error, row)


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("number", range(len(GB)))
def test_auto_takes_the_largest_size_that_fits(free, kind, number):
    room = free(2, GB[number])
    plan = kind.sized("auto")
    name = plan.left_out.rpartition(": ")[2].removesuffix(" instead") or "full"
    assert name == SIZES[kind][number]
    assert plan.most_needed_bytes() <= room
    assert plan.size == ("full" if name == "full" else "middle")
    if name != "full":
        middle = [{}, *kind.MIDDLE.values()]
        larger = kind.full(**middle[[*kind.MIDDLE].index(name)])
        assert larger.most_needed_bytes() > room, "the next larger one"


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("gb", GB)
def test_some_size_fits_however_many_gpus_there_are(free, gpus, gb):
    room = free(gpus, gb)
    for kind in SIZES:
        if gpus >= kind.least:
            assert kind.sized("auto").most_needed_bytes() <= room, kind


def test_a_smaller_model_is_not_held_against_the_reports(monkeypatch):
    run = replay(sharding.RECORDED["strategies"])
    assert run.plan.of_the_report and efficiency(run, "ddp")
    monkeypatch.setattr(type(run.plan), "of_the_report", False)
    assert not efficiency(run, "ddp")


def test_what_another_model_reports_is_beside_the_recorded_run(monkeypatch):
    run = replay(sharding.RECORDED["asreported"])
    recorded = sharding.reported(run)
    monkeypatch.setattr(type(run.plan), "of_the_report", False)
    assert "**On 2 ranks" in str(sharding.as_the_report(recorded, recorded).data)
    assert "**Recorded, on 2 ranks" in str(sharding.as_the_report(sharding.reported(run), recorded).data)
