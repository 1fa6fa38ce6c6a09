"""Lab 14's theory: bytes counted hop by hop, times by both levels, efficiency, stragglers, and what a speed implies."""

import itertools
import math

import pytest

from lessons.beyond_the_node import theory
from lessons.beyond_the_node.theory import Levels, Link, link_bytes, mesh_groups

MESHES = [(2, 2), (2, 8), (3, 4), (4, 1)]
INSIDE, BETWEEN = Link(3e-6, 300.0), Link(20e-6, 12.5)


def crossing(ring: list[int], whole_bytes: float, per_node: int) -> dict[int, float]:
    """Return by node what its ranks send to other nodes in a ring all-reduce: 2(N − 1) steps of a chunk per rank."""
    sent: dict[int, float] = {}
    for rank, after in zip(ring, ring[1:] + ring[:1], strict=True):
        if rank // per_node != after // per_node:
            node = rank // per_node
            sent[node] = sent.get(node, 0.0) + 2 * (len(ring) - 1) * whole_bytes / len(ring)
    return sent


@pytest.mark.parametrize(("nodes", "per_node"), MESHES)
def test_bytes_between_nodes_are_those_of_every_hop(nodes, per_node):
    flat = crossing([*range(nodes * per_node)], 1200.0, per_node)
    assert list(flat.values()) == pytest.approx([link_bytes("flat", 1200.0, nodes, per_node)] * nodes)
    between = mesh_groups(nodes, per_node)[1]
    two = [crossing(group, 1200.0 / per_node, per_node) for group in between]
    for node in range(nodes):
        assert sum(one[node] for one in two) == pytest.approx(link_bytes("hierarchical", 1200.0, nodes, per_node))
    assert link_bytes("inside", 1200.0, nodes, per_node) == 0
    assert link_bytes("hierarchical", 1200.0, nodes, per_node) <= link_bytes("flat", 1200.0, nodes, per_node)


def test_one_node_sends_nothing_and_unknown_names_are_refused():
    assert [link_bytes(method, 1e9, 1, 8) for method in ("flat", "hierarchical", "between")] == [0, 0, 0]
    assert [theory.step_link_bytes(name, 1e9, 1, 8) for name in theory.STRATEGIES] == [0] * 6
    with pytest.raises(ValueError, match="none of inside, between, flat, hierarchical"):
        link_bytes("ring", 1, 2, 2)
    with pytest.raises(ValueError, match="none of alone, ddp"):
        theory.step_link_bytes("zero", 1, 2, 2)
    with pytest.raises(ValueError, match="none of alone, ddp"):
        theory.step_of("local", Levels(INSIDE, BETWEEN, 2, 2), 1.0, 1.0)


@pytest.mark.parametrize(("nodes", "per_node"), MESHES)
def test_groups_add_up_to_an_all_reduce(nodes, per_node):
    inside, between = mesh_groups(nodes, per_node)
    ranks = range(nodes * per_node)
    assert sorted(itertools.chain(*inside)) == sorted(itertools.chain(*between)) == [*ranks]
    parts = {rank: {rank} for rank in ranks}  # whose values the part of a rank's own place holds
    parts = {rank: set().union(*(parts[other] for other in group)) for group in inside for rank in group}
    parts = {rank: set().union(*(parts[other] for other in group)) for group in between for rank in group}
    assert all(held == {*ranks} for held in parts.values())


def test_times_are_the_formulas():
    one = Levels(INSIDE, BETWEEN, 3, 4)
    size = 1e9
    pass_s = 3 * (3e-6 + size / 4 / 300e9)
    between_s = 4 * (20e-6 + size / 3 / 12.5e9)
    assert one.hierarchical_s(size) == pytest.approx(2 * pass_s + between_s)
    assert one.flat_s(size) == pytest.approx(22 * (20e-6 + size / 12 / 12.5e9))
    waiting = Levels(Link(60e-6, 300.0), BETWEEN, 3, 4)
    assert waiting.flat_s(0) == pytest.approx(22 * 60e-6), "the slowest hop sets the pace, wherever it is"
    assert one.tree_s(size) == pytest.approx(2 * pass_s + 4 * 20e-6 + between_s - 4 * 20e-6)
    assert Levels(INSIDE, BETWEEN, 1, 4).flat_s(size) == pytest.approx(2 * pass_s)
    assert Levels(INSIDE, BETWEEN, 1024, 8).tree_s(0) < Levels(INSIDE, BETWEEN, 1024, 8).hierarchical_s(0) / 20
    # Bytes through the link at its rate, without latency, are the time between nodes.
    fast = Levels(Link(0, math.inf), Link(0, 12.5), 3, 4)
    for method, seconds in (("flat", fast.flat_s), ("hierarchical", fast.hierarchical_s)):
        assert seconds(size) == pytest.approx(link_bytes(method, size, 3, 4) / 12.5e9)


