"""Lab 02's plans know what their buffers need, and take a smaller tensor on GPUs that hold less."""

import pytest
from fits import FREE_GB, show_gpu, size_taken

from labkit.engine.plan import CONTEXT_BYTES
from labkit.engine.recordings import replay
from labkit.tables.goals import scorecard_of
from labkit.theory.sizes import GIB
from lessons.broadcast.plan import Sweep, Trial

SIZES = ("full", "full", "full", "full", "2048 MiB", "512 MiB")


@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize("number, free_gb", [*enumerate(FREE_GB)])
def test_auto_takes_the_largest_size_that_fits(monkeypatch, number, free_gb, gpus):
    show_gpu(monkeypatch, free_gb, gpus)
    assert [size_taken(kind, free_gb) for kind in (Sweep, Trial)] == [SIZES[number]] * 2


def test_a_gpu_holds_two_tensors_of_its_rank_and_two_of_rank_0():
    plan = Sweep(gpus=2, device="cuda")
    (needed,) = {plan.needed_bytes(point) for point in plan.points()}
    made = 2 * GIB / 2 + CONTEXT_BYTES  # each process's pattern on the way, and rank 0's context
    assert needed == 4 * 4 * GIB + GIB + made


def test_a_middle_size_divides_among_the_gpus(monkeypatch):
    show_gpu(monkeypatch, 14.5, 3)
    assert Sweep.sized("auto").mib == 2046


def test_another_size_has_no_goal():
    run = replay("h200x2/broadcast/sweep")
    assert len(scorecard_of(run)) == 1
    run.plan._hold({"size": "middle"})
    assert scorecard_of(run).empty
