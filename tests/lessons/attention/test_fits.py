"""Lab 08's plans know what a point needs: beside every recorded peak, and on GPUs that hold less."""

import pytest
from fits import FREE_GB, show_gpu, size_taken, untried

from labkit.engine.recordings import replay
from labkit.theory.sizes import MIB
from lessons import attention
from lessons.attention.plan import WIDTH, Attention
from lessons.attention.theory import SQUARES

WEIGHED = ("h100/attention/memory", "h200/attention/memory", "h100/attention/plain", "h200/attention/compiled")
TIMED = ("h100/attention/race", "h200/attention/race", "h100/attention/sweep")
ONCE = 33 * MIB  # a library's workspace, which the first point of a process may allocate, too
KNOBS = ["implementation", "head_dim", "sequence"]
KINDS = Attention.__subclasses__()


def inputs_bytes(point) -> int:
    """Gives the bytes of Q, K, V and dO."""
    return 4 * point.heads * point.sequence * point.head_dim * WIDTH[point.precision]


def gpu_bytes(run) -> int:
    return run.node.gpus[0].memory_mib * MIB


@pytest.mark.parametrize("path", WEIGHED)
def test_a_point_needs_its_recorded_peak(path):
    run = replay(path)
    peaks = run.rows.groupby(KNOBS)[["forward_mib", "backward_mib"]].max().max(axis=1) * MIB
    assert len(peaks) > 20
    for point in run.plan.points():
        needed, setting = run.plan.needed_bytes(point), tuple(getattr(point, name) for name in KNOBS)
        if point.implementation not in SQUARES:
            assert needed == 0 and point.implementation == "compiled"
        elif peaks[setting] > 0:
            peak = peaks[setting] + inputs_bytes(point)
            assert 0.97 * peak - ONCE < needed <= peak, point
        else:
            assert needed > gpu_bytes(run), "it ran out of memory"


@pytest.mark.parametrize("path", TIMED)
def test_a_timed_point_is_tried_where_its_forward_fits(path):
    run = replay(path)
    timed = {*run.rows.loc[run.rows["status"] == "ok", "point"]}
    too_large = {point.point for point in run.plan.points() if run.plan.needed_bytes(point) > gpu_bytes(run)}
    assert too_large == {point.point for point in run.plan.points()} - timed


@pytest.mark.parametrize("free_gb", FREE_GB)
def test_auto_takes_the_full_size_and_leaves_out_long_sequences(monkeypatch, free_gb):
    show_gpu(monkeypatch, free_gb)
    for kind in KINDS:
        assert size_taken(kind, free_gb) == "full"
        left_out = untried(kind.sized("auto"), free_gb)
        assert {point.implementation for point in left_out} <= {"plain", "by_hand"}


@pytest.mark.parametrize(
    "free_gb, longest",
    [
        (149, (32768, 16384)),
        (139, (16384, 16384)),
        (79, (16384, 16384)),
        (39, (16384, 8192)),
        (14.5, (8192, 8192)),
        (7, (4096, 4096)),
    ],
)
def test_the_longest_sequence_that_is_tried(monkeypatch, free_gb, longest):
    """Of plain attention, and of the one whose softmax is written by hand."""
    show_gpu(monkeypatch, free_gb)
    plan = attention.Memory.sized("auto")
    left_out = untried(plan, free_gb)
    tried = [point for point in plan.points() if point not in left_out]
    found = tuple(
        max(point.sequence for point in tried if point.implementation == name) for name in ("plain", "by_hand")
    )
    assert found == longest
