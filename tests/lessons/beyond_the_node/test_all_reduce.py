"""A student's `hierarchical_all_reduce` on real ranks: right ones, each wrong one by its kind, and over two nodes."""

from __future__ import annotations

import dataclasses

import pytest

from labkit import launch_or_replay, launching
from labkit.cluster import namespaces, session_cache
from labkit.course import answers
from labkit.course.verdict import HUNG, RAISED, RIGHT, UNANSWERED, WRONG, Verdict
from lessons import beyond_the_node as lab

pytestmark = pytest.mark.usefixtures("elsewhere")
NAME = "hierarchical_all_reduce"
HEAD = f"""
import torch
import torch.distributed as dist


def {NAME}(tensor, inside, between, per_node):
"""
SHARE = "    share = tensor.new_empty(tensor.numel() // per_node)\n"
SCATTER = "    dist.reduce_scatter_tensor(share, tensor, group=inside)\n"
BETWEEN = "    dist.all_reduce(share, group=between)\n"
GATHER = "    dist.all_gather_into_tensor(tensor, share, group=inside)\n"
RIGHT_ONE = HEAD + SHARE + SCATTER + BETWEEN + GATHER
LISTS = f"""{HEAD}    parts = [part.clone() for part in tensor.chunk(per_node)]
    share = torch.empty_like(parts[0])
    dist.reduce_scatter(share, parts, group=inside)
    dist.all_reduce(share, group=between, async_op=True).wait()
    dist.all_gather(parts, share, group=inside)
    tensor.copy_(torch.cat(parts))
"""
OWN_SHARE = "    share.copy_(tensor.chunk(per_node)[dist.get_rank(inside)])\n"
LEADER = f"""{HEAD}    first = dist.get_process_group_ranks(inside)[0]
    dist.reduce(tensor, first, group=inside)
    if dist.get_rank(inside) == 0:
        dist.all_reduce(tensor, group=between)
    dist.broadcast(tensor, first, group=inside)
"""
ALL_IN = "    dist.all_reduce(tensor, group=inside)\n"
SUMS = "    parts = [share.clone() for _ in range(dist.get_world_size(between))]\n"
SUMS += "    dist.all_gather(parts, share, group=between)\n    share = sum(parts)\n"
ASYNC = ", async_op=True)\n"
needs_namespaces = pytest.mark.skipif(bool(namespaces.why_not()), reason=namespaces.why_not() or "they can be made")


def judged(code: str, patience_s: float = 20.0) -> Verdict:
    """Return the verdict of the check, without the run over two nodes."""
    answers.save(f"beyond_the_node.{NAME}", code)
    return lab.check._verdict(dataclasses.replace(lab.check.by_name[NAME], trial=None), patience_s, {})


@pytest.fixture
def two_nodes():
    yield
    session_cache.leave()