def test_a_line_per_hop_gives_the_fitted_call_back():
    fitted = Link(60e-6, 200.0)
    hop = theory.per_hop(fitted, 4)
    whole = 1e8
    assert Levels(hop, BETWEEN, 1, 4).flat_s(whole) == pytest.approx(fitted.seconds(1.5 * whole))


def test_a_step_sends_what_its_strategy_needs():
    sent = {name: theory.step_link_bytes(name, 1e9, 2, 8, accumulation=4, every=50) for name in theory.STRATEGIES}
    assert sent["ddp"] == pytest.approx(1.875e9) and sent["hsdp"] == sent["hierarchical"] == pytest.approx(1e9)
    assert sent["fsdp"] == pytest.approx((4 * 2 + 1) * 15 / 16 * 1e9), "two gathers a micro-batch, a scatter a step"
    assert sent["local"] == pytest.approx(sent["ddp"] / 50) and sent["alone"] == 0


@pytest.mark.parametrize("strategy", ["ddp", "hsdp", "fsdp"])
@pytest.mark.parametrize("accumulation", [1, 4])
def test_the_link_that_is_needed_is_just_enough(strategy, accumulation):
    mesh = (0.9, strategy, Levels(Link(0, 600.0), Link(0, 1.0), 2, 8), 0.12, 1.55e9, accumulation)
    needed = theory.needed_gbit_per_s(*mesh)
    for factor, enough in ((1.001, True), (0.999, False)):
        levels = Levels(Link(0, 600.0), Link(0, factor * needed / 8), 2, 8)
        step = theory.step_of(strategy, levels, 0.12, 1.55e9, accumulation=accumulation)
        assert (step.efficiency >= 0.9) is enough


def test_no_link_between_nodes_helps_where_those_inside_are_too_slow():
    mesh = Levels(Link(3e-6, 300.0), Link(0, 1.0), 2, 8)
    assert theory.needed_gbit_per_s(0.9, "hsdp", mesh, 0.12, 1.55e9) == math.inf
    step = theory.step_of("hsdp", Levels(Link(3e-6, 300.0), Link(0, math.inf), 2, 8), 0.12, 1.55e9)
    assert 0.89 < step.efficiency < 0.9


def test_a_step_of_both_levels():
    mesh = Levels(INSIDE, BETWEEN, 2, 8)
    ddp = theory.step_of("ddp", mesh, 0.1, 1e9, accumulation=4, overlap=2 / 3)
    assert ddp.communication_s == pytest.approx(mesh.flat_s(1e9)) and ddp.compute_s == pytest.approx(0.4)
    assert ddp.exposed_s == pytest.approx(mesh.flat_s(1e9) - 0.1 * 2 / 3), "one micro-batch's backward hides"
    hsdp = theory.step_of("hsdp", mesh, 0.1, 1e9, accumulation=4)
    assert hsdp.communication_s == pytest.approx(9 * mesh.inside_pass_s(1e9) + mesh.between_s(1e9))
    fsdp = theory.step_of("fsdp", mesh, 0.1, 1e9, accumulation=4, overlap=0.5)
    assert fsdp.exposed_s == pytest.approx(9 * mesh.ring_pass_s(1e9) - 0.2), "each micro-batch hides its own"
    assert fsdp.efficiency == pytest.approx(0.4 / fsdp.step_s)
    split = theory.step_of("ddp", mesh, 0.1, 1e9, calls=10)
    assert split.communication_s - mesh.flat_s(1e9) == pytest.approx(9 * mesh.flat_s(0))


@pytest.mark.parametrize(
    ("efficiency", "compute_s", "communication_s"), [(0.9, 0.1, 0.23), (0.75, 0.5, 0.5), (0.5, 1, 0)]
)
def test_the_least_accumulation_is_enough_and_one_less_is_not(efficiency, compute_s, communication_s):
    count = theory.least_accumulation(efficiency, compute_s, communication_s)
    assert count * compute_s / (count * compute_s + communication_s) >= efficiency
    fewer = (count - 1) * compute_s
    assert count == 1 or fewer / (fewer + communication_s) < efficiency
    for share in (0, 1):
        with pytest.raises(ValueError, match="between 0 and 1"):
            theory.least_accumulation(share, 1, 1)


def test_a_rare_stall_hits_most_steps_of_many_ranks():
    assert theory.stalled_share(1e-4, 1) == pytest.approx(1e-4)
    assert theory.stalled_share(1e-4, 16_384) == pytest.approx(1 - (1 - 1e-4) ** 16_384)
    assert theory.stalled_share(1.0, 2) == 1 and theory.stalled_share(0.0, 10**6) == 0


def test_a_speed_says_which_link_it_needed():
    needed = theory.link_needed(10e9, 2.0, 1.5)
    assert needed == pytest.approx((40.0, 160.0))
    assert theory.link_needed(10e9, 2.0, 2.5).unhidden_gbit_per_s == math.inf
    assert theory.least_node_bytes(2, 1e9, 4) == pytest.approx(link_bytes("hierarchical", 1e9, 4, 8))
