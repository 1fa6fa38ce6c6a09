"""Lab 09's plans check themselves and measure what their lesson needs."""

import pytest

from labkit.engine.errors import PlanError
from labkit.theory.sizes import GIB, KIB, MIB
from lessons import collectives
from lessons.collectives.exercises import SYMPTOMS
from lessons.collectives.plan import CLOCKS, VARIANTS
from lessons.collectives.theory import COLLECTIVES
from lessons.collectives.worker.calls import CALLS
from lessons.collectives.worker.nccl_tests import PROGRAMS
from lessons.collectives.worker.timing import CLOCKS as TIMERS

GPU = {"device": "cuda", "gpus": 4}
CPU = {"device": "cpu"}


@pytest.mark.parametrize(
    ("kind", "knobs", "says"),
    [
        (collectives.Sweep, {"gpus": 1, **CPU}, "gpus=1: a collective needs at least two ranks"),
        (collectives.Sweep, GPU | {"collectives": ("reduce",)}, "collective='reduce' is not known; it is one of all-r"),
        (collectives.Sweep, GPU | {"backends": ("mpi",)}, "backend='mpi' is not known; it is one of nccl, gloo"),
        (collectives.Sweep, {"gpus": 2, "backends": ("nccl",), **CPU}, "backend='nccl' is not known; it is one of g"),
        (collectives.Sweep, GPU | {"counts": (2, 5)}, r"counts=\(2, 5\): with gpus=4 a count is 2 to 4"),
        (collectives.Sweep, GPU | {"counts": (1,)}, "a count is 2 to 4"),
        (collectives.NcclTests, GPU | {"sizes_kib": (64, 256, 512)}, "takes a first size and a whole factor"),
        (collectives.NcclTests, GPU | {"sizes_kib": (64, 64)}, "takes a first size and a whole factor"),
        (collectives.Ring, GPU | {"lengths": (0, 5)}, "there is something to reduce from 1 element on"),
        (collectives.Trial, GPU | {"variants": ("fast",)}, "variant='fast' is not known; it is one of right, unsync"),
    ],
)
def test_bad_input_says_what_is_allowed(kind, knobs, says):
    with pytest.raises(PlanError, match=says):
        kind(**knobs)


def test_every_name_is_known_to_the_worker():
    assert set(COLLECTIVES) == set(CALLS) == set(PROGRAMS)
    assert set(CLOCKS) == set(TIMERS)
    assert (VARIANTS[0], VARIANTS[1:]) == ("right", tuple(SYMPTOMS))


def test_the_sweep_is_what_the_lesson_says():
    points = collectives.Sweep.full(**GPU).points()
    nccl = [p for p in points if p.backend == "nccl"]
    assert {p.collective for p in nccl} == set(COLLECTIVES) and {p.ranks for p in nccl} == {2, 3, 4}
    assert (min(p.bytes for p in nccl), max(p.bytes for p in nccl)) == (KIB, GIB)
    assert {p.in_flight for p in nccl} == {20}, "as many as nccl-tests makes"
    gloo = [p for p in points if p.backend == "gloo"]
    assert {p.collective for p in gloo} == set(COLLECTIVES) and max(p.bytes for p in gloo) == 64 * MIB
    assert all(p.in_flight * p.bytes <= MIB or p.in_flight == 1 for p in gloo)
    assert {p.bytes for p in points if p.clock == "one call"} == {p.bytes for p in points if p.bytes <= MIB}
    assert {p.clock for p in points if p.bytes > MIB} == {"in flight"}


def test_a_small_sweep_is_small():
    points = collectives.Sweep.small(**CPU, gpus=2).points()
    assert len(points) == 36 and max(p.bytes for p in points) == MIB
    assert ({p.backend for p in points}, {p.clock for p in points}) == ({"gloo"}, {"in flight"})
    assert {p.ranks for p in collectives.Sweep.small(**CPU, gpus=4).points()} == {2, 3, 4}


def test_nccl_tests_stand_beside_ours_from_64_mib_on():
    points = collectives.NcclTests.full(**GPU).points()
    for collective in COLLECTIVES:
        own = [p for p in points if p.collective == collective]
        assert [p.source for p in own] == 3 * ["ours"] + ["nccl-tests"], "in one run, one after the other"
        assert [p.bytes // MIB for p in own] == [64, 256, 1024, 1024]
        assert {p.ranks for p in own} == {4}
    assert collectives.NcclTests.full(**GPU).step == 4
    assert collectives.NcclTests(**GPU, sizes_kib=(64,)).step == 2, "one size needs no factor, the program does"


def test_the_ring_meets_lengths_that_no_number_of_ranks_divides():
    plan = collectives.Ring.small(**CPU, gpus=3)
    assert {p.ranks for p in plan.points()} == {2, 3}
    assert {p.method for p in plan.points()} == {"ours", "library"}
    for ranks in (2, 3):
        lengths = [p.elements for p in plan.points() if p.ranks == ranks]
        assert any(length % ranks for length in lengths) and min(lengths) < ranks
    assert collectives.Ring.small(**CPU, gpus=2).gpus == 2


def test_trials_take_a_collective_whose_factor_shows():
    points = {p.variant: p for p in collectives.Trial.small(**CPU, gpus=2, variants=VARIANTS).points()}
    assert points["wrong_factor"].collective == "all-gather"
    assert {points[name].collective for name in VARIANTS if name != "wrong_factor"} == {"all-reduce"}
