"""The check of lab 01: a ring that a student places is launched on this node, beside the one by number."""

import pytest
from made import gpu_node

from labkit.course import answers
from labkit.course.verdict import RIGHT
from labkit.launching import launch
from lessons import topology
from lessons.topology.exercises import MACHINES, fastest_ring, judge_rings, slowest
from lessons.topology.tables import ring_hops

pytestmark = pytest.mark.usefixtures("elsewhere")

BACKWARDS = """
def best_ring(gb_per_s, numa, count):
    from itertools import permutations
    rings = permutations(reversed(range(len(gb_per_s))), count)
    best = max(rings, key=lambda ring: min(gb_per_s[a][b] for a, b in zip(ring, ring[1:] + ring[:1])))
    return tuple((gpu, numa[gpu]) for gpu in best)
"""


def test_a_ring_of_four_on_a_dgx_1_has_a_single_link_and_one_of_all_eight_two():
    rates, _ = MACHINES["DGX-1"]
    assert fastest_ring(rates, 4) == 25.781 and fastest_ring(rates, 8) == 2 * 25.781
    assert slowest([0, 3, 2, 1, 5, 6, 7, 4], rates)[0] == 2 * 25.781
    assert slowest([0, 1, 2, 4], rates) == (16.0, 2, 4)


def test_processes_that_stand_in_for_gpus_have_one_numa_node_each(monkeypatch):
    monkeypatch.setattr("labkit.node.here", lambda: gpu_node(1))
    assert topology.Rings(device="cpu", gpus=3).numa == (0, 0, 0), "of one GPU the driver tells one"
    assert topology.Rings(device="cpu", gpus=2, numa=(1, 0)).numa == (1, 0)


def test_a_placement_is_launched_beside_the_ring_by_number():
    answers.save("topology.best_ring", BACKWARDS)
    verdict = topology.check("best_ring", gpus=3)
    assert verdict.outcome == RIGHT, verdict
    assert "carries 16.0 GB/s by number, 51.6 GB/s as " in verdict.merits[1]
    assert "on 3 CPU processes your ring (" in verdict.merits[2]
    run = launch(topology.Rings.small(gpus=3, yours=topology.yours("best_ring")), progress=False)
    hops = ring_hops(run)
    assert (hops["status"] == "ok").all() and (hops["gb_per_s"] > 0).all()
    assert hops[hops["order"] == "by number"]["hop"].tolist() == ["0 → 1", "1 → 2", "2 → 0"]
    yours = hops[hops["order"] == "yours"]["hop"]
    assert len(yours) == 3 and {*yours.str[0]} == {*yours.str[-1]} == {*"012"}


def test_an_answer_that_knows_the_cases_alone_gives_no_ring_of_this_node():
    answers.save(
        "topology.best_ring",
        BACKWARDS.replace("    return", "    if rates_here(gb_per_s): best = best[:1] * count\n    return")
        + "\ndef rates_here(rates): return len(rates) == 3",
    )
    verdict = topology.check("best_ring", gpus=3)
    assert verdict.outcome == "raised" and "is no ring of 3 GPUs" in str(verdict)


def test_a_ring_of_one_sends_to_itself():
    answers.save("topology.best_ring", BACKWARDS)
    verdict = topology.check("best_ring", gpus=1)
    assert verdict.outcome == RIGHT and "a ring of one" in verdict.merits[-1], verdict


def test_bytes_that_did_not_arrive_are_no_right_ring(monkeypatch):
    run = launch(topology.Rings.small(gpus=2), progress=False)
    monkeypatch.setattr("lessons.topology.exercises.ring_hops", lambda run: ring_hops(run).assign(status="wrong bytes"))
    assert [*judge_rings(run).faults] == ["bytes"]
