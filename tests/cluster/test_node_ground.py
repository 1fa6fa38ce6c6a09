"""What a run on two nodes stands on is taken away: their network, the file system of its folder, one version of all.

Stations start slowly. So tests that need stations of the same settings follow each other, and what ends its stations is
followed by a launch that needs new ones anyway.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time

import pytest
from faults_plan import Faults
from launches import soon, the_run
from node_faults import when_it_measures, works_again
from two_nodes import SLURM_FORGETS_S

from labkit import launch
from labkit.cluster import session_cache
from labkit.engine import processes
from labkit.engine.errors import ClusterError, GroundLost, NowhereToWrite, WorkerHung, WorkerRaised
from labkit.repository import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # each starts stations twice, slowly on a loaded machine
PATIENCE_S = 6.0
# Longer than a write is waited for where the folder is looked at. TCP tries again 6.2 s after a cut,
# and then only 12.6 s after it.
STALL_SECONDS = 5.5
MOST_SECONDS = (
    100.0  # patience, the look at the folder and the stacks of ranks that do not answer come before the error
)


@pytest.fixture
def networks(cluster):
    """The networks between the nodes, whole again afterwards."""
    if not cluster.linked:
        pytest.skip("this machine gives no network namespaces: the nodes have no network to cut")
    yield cluster.networks
    cluster.networks.cut_link(False)
    cluster.networks.cut_workers(False)


@pytest.fixture
def own_network(networks, login):
    """Workers use a network that Slurm does not use."""
    login.write_text(f'{login.read_text()}\ninterface = "{networks.wire}"\n')
    return networks


@pytest.fixture(scope="module")
def mounted(cluster, tmp_path_factory):
    """A file system of its own: 16 MB of ext4."""
    image, folder = tmp_path_factory.mktemp("image") / "image", tmp_path_factory.mktemp("mounted")
    with image.open("wb") as file:
        file.truncate(16 * 2**20)
    for command in (["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(folder)]):
        if not shutil.which(command[0]) or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("no file system can be made and mounted here")
    yield folder
    session_cache.leave()  # stations may have files open there
    soon(lambda: subprocess.run(["umount", str(folder)], capture_output=True).returncode == 0)


@pytest.fixture
def disk(mounted, tmp_path, monkeypatch, allocation):
    """A folder on that file system, for the runs of the test."""
    (folder := mounted / tmp_path.name).mkdir()
    monkeypatch.setenv("LABKIT_RUNS", str(folder / "runs"))
    yield folder
    freeze(folder, False)
    (folder / "rest").unlink(missing_ok=True)


@pytest.fixture
def whole_disk(disk, mounted):
    """Such a folder; the one which the stations and the kernel share lies on that file system, too."""
    kept = session_cache._Cache.session
    if kept and not kept.base["LABKIT_RUNS"].startswith(str(mounted)):
        session_cache.leave()
    return disk


def freeze(folder, frozen: bool = True) -> None:
    """Have every write to the file system wait, as while a server does not answer; or let them go on."""
    subprocess.run(["fsfreeze", "--freeze" if frozen else "--unfreeze", str(folder)], capture_output=True)


def fill(folder, but: int = 0) -> None:
    """Leave no byte free, or so many."""
    rest = folder / "rest"
    for size in (4096, 1):
        with contextlib.suppress(OSError), rest.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(size))
    os.truncate(rest, rest.stat().st_size - but)


def on_second_node(settings, line: str) -> None:
    settings.write_text(f"{settings.read_text()}\nsetup = ['''[ $SLURMD_NODENAME = n2 ] && {line}''']\n")


@pytest.mark.parametrize(("but", "late"), [(0, False), (2 * 1024, False), (2 * 1024, True)])
def test_a_disk_that_is_full_from_the_start_is_told_before_any_worker_starts(
    whole_disk, cluster, login, allocation, but, late
):
    """Full for the kernel; or with room for the kernel's files, and none for what the stations tell.

    A station that comes late finds no folder: the first has ended, and removed it.
    """
    session_cache.leave()
    (whole_disk / "runs").mkdir()
    if late:
        on_second_node(login, "sleep 4")
    fill(whole_disk, but)
    told = r"cannot be written: No space.* Free some space|node \d \(n\d\) cannot write .*: No space left on device"
    with pytest.raises((NowhereToWrite, ClusterError), match=told):
        launch(Faults(), nodes=2)
    soon(lambda: not cluster.stations(), SLURM_FORGETS_S)
    assert not list((whole_disk / "runs").iterdir())


def test_workers_that_no_longer_reach_each_other_are_told_with_where_each_stands(
    own_network, allocation, tmp_path, failed
):
    cutting = when_it_measures(tmp_path, own_network.cut_workers)
    error = failed(WorkerHung, Faults(faults=("visible",) * 200), cutting, most_s=MOST_SECONDS, patience_s=PATIENCE_S)
    assert len(error.run.rows) >= 4
    every_rank_waits(error, own_network.wire)
    own_network.cut_workers(False)
    works_again()


def every_rank_waits(error, interface: str) -> None:
    """The error says where each rank waits, and which network to check; no node is silent."""
    assert error.sentence.startswith("no rank made progress for 6 s at point")
    stands = re.findall(r"rank (\d) (?:waits|has returned, and waits)", error.sentence)
    assert stands == ["0", "1", "2", "3"]
    advice = f"Where all wait in the same call, check the network between the nodes ({interface}), or set `interface`"
    assert advice in error.sentence


def test_a_stall_of_the_network_of_all_is_outlived(networks, allocation, tmp_path):
    """That of the workers, and Slurm's own traffic, too: a launch lasts longer, and measures all."""

    def stall():
        networks.cut_link()
        time.sleep(STALL_SECONDS)
        networks.cut_link(False)

    stalling = when_it_measures(tmp_path, stall)
    run = launch(Faults(faults=("visible",) * 5), nodes=2)
    stalling.finish()
    assert run.status["state"] == "finished" and run.tally()["points"] == 5
    assert run.status["seconds"] > STALL_SECONDS