@pytest.mark.parametrize("code", [RIGHT_ONE, LISTS], ids=["three calls", "lists"])
def test_a_right_all_reduce_has_the_sums_and_sends_shares(code):
    verdict = judged(code)
    assert verdict.outcome == RIGHT and "3 nodes of 2 ranks and 2 nodes of 3 ranks" in verdict.merits[0], verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (HEAD + ALL_IN + "    dist.all_reduce(tensor, group=between)\n", "more_between", "a share is 1/2"),
        (HEAD + SHARE + SCATTER + SUMS + GATHER, "more_between", "sends 96 B between nodes, and 64 B are enough"),
        (LEADER, "one_rank", "rank 0 sends 128 B between nodes"),
        (HEAD + SHARE + ALL_IN + OWN_SHARE + BETWEEN + GATHER, "more_inside", "rank 0 sends 144 B inside its node"),
        (
            RIGHT_ONE.replace(GATHER, OWN_SHARE.replace("share.copy_(", "").replace("])\n", "].copy_(share)\n")),
            "no_gather",
            "",
        ),
        (HEAD + SHARE + SCATTER + BETWEEN, "unchanged", "written into `tensor` itself"),
        (RIGHT_ONE.replace("(tensor, share", "(tensor.clone(), share") + "    return tensor\n", "unchanged", ""),
        (HEAD + "    pass\n", "unchanged", ""),
        (HEAD + SHARE + SCATTER + GATHER, "no_between", "rank 0 calls nothing over `between`"),
        (RIGHT_ONE.replace("group=between", "group=inside"), "no_between", ""),
        (
            RIGHT_ONE.replace(BETWEEN, f"    if dist.get_rank(inside) == 0:\n    {BETWEEN}"),
            "no_between",
            "rank 1 calls",
        ),
        (HEAD + "    dist.all_reduce(tensor, group=between)\n", "between_only", "one rank of each node"),
        (HEAD + SHARE + OWN_SHARE + BETWEEN + GATHER, "not_reduced", "with a reduce-scatter"),
        (HEAD + ALL_IN + SHARE + SCATTER + BETWEEN + GATHER, "twice", "2 times too large"),
        (RIGHT_ONE + "    tensor /= dist.get_world_size()\n", "mean", "6 times too small"),
        (RIGHT_ONE + "    tensor.copy_(torch.cat(tensor.chunk(per_node)[::-1]))\n", "mixed_up", "wrong places"),
        (RIGHT_ONE.replace("group=between)\n", f"group=between{ASYNC}"), "unwaited", ""),
        (HEAD + SHARE + SCATTER + BETWEEN + GATHER.replace(")\n", ASYNC), "unwaited", "right only later"),
        (RIGHT_ONE.replace("share, group=between", "share, dist.ReduceOp.MAX, group=between"), "wrong", "place 0"),
        (RIGHT_ONE + "    tensor.zero_()\n", "wrong", "holds 0 on rank 0"),
        (RIGHT_ONE + "    tensor.resize_(1)\n", "length", ""),
    ],
)
def test_each_wrong_all_reduce_is_named(code, kind, says):
    verdict = judged(code)
    assert (verdict.outcome, [*verdict.faults]) == (WRONG, [kind]), verdict
    assert says in verdict.faults[kind]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "says"),
    [
        (HEAD + "    dist.all_reduce(tensor)\n", "all-reduce is called over neither `inside` nor `between`"),
        (RIGHT_ONE.replace("// per_node", "// dist.get_world_size(between)"), "2 shares of 8 elements are not the 24"),
        (RIGHT_ONE.replace("group=inside", "group=between"), "reduce-scatter over `between`"),
        (RIGHT_ONE.replace("numel()", "numel"), "raises TypeError in line 7"),
    ],
)
def test_what_raises_is_told_with_its_line(code, says):
    verdict = judged(code)
    assert verdict.outcome == RAISED and says in "".join(verdict.faults.values()), verdict


@pytest.mark.slow
def test_ranks_that_wait_are_waited_for_no_longer_than_asked():
    verdict = judged(RIGHT_ONE.replace(GATHER, f"    if dist.get_rank():\n    {GATHER}"), patience_s=3.0)
    assert verdict.outcome == HUNG, verdict


@pytest.mark.slow
@needs_namespaces
def test_a_right_all_reduce_is_timed_over_two_nodes_and_stands_in_the_table_as_yours(two_nodes):
    assert lab.check(NAME).outcome == UNANSWERED
    answers.save(f"beyond_the_node.{NAME}", RIGHT_ONE)
    verdict = lab.check(NAME)
    assert verdict.outcome == RIGHT and not any("Not tried" in note for note in verdict.notes), verdict
    counted, took = verdict.merits[-2:]
    assert counted.startswith("on 2 nodes, in an all-reduce of 1 MiB, a node's") and "one flat ring's" in took
    plan = lab.Messages.small(kib=(64, 256), link_mbit=(1000,), yours=lab.yours(NAME))
    gain = lab.levels_gain(launch_or_replay(plan, lab.RECORDED["messages"]))
    assert (gain["yours_over_two"] - 1).abs().max() < 0.1 and (gain["yours_ms"] > 0).all()


def test_without_nodes_the_verdict_on_ranks_stands_and_says_why(monkeypatch):
    monkeypatch.setattr(launching, "why_replayed", lambda: "only root may make them")
    answers.save(f"beyond_the_node.{NAME}", RIGHT_ONE)
    verdict = lab.check(NAME)
    assert verdict.outcome == RIGHT and len(verdict.merits) == 2
    assert verdict.notes[0] == "Not tried over several nodes: only root may make them."


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"LABKIT_CLUSTER": "hand"}, "LABKIT_CLUSTER=hand has no nodes yet"),
        ({"LABKIT_CLUSTER": "slurm"}, "LABKIT_CLUSTER=slurm has no nodes yet"),
        ({"SLURM_JOB_ID": "7"}, ""),
    ],
)
def test_a_check_waits_for_nobody_who_allocates_nodes_or_pastes_lines(monkeypatch, environment, says):
    for name in ("LABKIT_CLUSTER", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert launching.why_no_nodes_now() == says
