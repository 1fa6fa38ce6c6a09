"""A kernel on a login node: a job is submitted, its place and reason are told, and nothing of it is left."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from faults_plan import Faults
from launches import soon
from node_faults import when_it_measures

from labkit import launch
from labkit.cluster import allocation, session_cache, slurm
from labkit.engine import progress
from labkit.engine.errors import ClusterError, NotStarted
from labkit.engine.launch_settings import Settings
from lessons import start

pytestmark = pytest.mark.slow


@pytest.fixture
def told(monkeypatch):
    """Return the lines that launches show below their bars."""
    lines = []
    monkeypatch.setattr(progress.ProgressBars, "show_waiting", lambda self, text: lines.append(text))
    return lines


def launched_beside(errors: list, *faults: str) -> threading.Thread:
    """Launch in a thread; what it raises goes to `errors`, its run too."""

    def go():
        try:
            errors.append(launch(Faults(faults=faults or ("none",)), nodes=2))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=go)
    thread.start()
    return thread


def test_a_kept_job_serves_the_next_launch(cluster, login, told):
    login.write_text(login.read_text().replace("keep_minutes = 0", "keep_minutes = 5"))
    first = launch(Faults(), nodes=2).status["job"]
    assert launch(Faults(), nodes=2).status["job"] == first
    session_cache.leave()
    soon(lambda: first not in cluster.jobs())


def test_a_kept_job_of_which_slurm_tells_nothing_is_given_back(cluster, login, monkeypatch):
    """Another lesson needs other stations; when Slurm then does not answer, nobody would ever end the job."""
    login.write_text(login.read_text().replace("keep_minutes = 0", "keep_minutes = 5"))
    job = launch(Faults(), nodes=2).status["job"]
    monkeypatch.setattr(slurm, "job", lambda number: (_ for _ in ()).throw(ClusterError("Slurm does not answer")))
    with pytest.raises(ClusterError, match="does not answer"):
        launch(start.Hello.small(gpus=1), nodes=2)
    monkeypatch.undo()
    soon(lambda: job not in cluster.jobs())


def test_a_job_waits_is_measured_and_given_back(cluster, login, told, tmp_path):
    """While the nodes are busy, place and reason are told. It cannot be requeued: started again, it finds no kernel."""
    other, done, refused = cluster.allocate(2, "--exclusive"), [], []

    def requeue():
        (number,) = cluster.jobs()
        with pytest.raises(AssertionError) as caught:
            cluster.command("scontrol", "requeue", number)
        refused.append(str(caught.value))

    requeueing = when_it_measures(tmp_path, requeue)
    waiting = launched_beside(done, "visible", "visible", "visible", "visible")
    soon(lambda: any("place 1 of 1 in partition lab (Resources: the nodes are busy)" in line for line in told))
    cluster.command("scancel", other)
    waiting.join(60)
    requeueing.finish()
    assert "disabled" in refused[0]
    (run,) = done
    assert run.status["state"] == "finished" and set(run.rows["node"]) == {0, 1}
    soon(lambda: run.status["job"] not in cluster.jobs())
    assert not list((login.parent / "runs").glob(".nodes-*"))


def test_a_job_that_is_cancelled_while_it_waits_is_told(cluster, login, told):
    other, done = cluster.allocate(2, "--exclusive"), []
    waiting = launched_beside(done)
    (number,) = soon(lambda: [each for each in cluster.jobs() if each != other])
    soon(lambda: any("pending" in line for line in told))
    cluster.command("scancel", number)
    waiting.join(60)
    assert isinstance(done[0], ClusterError)
    assert "was cancelled from outside (scancel)" in str(done[0]) and "before it had started" in str(done[0])


def test_an_interrupt_while_it_waits_gives_the_job_back(cluster, login, monkeypatch):
    other = cluster.allocate(2, "--exclusive")

    def interrupt(self, text):
        if "pending" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(progress.ProgressBars, "show_waiting", interrupt)
    with pytest.raises(NotStarted, match="nothing was started"):
        launch(Faults(), nodes=2)
    soon(lambda: cluster.jobs() == [other])


def test_a_partition_that_is_not_there_is_told_with_those_that_are(cluster, login):
    login.write_text('partition = "gpus"')
    with pytest.raises(ClusterError, match=r"invalid partition.*the partitions are .*lab, short, urgent"):
        launch(Faults(), nodes=2)
    assert cluster.jobs() == []


def test_a_job_that_can_never_start_is_given_back_at_once(cluster, login):
    login.write_text('partition = "short"\ntime_minutes = 20')
    with pytest.raises(ClusterError, match=r"time limit|PartitionTimeLimit") as caught:
        launch(Faults(), nodes=2, limit_s=100)
    assert "no nodes came within" not in str(caught.value), "it does not wait until its own limit"
    soon(lambda: cluster.jobs() == [])


def test_a_job_that_no_kernel_uses_any_more_ends_by_itself(cluster, login, monkeypatch):
    """The kernel may be killed while its job waits: then no station ever comes."""
    monkeypatch.setattr(allocation, "job_script", quick_job_script(login.parent))
    own_job = allocation.submit_job(1, Settings(partition="lab", time_minutes=5), login.parent / "jobs")
    soon(lambda: slurm.job(own_job.number).is_running)
    soon(lambda: slurm.job(own_job.number).state == "COMPLETED")


def quick_job_script(folder):
    """Return the module of the job's own process, with short patience."""
    from labkit.cluster import job_script

    text = Path(job_script.__file__).read_text(encoding="utf-8").replace("LOOK_SECONDS = 5.0", "LOOK_SECONDS = 0.2")
    file = folder / "hold.py"
    file.write_text(text.replace("FIRST_SECONDS = 120.0", "FIRST_SECONDS = 1.0").replace("max(keep_seconds", "max(0.0"))

    class Quick:
        __file__ = str(file)

    return Quick
