"""The claims of reports that lab 09 reads: figures in their reasons, and verdicts that follow the printed table."""

import pytest

from labkit.claims import claims
from labkit.node import limits
from labkit.tables.published import published
from labkit.tables.resnet import PARAMETERS
from lessons import collectives
from lessons.collectives.claims import communication


def test_figures_in_the_reasons():
    largest = collectives.published_times(published("all_reduce")).query("backend == 'nccl' and megabytes == 1000")
    link = limits.ring_bus_limit_gb_per_s(limits.spec("Tesla V100-SXM2-32GB")) / 6
    pair = largest.set_index("processes")["bus_gb_per_s"][2]
    assert (pair / link, 1 / link) == (pytest.approx(0.09, abs=5e-3), pytest.approx(0.04, abs=2e-3))
    seconds = published("all_reduce").query("backend == 'nccl' and processes == 2").set_index("megabytes")["seconds"]
    assert seconds[1000] - seconds[1] == pytest.approx(0.060, abs=5e-4) and round(seconds[1], 2) == 0.36
    assert communication()["gradients_gb"].iloc[0] == pytest.approx(782 * 4 * PARAMETERS / 1e9)


def test_a_time_above_the_links_least_stays_open():
    """A limit refutes no longer time: what else the printed clock held is not said."""
    holds = claims(collectives).set_index("claim")["holds"]
    assert [name for name, verdict in holds.items() if verdict is False] == ["exchanged_bytes"]
    assert holds["small_message"] is None and holds["growth_with_size"] is None


def test_times_of_a_ring_hold(edited_claims):
    def ring(rows):
        n, megabytes = rows["processes"], rows["megabytes"]
        return rows.assign(seconds=2 * (n - 1) * 20e-6 + 2 * (n - 1) / n * megabytes / 1e3 / 120)

    table = edited_claims(collectives, "all_reduce", ring)
    assert table["holds"][["small_message", "growth_with_size", "rate_of_the_links"]].all()


def test_times_below_the_links_least_do_not_hold(edited_claims):
    table = edited_claims(collectives, "all_reduce", lambda rows: rows.assign(seconds=rows["megabytes"] / 1e6))
    assert table["holds"]["rate_of_the_links"] is False


def test_a_bandwidth_of_gradients_holds(edited_claims):
    needed = (communication()["gradients_gb"] / communication()["communication_seconds"]).to_numpy()
    table = edited_claims(
        collectives, "resnet_compute_communication", lambda rows: rows.assign(bandwidth_gb_per_second=needed)
    )
    assert table["holds"]["exchanged_bytes"]