def test_nodes_that_no_network_joins_are_told_and_both_are_cleared(networks, allocation, tmp_path, failed):
    """Slurm's own traffic is cut, too: the stations hear and tell through the folder of the runs."""
    cutting = when_it_measures(tmp_path, networks.cut_link)
    error = failed(WorkerHung, Faults(faults=("visible",) * 200), cutting, most_s=MOST_SECONDS, patience_s=PATIENCE_S)
    every_rank_waits(error, networks.link)
    networks.cut_link(False)
    works_again()


def test_connections_that_all_end_are_told_with_the_rank_that_told_it_first(allocation, failed):
    error = failed(WorkerRaised, Faults(faults=("closed",)))
    assert f"{error.run.rank_name(error.rank)} raised ConnectionResetError" in error.sentence
    assert "No rank failed by itself: check the network between the nodes (" in error.sentence


def test_a_node_that_stands_still_is_told_as_silent(cluster, allocation, tmp_path, failed):
    """Nothing on the second node runs any more: neither its station nor a worker."""
    stopped = []

    def stop():
        for station in cluster.stations("n2"):
            stopped.extend([station, *station.children(recursive=True)])
        for process in stopped:
            process.suspend()

    stopping = when_it_measures(tmp_path, stop)
    error = failed(WorkerHung, Faults(faults=("visible",) * 200), stopping, most_s=MOST_SECONDS, patience_s=PATIENCE_S)
    assert error.node == 1 and len(error.run.rows) >= 4
    assert error.sentence.startswith("node 1 (n2) is silent: no rank made progress for 6 s at point")
    assert "rank 3 is past 'point', and answers no signal" in error.sentence and "look there first" in error.sentence
    assert re.search(r"rank 0 (waits|has returned)", error.sentence)
    soon(lambda: not any(process.is_running() for process in stopped), SLURM_FORGETS_S)
    works_again()


