"""What is doubted in the published tables comes from their numbers: other numbers, other sentences."""

import pandas as pd
import pytest

from labkit.labs import collectives
from labkit.tables.published import published

TIMES, RESNET = "all_reduce", "resnet_compute_communication"


def doubts(all_reduce: pd.DataFrame | None = None, resnet: pd.DataFrame | None = None) -> list[str]:
    """Give the sentences about two tables, the published ones where none is given."""
    times = collectives.published_times(published(TIMES) if all_reduce is None else all_reduce)
    bandwidth = collectives.published_bandwidth(published(RESNET) if resnet is None else resnet)
    said = collectives.doubt_reports(
        times, collectives.published_fits(times), bandwidth, collectives.candidates(bandwidth)
    )
    return [line.removeprefix("- ") for line in said.data.splitlines()]


def with_times(seconds) -> pd.DataFrame:
    """Give the published all-reduces with other times: `seconds(processes, megabytes)` for NCCL's."""
    table = published(TIMES).copy()
    nccl = table["backend"] == "nccl"
    pairs = zip(table.loc[nccl, "processes"], table.loc[nccl, "megabytes"], strict=True)
    table.loc[nccl, "seconds"] = [seconds(*pair) for pair in pairs]
    table.attrs = published(TIMES).attrs
    return table


def a_ring(processes, megabytes, alpha_s=20e-6, gb_per_s=120.0):
    return 2 * (processes - 1) * alpha_s + 2 * (processes - 1) / processes * megabytes / 1e3 / gb_per_s


def test_the_published_tables():
    size, line, share, ranks, gloo, product, gradients = doubts()
    assert size == (
        "all_reduce.csv: 1 000 times the bytes take 1.2× the time (365 ms and 425 ms with two processes): **what was "
        "timed is hardly the transfer.**"
    )
    assert "α is 374 ms to 703 ms, where the smallest message takes 365 ms to 702 ms: no link waits that long" in line
    assert "**Start-up is inside the clock**" in line
    assert "1.97 GB/s to 2.36 GB/s, 1.3 % to 1.5 % of a V100's NVLinks: possible, and no measure of the links." in share
    assert (
        "grows 1.9×, the largest's 2.0×" in ranks and "5.0×, its transfer 1.7×: **both grow alike, as no ring" in ranks
    )
    assert gloo.startswith("Gloo takes 3.1× to 3.5× NCCL's time at 1 000 MB") and "its own rate cannot be told" in gloo
    assert "178.0 MB in all 6 rows" in product and "CIFAR-10's files on disk, in MiB (177.6), and not" in product
    assert "exchanges 35.0 GB of gradients in 782 steps; in the printed 149 ms that would need 234 GB/s" in gradients
    assert gradients.endswith("196× the printed 1.19 GB/s: **another quantity was timed.**")


def test_times_of_a_ring_are_not_doubted():
    size, line, share, ranks, *_ = doubts(with_times(a_ring))
    assert size.endswith(": **the time follows the size.**")
    assert "α is 40.0 µs to 200 µs" in line and line.endswith(": a latency that a call may have.")
    assert share.endswith("76 % to 77 % of a V100's NVLinks: what links of that kind reach.")
    assert ranks.endswith(": only the transfer is a ring's.")


def test_times_that_follow_the_size():
    size, line, *_ = doubts(with_times(lambda processes, megabytes: megabytes / 1e3 / 100))
    assert size.endswith(": **the time follows the size.**")
    assert "Start-up" not in line


def test_a_ring_of_hops_alone():
    ranks = doubts(with_times(lambda processes, megabytes: 2 * (processes - 1) * 0.1))[3]
    assert ranks.endswith("the largest's 5.0×; a ring's latency would grow 5.0×, its transfer 1.7×: as a ring does.")


def test_the_impossible_is_said():
    share = doubts(with_times(lambda processes, megabytes: megabytes / 1e3 / 1000))[2]
    assert "**some time is shorter than the links allow.**" in share


def test_gloo_at_several_sizes_or_not_at_all():
    table = published(TIMES)
    gloo = table[table["backend"] == "gloo"]
    more = pd.concat([table, gloo.assign(megabytes=100.0, seconds=0.2)], ignore_index=True)
    none = table[table["backend"] == "nccl"].reset_index(drop=True)
    for made in (more, none):
        made.attrs = table.attrs
    assert doubts(more)[4].endswith("over 2 sizes.")
    assert not any(sentence.startswith("Gloo") for sentence in doubts(none))


@pytest.mark.parametrize(
    ("product_mb", "said"),
    [(186.2, "CIFAR-10's files on disk, in MB (186.2), and not"), (160.0, "**a fixed number of bytes**, though none")],
)
def test_a_bandwidth_made_of_another_size(product_mb, said):
    table = published(RESNET).copy()
    table["bandwidth_gb_per_second"] = product_mb / 1e3 / table["communication_seconds"]
    table.attrs = published(RESNET).attrs
    assert said in doubts(resnet=table)[5]


def test_a_bandwidth_of_gradients_is_not_doubted():
    table = published(RESNET).copy()
    table.attrs = published(RESNET).attrs
    need = collectives.published_bandwidth(table)["needed_gb_per_s"]
    product, gradients = doubts(resnet=table.assign(bandwidth_gb_per_second=need).pipe(_sourced))[5:]
    assert product.endswith("MB: not one size.") and gradients.endswith("GB/s, as printed.")


def _sourced(table: pd.DataFrame) -> pd.DataFrame:
    table.attrs = published(RESNET).attrs
    return table
