"""What the points of lab 05 need of a GPU's memory: the recorded peaks, and the sizes that follow from it."""

import dataclasses
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from labkit import node
from labkit.engine.plan import CONTEXT_BYTES, MEMORY_MARGIN
from labkit.engine.recordings import replay
from labkit.repository import RECORDED
from labkit.theory.gpt import forward_bytes
from labkit.theory.sizes import MIB
from labkit.worker.counting import SavedTensors
from labkit.worker.gpt import Gpt, samples
from lessons import sharding
from lessons.sharding import Accumulation, AsReported, Batches, Ladder, Links, Profiles, Strategies, Timeline, Trial
from lessons.sharding.measures import efficiency, over_published, tokens

WITH_PEAKS = ("h200x2/accumulation", "h200x2/asreported", "h200x2/batches", "h200x2/strategies", "h200x4/strategies")
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
    Ladder: (
        "full",
        f"{LARGE}, large=32, micro_batch=8",
        f"{LARGE}, large=12, micro_batch=2",
        f"{LARGE}, large=2, micro_batch=1",
        f"{MEDIUM}, large=6, micro_batch=1",
        f"{SMALL}, large=8, micro_batch=2",
    ),
    Batches: ("full", "full", "full", "full", MEDIUM, SMALL),
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


@pytest.fixture
def free(monkeypatch):
    """Return a function that makes the node show so many GPUs with so many GB free."""

    def shows(gpus: int, gb: float) -> float:
        here = dataclasses.replace(node.here(), gpus=tuple(node.Gpu(index, "a GPU") for index in range(gpus)))
        monkeypatch.setattr(node, "here", lambda: here)
        monkeypatch.setattr(node, "free_bytes", lambda gpus: gb * 1e9)
        return (1 - MEMORY_MARGIN) * (gb * 1e9 - CONTEXT_BYTES)

    return shows


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


def test_plain_attention_keeps_what_the_formula_says():
    plan = Batches.small(device="cpu", gpus=1)
    point = SimpleNamespace(seed=0, **plan.setting(micro_batch=2, attention="plain"))
    model = Gpt(plan, point, torch.device("cpu"))
    with (saved := SavedTensors()):
        model(*samples(plan, 2, 0))
    gradients = 2 * 4 * 2 * plan.sequence * point.vocabulary
    due = forward_bytes(plan.layers, plan.hidden, plan.heads, plan.sequence, point, 2) - gradients
    assert saved.bytes == pytest.approx(due, rel=0.005)


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


def test_a_sweep_of_batches_goes_on_until_nothing_fits(free):
    free(1, 22)
    plan = Batches.sized("auto")
    needed = [plan.needed_bytes(point) for point in plan.points()]
    assert needed == sorted(needed) and needed[0] < 22e9 < needed[-1]


@pytest.mark.parametrize(
    ("name", "figures"),
    [("ladder", (tokens, partial(over_published, in_float8=True))), ("strategies", (efficiency,))],
)
def test_a_smaller_model_is_not_held_against_the_reports(monkeypatch, name, figures):
    run = replay(sharding.RECORDED[name])
    assert run.plan.of_the_report and all(figure(run) for figure in figures)
    monkeypatch.setattr(type(run.plan), "of_the_report", False)
    assert not any(figure(run) for figure in figures)


def test_what_another_model_reports_is_beside_the_recorded_run(monkeypatch):
    run = replay(sharding.RECORDED["asreported"])
    recorded = sharding.reported(run)
    monkeypatch.setattr(type(run.plan), "of_the_report", False)
    assert "**On 2 ranks" in str(sharding.as_the_report(recorded, recorded).data)
    assert "**Recorded, on 2 ranks" in str(sharding.as_the_report(sharding.reported(run), recorded).data)
