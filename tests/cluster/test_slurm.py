"""What Slurm says of a job, in sentences: from what its commands print, without a cluster."""

from __future__ import annotations

import subprocess

import pytest

from labkit import node
from labkit.cluster import slurm
from labkit.cluster.allocation import Allocation, own_allocation, running_job
from labkit.engine import launch_settings
from labkit.engine.errors import ClusterError

SHOWN = "JobId=7 JobName=labkit JobState={} Reason={} Dependency=(null) Partition=gpu TimeLimit=01:00:00 Restarts=0"


@pytest.fixture
def says(monkeypatch):
    """Return a function that sets what each of Slurm's commands prints, and its errors."""

    def to_say(error="", **printed):
        def run_command(*command, **_):
            return subprocess.CompletedProcess(command, int(bool(error)), printed.get(command[0], ""), error)

        monkeypatch.setattr(slurm, "run_command", run_command)

    return to_say


@pytest.mark.parametrize(
    ("state", "how"),
    [
        ("TIMEOUT", "reached its time limit of 01:00:00"),
        ("CANCELLED", "was cancelled from outside"),
        ("PREEMPTED", "was preempted"),
        ("NODE_FAIL", "lost a node"),
        ("PENDING", "was put back into the queue"),
        ("WEIRD_STATE", "is in the state WEIRD_STATE"),
    ],
)
def test_each_end_of_a_job_has_its_sentence(says, state, how):
    says(scontrol=SHOWN.format(state, "None"))
    assert how in slurm.job("7").how_it_ended()


def test_a_job_that_slurm_has_forgotten_is_told(says):
    says(error="slurm_load_jobs error: Invalid job id specified")
    assert slurm.job("7").how_it_ended() == "Slurm does not know job 7 any more"


def test_a_controller_that_does_not_answer_is_told(says):
    says(error="slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    with pytest.raises(ClusterError, match=r"Slurm does not answer: .*Unable to contact"):
        slurm.job("7")


def test_slurms_commands_do_not_see_the_job_of_the_kernel(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "8")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    assert "SLURM_NTASKS" not in slurm.clean_environment()
    assert slurm.clean_environment()["SLURM_CONF"] == "/etc/slurm/slurm.conf"


@pytest.mark.parametrize("state", ["CONFIGURING", "SUSPENDED"])
def test_a_launch_waits_for_an_allocation_whose_nodes_boot_until_its_limit(says, state):
    says(scontrol=SHOWN.format(state, "None"))
    told = []
    with pytest.raises(ClusterError, match=rf"job 7 .* does not run yet \({state.lower()}\): waited for 0 s"):
        running_job(Allocation("7", 2), told.append, 0.0)
    assert len(told) == 1


@pytest.mark.parametrize(
    ("job", "sinfo", "why", "options"),
    [
        ({}, "cpu* (null)\nmix gpu:h100:8(S:0-1)\n", "in no Slurm", "--partition=mix --gpus-per-node=8 --time=60"),
        ({"SLURM_JOB_ID": "7", "SLURM_NNODES": "2"}, "a* gpu:4\nb gpu:8\n", "has 2", "--gpus-per-node=4 --time=60"),
        ({"SLURM_JOB_ID": "7"}, "a* (null)\n", r"\(job 7\) has 1", "--time=60"),
    ],
)
def test_without_the_nodes_one_sentence_gives_the_lines_to_type(says, monkeypatch, job, sinfo, why, options):
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    says(sinfo=sinfo)
    line = f"sbatch --nodes=3 {options} --wrap \"make run ARGS='09_collectives --nodes 3'\""
    with pytest.raises(
        ClusterError, match=rf"wants 3 nodes, and .*{why}.*: type `salloc --nodes=3 {options}`.*{line}`$"
    ):
        own_allocation(3, "collectives")


@pytest.mark.parametrize(("asked", "gpus"), [("4", 4), ("h100:4", 4), ("a100:2,l4:1", 3)])
def test_a_shell_of_salloc_on_a_login_node_counts_the_gpus_that_it_asked_for(monkeypatch, asked, gpus):
    monkeypatch.setenv("SLURM_GPUS_PER_NODE", asked)
    monkeypatch.setenv("LABKIT_NODES", "2")
    monkeypatch.delenv("LABKIT_CLUSTER", raising=False)
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    assert launch_settings.gpus_of_a_node() == gpus
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    assert launch_settings.gpus_of_a_node() == len(node.here().gpus)
