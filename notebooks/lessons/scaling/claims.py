"""What the report on ResNet-18 over more GPUs claims, recomputed from its own tables and from arithmetic."""

from __future__ import annotations

import math

import pandas as pd

from labkit.provenance import fact
from labkit.tables.claims import Claim, Figure, Verdict, claim
from labkit.tables.published import published
from labkit.tables.resnet import candidates, published_bandwidth
from labkit.theory.images import TRAINING
from lessons.scaling.tables.reading import published_shares, published_speedups
from lessons.scaling.theory import model

_REPORT = "hpml4"
_NEAR = 0.02  # of a printed figure: what rounding and another run explain
_PREVIOUS = {128: 32, 512: 128}  # batches: each printed speed-up is over the batch before, at the same number of GPUs
_BUFFER_KINDS = 2  # of a broadcast: float32 statistics and integer counts


def _speedups() -> pd.DataFrame:
    return published_speedups(published("resnet_speedup")).set_index(["batch_per_gpu", "gpus"])


def _shares() -> pd.DataFrame:
    table = published_shares(published("resnet_compute_communication"), published("resnet_speedup"))
    return table.set_index(["batch_per_gpu", "gpus"])


def _statement(name: str) -> float:
    return published("resnet_statements").set_index("statement")["value"][name].item()


def _equal(printed: float, recomputed: float) -> bool:
    return math.isclose(printed, recomputed, rel_tol=_NEAR)


def _speedup(batch: int, gpus: int, own: str) -> Claim:
    """Return the claim of one printed speed-up; `own` is what the report's own seconds give, for the reason."""
    many = f"{gpus} GPUs" if gpus > 1 else "1 GPU"
    source = f"Batch {batch} is the first of its column, so 1 was printed."
    if batch in _PREVIOUS:
        source = f"The printed value compares batch {batch} with batch {_PREVIOUS[batch]}, both on {many}."

    def compute() -> tuple[Figure, Figure, Verdict]:
        row = _speedups().loc[(batch, gpus)]
        return row["speedup_as_printed"], row["true_speedup"], _equal(row["speedup_as_printed"], row["true_speedup"])

    compute.__name__, compute.__doc__ = f"speedup_{batch}_on_{gpus}", f"{source} The report's own seconds give {own}."
    return claim(report=_REPORT, says=f"speed-up of {many} at batch {batch}", unit="×")(compute)


speedup_128_on_1 = _speedup(128, 1, "1: one GPU is as fast as itself. All nine printed values follow this rule")
speedup_32_on_2 = _speedup(32, 2, "1.58")
speedup_32_on_4 = _speedup(32, 4, "1.58, an efficiency of 39 %")
speedup_128_on_2 = _speedup(128, 2, "1.30")
speedup_128_on_4 = _speedup(128, 4, "1.37, an efficiency of 34 %")
speedup_512_on_2 = _speedup(512, 2, "1.66")
speedup_512_on_4 = _speedup(512, 4, "1.72, an efficiency of 43 %")


@claim(report=_REPORT, says="4 GPUs halve the steps of 2 GPUs, and so the epoch at batch 32", unit="s")
def halved_steps() -> tuple[Figure, Figure, Verdict]:
    """A rank's steps halve from 2 to 4 GPUs. With the same time per step the epoch would take 15.4 s. In the report it
    takes as long as on 2 GPUs. The report prints no steps, so it does not tell why: either the ranks did not share the
    images anew, or something that does not divide takes the time."""
    table = _speedups()["epoch_seconds"]
    return table[32, 4], table[32, 2] / 2, _equal(table[32, 4], table[32, 2] / 2)


@claim(report=_REPORT, says="4 GPUs halve the computing of 2 GPUs in an epoch", unit="×")
def compute_does_not_fall() -> tuple[Figure, Figure, Verdict]:
    """Each of 4 GPUs has half the images that each of 2 has, so its computing should halve. In the report it stays as
    long at all three batches. The report does not tell why: either the ranks did not share the images anew, or the
    clock shows something else."""
    compute = _shares()["compute_seconds"]
    ratios = compute.xs(4, level="gpus") / compute.xs(2, level="gpus")
    return f"{ratios.min():.2f} to {ratios.max():.2f} ×", 0.5, bool((ratios < 0.75).all())