def test_a_slow_file_system_is_outlived(disk, allocation):
    """Each write takes up to a second, for two seconds; then one takes five."""

    def slow():
        for seconds in (*[1.0] * 2, 5.0):
            freeze(disk)
            time.sleep(seconds)
            freeze(disk, False)
            time.sleep(0.2)

    slowing = when_it_measures(disk, slow)
    run = launch(Faults(faults=("visible",) * 5), nodes=2)
    slowing.finish()
    assert run.status["state"] == "finished" and run.tally()["points"] == 5


def test_a_disk_that_is_full_for_the_second_node_alone_is_told_with_it(allocation, failed):
    error = failed(WorkerRaised, Faults(faults=("none", "full"), rank=3))
    assert "rank 3 (node 1, n2) raised OSError: [Errno 28] No space left on device" in error.sentence
    assert "Free some space, or set LABKIT_RUNS" in error.sentence
    works_again()


def test_a_run_folder_that_is_removed_is_told(allocation, tmp_path, failed):
    def remove():
        the_run(tmp_path, rows=4).folder.rename(tmp_path / "elsewhere")

    error = failed(GroundLost, Faults(faults=("sleep",)), when_it_measures(tmp_path, remove))
    assert "was removed, or moved elsewhere" in error.sentence
    works_again()


def test_a_disk_that_fills_up_is_told(whole_disk, allocation, failed):
    filling = when_it_measures(whole_disk, lambda: fill(whole_disk))
    error = failed((GroundLost, WorkerRaised), Faults(faults=("visible",) * 400), filling)
    assert "cannot be written: No space left on device. Free some space, or set LABKIT_RUNS" in error.sentence
    assert len(error.run.rows) >= 4
    (whole_disk / "rest").unlink()
    works_again()


def test_a_file_system_that_stands_still_is_told_and_the_rows_are_kept(whole_disk, cluster, allocation, failed):
    freezing = when_it_measures(whole_disk, lambda: freeze(whole_disk))
    plan = Faults(faults=("visible",) * 200)
    error = failed(GroundLost, plan, freezing, most_s=MOST_SECONDS, patience_s=PATIENCE_S, at_once=False)
    assert f"the run's folder {error.run.folder} cannot be written (a write has waited for 5 s" in error.sentence
    assert error.node is None and len(error.run.rows) >= 4
    freeze(whole_disk, False)  # what waits in a write hears no signal before that
    soon(lambda: not cluster.stations(), SLURM_FORGETS_S)
    soon(lambda: not processes.members(error.run))  # a worker that waited in a write may run a while after its station
    assert soon(error.run.status_file.exists)
    works_again()


def test_nodes_with_different_versions_of_torch_are_refused(login, allocation, tmp_path):
    other = tmp_path / "other" / "torch-1.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
    on_second_node(login, f"export PYTHONPATH={other.parent}:$PYTHONPATH")
    with pytest.raises(ClusterError, match=r"same version of torch: .* on n1, 1\.0 on n2"):
        launch(Faults(), nodes=2)


def test_nodes_with_different_versions_of_labkit_are_refused(login, allocation, tmp_path):
    """The second node has a checkout of its own, in which a lab differs in one line."""
    other = tmp_path / "other"
    for folder in ("labkit", "notebooks/lessons"):
        shutil.copytree(REPOSITORY / folder, other / folder, ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "notebooks" / "lessons" / "start" / "worker.py").open("a") as file:
        file.write("# a line\n")
    on_second_node(login, f"export PYTHONPATH={other}:$PYTHONPATH")
    with pytest.raises(ClusterError, match=r"same version of labkit: n2 has another one than this kernel"):
        launch(Faults(), nodes=2)


def test_an_interface_that_a_node_lacks_is_told_with_those_it_has(login, allocation):
    login.write_text(login.read_text() + '\ninterface = "ib0"\n')
    with pytest.raises(ClusterError, match=r"node 0 \(n1\): it has no interface 'ib0'.*it has lo"):
        launch(Faults(), nodes=2)
