"""Fixtures: a Slurm cluster of two nodes on this machine, and a kernel's environment in an allocation of it."""

import os

import pytest
from node_faults import MOST_SECONDS, failure, nothing_left
from two_nodes import TwoNodes, why_not

from labkit.cluster import session_cache
from labkit.cluster.session import NodesSession
from labkit.repository import REPOSITORY

# What a file's tests launch on nodes, named before the first launch, so that stations, which start slowly, serve all of
# it: the faulty lab, and what the file names as LESSONS. A lesson's libraries would double the time of each start.
FAULTY = "faults_worker"


@pytest.fixture(scope="session")
def cluster():
    """The cluster, for all tests of one process; skipped, with its reason, where none can be started."""
    if reason := why_not():
        pytest.skip(reason)
    nodes = TwoNodes()
    yield nodes
    nodes.end()


@pytest.fixture
def elsewhere(request, tmp_path, monkeypatch):
    """Runs go to the test's own folder, and workers find the faulty lab of the launcher's tests."""
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LABKIT_PROGRESS", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY / "tests" / "engine"), str(REPOSITORY)]))

    lessons = [f"lessons.{name}" for name in getattr(request.module, "LESSONS", ())]

    def stations(modules, *given):
        return NodesSession(tuple(dict.fromkeys((*modules, FAULTY, *lessons))), *given)

    monkeypatch.setattr(session_cache, "NodesSession", stations)


@pytest.fixture
def login(cluster, tmp_path, monkeypatch, elsewhere):
    """The environment of a kernel in no allocation; afterwards no job and no station is left. Returns its settings."""
    for name, value in cluster.variables.items():
        monkeypatch.setenv(name, value)
    settings = tmp_path / "cluster.toml"
    settings.touch()
    monkeypatch.setenv("LABKIT_CLUSTER_FILE", str(settings))
    yield settings
    kept = session_cache._Cache.session
    if kept is None or not kept.alive():
        session_cache.leave()
        cluster.release_all()


@pytest.fixture
def allocation(cluster, login, monkeypatch):
    """The environment of a kernel in an allocation of two nodes, whose stations serve several tests; its number."""
    kept = session_cache._Cache.session
    number = kept.allocation.number if kept is not None and kept.alive() else None
    number = number or cluster.allocate(2)
    monkeypatch.setenv("SLURM_JOB_ID", number)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    return number


@pytest.fixture(scope="module", autouse=True)
def no_station_left():
    """After the tests of a file no station is left."""
    yield
    session_cache.leave()


@pytest.fixture
def failed(record_property):
    """Return a function that launches a plan which fails; what it returns, and when, goes into the test's report."""

    def fails(kind, plan, later=None, *, most_s=MOST_SECONDS, at_once=True, **options):
        error, seconds = failure(kind, plan, later, most_s, **options)
        record_property("seconds", round(seconds, 2))
        record_property("sentence", error.sentence)
        if at_once:
            nothing_left(error.run)
        return error

    return fails