@claim(report=_REPORT, says="communication in an epoch at batch 32 on 2 GPUs", unit="GB/s")
def communication_is_loading() -> tuple[Figure, Figure, Verdict]:
    """In every row the printed rate is 178 MB over the printed time, however many steps there are. That is a data set's
    size, so the time may be the data loader's. The all-reduces of 782 steps move 44.7 MB each through every link: in
    the printed 0.149 s that would need the recomputed rate."""
    table = published_bandwidth(published("resnet_compute_communication"))
    row = table[(table["batch_per_gpu"] == 32) & (table["gpus"] == 2)].iloc[0]
    return (
        row["bandwidth_gb_per_second"],
        row["needed_gb_per_s"],
        _equal(row["bandwidth_gb_per_second"], row["needed_gb_per_s"]),
    )


@claim(report=_REPORT, says="an epoch is computing and communication")
def neither() -> tuple[Figure, Figure, Verdict]:
    """Most of the epoch is in neither column. Waiting for images, copies, and the parts of a step that were not timed
    are the likely rest."""
    unexplained = _shares()["unexplained_share"]
    return "100 % of it", f"{100 * (1 - unexplained.max()):.0f} to {100 * (1 - unexplained.min()):.0f} %", False


@claim(report=_REPORT, says="4 GPUs beside 2 at batch 512, as its text says", unit="s")
def text_and_table() -> tuple[Figure, Figure, Verdict]:
    """The text says that 4 GPUs are half a second slower. The table says that they are faster by as much."""
    printed, table = _statement("seconds_added_by_4_gpus_at_512"), _speedups()["epoch_seconds"]
    found = (table[512, 4] - table[512, 2]).item()
    return printed, found, printed * found > 0


@claim(report=_REPORT, says="size of the data behind its bandwidth", unit="MB", digits=4)
def size_behind_bandwidth() -> tuple[Figure, Figure, Verdict]:
    """Bandwidth × time is the same size in every row: CIFAR-10's files on disk, in MiB. The text states another size.
    A step's gradients, which are what GPUs exchange, are 44.7 MB."""
    table = published_bandwidth(published("resnet_compute_communication"))
    sizes, printed = candidates(table), _statement("data_set_gb") * 1e3
    fitting = sizes[sizes["fits"].astype(bool)]
    recomputed = fact(table, "product_mb") if fitting.empty else fitting["megabytes"].iloc[0]
    return printed, recomputed, _equal(printed, recomputed)


@claim(report=_REPORT, says="bytes that GPUs exchange per step", unit="MB", digits=3)
def gradient_bytes() -> tuple[Figure, Figure, Verdict]:
    """The report takes the whole data set. A step's all-reduce has one float32 number for each parameter."""
    return _statement("data_set_gb") * 1e3, 4 * model().parameters / 1e6, False


@claim(report=_REPORT, says="`set_epoch` is synchronisation: its collectives")
def set_epoch_synchronises() -> tuple[Figure, Figure, Verdict]:
    """`set_epoch` stores a number on its own rank, from which the next order is shuffled. It calls no collective."""
    return "some", 0, False


@claim(report=_REPORT, says='besides gradients, DDP sends "locks": broadcasts per forward')
def other_messages() -> tuple[Figure, Figure, Verdict]:
    """DistributedDataParallel has no locks. In each forward it broadcasts BatchNorm's running statistics, one message
    per type of number. When it is made, it compares shapes and broadcasts the weights; once it rebuilds its buckets."""
    return "locks", _BUFFER_KINDS, False


@claim(
    report=_REPORT, says="training accuracy with 4 × 512 after 5 epochs, above the 75.36 % of 1 GPU", unit="%", digits=4
)
def large_batch_trains_better() -> tuple[Figure, Figure, Verdict]:
    """One run each, with other batches and no learning rates printed. For k times the batch, Goyal and others (2017)
    need k times the rate and a gradual warm-up. Five epochs at 4 × 512 have 125 steps, so this cannot be decided."""
    rows = published("resnet_accuracy")
    return rows["train_accuracy_percent"].max(), f"{5 * math.ceil(TRAINING / 2048)} steps, 1 seed", None
