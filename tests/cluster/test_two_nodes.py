"""Launches over two real slurmd: the same plans and tables, rows of both nodes, one clock, nothing left."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest
from faults_plan import Faults
from launches import HERE, soon
from two_nodes import SLURM_FORGETS_S

from labkit import launch
from labkit.cluster import session_cache
from labkit.engine.errors import ClusterError, PlanError
from lessons import broadcast, collectives, ddp_from_scratch, start

pytestmark = pytest.mark.slow
LESSONS = ("start.worker", "broadcast.worker", "collectives.worker", "ddp_from_scratch.worker.steps")

# Of each lab a small plan, and a table that is made from its rows.
LABS = {
    "00": lambda: start.Hello.small(gpus=2),
    "02": lambda: broadcast.Sweep.small(gpus=2, mib=4, repeats=2, methods=("direct", "nccl")),
    "09": lambda: collectives.Sweep.small(
        gpus=2, repeats=2, sizes_kib=(4, 64), collectives=("all-reduce", "broadcast")
    ),
    "10": lambda: ddp_from_scratch.Implementations.small(gpus=2, repeats=2, seeds=(0,)),
}
TABLES = {
    "00": start.ranks,
    "02": broadcast.methods,
    "09": collectives.bandwidths,
    "10": ddp_from_scratch.implementations,
}


@pytest.mark.parametrize("number", LABS)
def test_a_lab_measures_all_its_points_on_two_nodes(number, allocation):
    run = launch(LABS[number](), nodes=2)
    assert run.status["state"] == "finished" and run.status["processes_left"] == 0
    assert run.plan.gpus == 4 and run.tally()["points"] == len(run.plan.points())
    rows = run.rows
    assert set(rows["status"]) == {"ok"}
    assert (rows["node"] == rows["rank"] // 2).all()
    assert "2 nodes" in run.source
    assert len(TABLES[number](run)) > 0


def test_ranks_of_both_nodes_know_their_nodes_conditions_and_clocks(allocation):
    run = launch(start.Hello.small(gpus=2), nodes=2)
    assert set(run.rows["sum_of_ranks"]) == {0 + 1 + 2 + 3}
    assert run.hosts == ("n1", "n2") and len(run.nodes) == 2
    assert [run.rank_name(rank) for rank in (0, 3)] == ["rank 0 (node 0, n1)", "rank 3 (node 1, n2)"]
    for node in (0, 1):
        conditions = run.conditions(node)
        assert not conditions.missing
        assert [each.rank for each in conditions.after.ranks] == [2 * node, 2 * node + 1]
        assert [each["point"] for each in conditions.points] == [0]
    first, second = run.status["clocks"]
    assert first == {"ahead_us": 0.0, "round_trip_us": 0.0}
    assert 0 < second["round_trip_us"] < 1e6
    half = second["round_trip_us"] / 2  # both slurmd share this machine's clock: more, the measurement cannot be wrong
    assert abs(second["ahead_us"]) <= half + 0.1


def test_stations_stay_warm_between_launches_and_leave_the_kernels_own_allocation(cluster, allocation):
    launch(Faults(), nodes=2)
    steps = cluster.steps()
    assert launch(Faults(), nodes=2).status["state"] == "finished"
    assert cluster.steps() == steps and len(steps) == 1
    session_cache.leave()
    soon(lambda: not cluster.steps() and not cluster.stations(), seconds=SLURM_FORGETS_S)
    assert allocation in cluster.jobs()


def test_more_nodes_than_the_allocation_has_are_refused_at_once(allocation):
    with pytest.raises(ClusterError, match=r"wants 3 nodes.*has 2.*salloc --nodes=3"):
        launch(Faults(), nodes=3)


def test_outside_of_an_allocation_the_lines_to_type_are_told_and_work(cluster, login, monkeypatch):
    """The first line in a shell; of the second one, Slurm says that it would take it."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    before = cluster.jobs()
    with pytest.raises(ClusterError, match="this kernel runs in no Slurm allocation: type `salloc ") as caught:
        launch(Faults(), nodes=2)
    assert cluster.jobs() == before
    in_a_shell, _, _, unattended = re.findall(r"`(.*?)`", str(caught.value))
    script = (
        "from faults_plan import Faults; from labkit import launch; print(launch(Faults(), nodes=2).status['state'])"
    )
    command = [*shlex.split(in_a_shell), sys.executable, "-c", script]
    done = subprocess.run(command, env=os.environ, cwd=HERE, capture_output=True, text=True, timeout=200)
    assert done.stdout == "finished\n", done.stderr
    cluster.command("sbatch", "--test-only", *shlex.split(unattended)[1:])


@pytest.mark.parametrize("nodes", [0, -1, 1.5, "two"])
def test_a_number_of_nodes_that_is_none_is_refused(nodes):
    with pytest.raises(PlanError, match="give a number of nodes"):
        launch(Faults(), nodes=nodes)


def test_a_plan_keeps_its_knobs_on_two_nodes_but_those_that_follow_from_the_workers():
    plan = collectives.Sweep.small(gpus=2, repeats=3)
    wider = plan.with_gpus(4)
    assert (plan.counts, wider.counts) == ((2,), (2, 3, 4))
    assert (wider.repeats, wider.size, wider.device) == (3, "small", plan.device)
