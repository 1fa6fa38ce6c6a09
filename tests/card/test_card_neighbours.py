"""Cards of one node with real launches: quiet, beside processes that keep its cores busy, and on a single core."""

import os
import subprocess
import sys
import time

import pytest

from labkit.card.cards import Card
from labkit.card.compare import changed_conditions
from labkit.node.comparability import PRESSURE_POINTS
from labkit.node.host import cpu_pressure

pytestmark = pytest.mark.slow

BURN = ["nice", "-n", "19", sys.executable, "-c", "while True: pass"]  # other tests may run on this node, too
COUNTED = cpu_pressure() is not None  # whether this kernel counts who waits for a core
PRESSED_SECONDS = 6.0  # the kernel averages over 10 s: after 6 s it tells nearly half


def made(folder, *prefix: str) -> Card:
    """Make a card of one lab in a process of its own, and return it."""
    settings = {"LABKIT_RUNS": str(folder), "LABKIT_PROGRESS": "0"}
    call = [*prefix, sys.executable, "-m", "labkit.card", "topology"]
    done = subprocess.run(call, env=os.environ | settings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return Card.load(folder / "report" / "card.json")


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """Return a card of the node as it is."""
    return made(tmp_path_factory.mktemp("quiet"))


def test_a_card_on_one_core_says_so(quiet, tmp_path):
    if quiet.node["cores"] == 1:
        pytest.skip("this node has one core")
    core = min(os.sched_getaffinity(0))
    alone = made(tmp_path, "taskset", "-c", str(core))
    assert (alone.node["cores"], alone.conditions["cores"]) == (1, 1)
    assert f"the usable cores: {quiet.node['cores']} → 1" in changed_conditions(quiet, alone)
    assert changed_conditions(quiet, quiet) == []


@pytest.mark.skipif(not COUNTED, reason="this kernel does not count who waits for a core (PSI)")
def test_a_card_beside_busy_processes_says_so(quiet, tmp_path):
    neighbours = [subprocess.Popen(BURN) for _ in range(2 * quiet.node["cores"])]
    try:
        time.sleep(PRESSED_SECONDS)
        busy = made(tmp_path)
    finally:
        for one in neighbours:
            one.kill()
            one.wait()
    shares = [card.conditions["cpu_pressure_percent"] for card in (quiet, busy)]
    assert shares[1] > PRESSURE_POINTS
    waited = any("waited for a core" in line for line in changed_conditions(quiet, busy))
    assert waited == (abs(shares[1] - shares[0]) > PRESSURE_POINTS)  # this node may be busy already
    assert not any("usable cores" in line for line in changed_conditions(quiet, busy))
