"""What Slurm says of a job, in sentences: from what its commands print, without a cluster."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from labkit.cluster import job_script, slurm
from labkit.cluster.allocation import Allocation, submit_job, wait_for_nodes
from labkit.engine.errors import ClusterError
from labkit.engine.launch_settings import Settings

SHOWN = "JobId=7 JobName=labkit JobState={} Reason={} Dependency=(null) Partition=gpu TimeLimit=01:00:00 Restarts=0"


@pytest.fixture
def says(monkeypatch):
    """Return a function that sets what each of Slurm's commands prints, and its errors."""

    def to_say(error="", **printed):
        def run_command(*command, **_):
            return subprocess.CompletedProcess(command, int(bool(error)), printed.get(command[0], ""), error)

        monkeypatch.setattr(slurm, "run_command", run_command)

    return to_say


def test_a_waiting_job_tells_place_and_reason(says):
    says(scontrol=SHOWN.format("PENDING", "Resources"), squeue="5\n7\n9\n")
    told = slurm.job("7").why_it_waits()
    assert told == "job 7 is pending, place 2 of 3 in partition gpu (Resources: the nodes are busy)"


def test_a_job_that_can_never_start_is_told_from_one_that_waits(says):
    says(scontrol=SHOWN.format("PENDING", "PartitionTimeLimit"))
    assert "lower `time_minutes`" in slurm.job("7").why_never()
    says(scontrol=SHOWN.format("PENDING", "Priority"))
    assert slurm.job("7").why_never() == ""


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


def test_a_wait_that_is_too_long_ends(says):
    says(scontrol=SHOWN.format("PENDING", "Resources"), squeue="7\n")
    told = []
    with pytest.raises(ClusterError, match=r"no nodes came within 0 s: job 7 is pending, place 1 of 1"):
        wait_for_nodes(Allocation("7", 2, submitted=True), told.append, 0.0)
    assert len(told) == 1


@pytest.mark.parametrize("option", ["qos=long", "--", "--time 3"])
def test_an_option_of_sbatch_that_is_none_is_refused(tmp_path, option):
    with pytest.raises(ClusterError, match="write each option as"):
        submit_job(2, Settings(sbatch=(option,)), tmp_path)


@pytest.mark.parametrize(("until_s", "ends_s"), [(0, 120), (60, 90), (600, 630)])
def test_a_job_keeps_its_nodes_for_as_long_after_its_last_station_as_it_was_told(monkeypatch, until_s, ends_s):
    """The clock is made up; a station is there `until_s`, and then the job waits 30 s for another one."""
    clock = [0.0]
    sleep = lambda seconds: clock.append(clock.pop() + seconds)  # noqa: E731
    monkeypatch.setattr(job_script, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    monkeypatch.setattr(job_script, "count_steps", lambda job: int(clock[0] <= until_s))
    job_script.keep_nodes("7", 30.0)
    assert clock[0] == ends_s
