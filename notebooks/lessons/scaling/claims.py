"""What the report on ResNet-18 over more GPUs says, recomputed from its own tables, arithmetic and recorded runs."""

from __future__ import annotations

from typing import Any

import pandas as pd

from labkit.engine.run import replay
from labkit.provenance import fact
from labkit.tables.claims import Stated, undecided, within
from labkit.tables.published import published
from labkit.tables.resnet import published_bandwidth
from lessons.scaling.tables import exchange, messages, published_shares, published_speedups

REPORT = "hpml4"
SAME = within(1.02)  # of a printed figure: what rounding explains
_BATCHES = (32, 128, 512)
_RECORDED = "h200x2/scaling"


def _joined(values: Any, digits: int = 2) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in values)


def _speedups() -> pd.DataFrame:
    return published_speedups(published("resnet_speedup")).set_index(["batch_per_gpu", "gpus"])


def _shares() -> pd.DataFrame:
    table = published_shares(published("resnet_compute_communication"), published("resnet_speedup"))
    return table.set_index(["batch_per_gpu", "gpus"])


def _statement(name: str) -> Any:
    return published("resnet_statements").set_index("statement")["value"][name]


def _data_set_mb() -> float:
    return 1e3 * float(_statement("data_set_gb"))


def _column(name: str, gpus: int) -> list[float]:
    """Return a column of the report's speed-ups, by batch."""
    return [_speedups().loc[(batch, gpus), name] for batch in _BATCHES]


def _all_same(gpus: int) -> bool:
    return all(map(SAME, _column("speedup_as_printed", gpus), _column("true_speedup", gpus)))


def _speedup_row(gpus: int) -> dict[str, Any]:
    """Return the claim on the printed speed-ups of this many GPUs, at the three batches."""
    return {
        "name": f"speedups_on_{gpus}",
        "where": "table of speed-ups",
        "says": f"Speed-ups of {gpus} GPUs at batch 32, 128 and 512 per GPU",
        "printed": lambda: _joined(_column("speedup_as_printed", gpus)),
        "recomputed": lambda: _joined(_column("true_speedup", gpus)),
        "recomputes": "one GPU's seconds over these",
        "holds": lambda *_: _all_same(gpus),
        "unit": "×",
        "reason": "Each printed value compares a batch with the one before, on as many GPUs: so 1.05 for one GPU.",
    }


def _seconds(gpus: int, batch: int = 32) -> float:
    return _speedups().loc[(batch, gpus), "epoch_seconds"]


def _compute_of_four() -> str:
    """Return the printed computing of 4 GPUs over that of 2, over the batches."""
    compute = _shares()["compute_seconds"]
    ratios = compute.xs(4, level="gpus") / compute.xs(2, level="gpus")
    return f"{ratios.min():.2f} to {ratios.max():.2f}"


def _first_row() -> pd.Series:
    table = published_bandwidth(published("resnet_compute_communication"))
    return table[(table["batch_per_gpu"] == 32) & (table["gpus"] == 2)].iloc[0]


def _known_share() -> str:
    """Return which part of the epochs the two printed columns explain, at batch 32 and at the others."""
    share = 100 * (1 - _shares()["unexplained_share"])
    first, rest = share.xs(32, level="batch_per_gpu"), share.drop(32, level="batch_per_gpu")
    return f"{first.min():.0f} to {first.max():.0f} % (batch 32), {rest.min():.0f} to {rest.max():.0f} %"


def _step_ratio() -> float:
    """Return the printed computing of a step at batch 512 over that at batch 32, on two GPUs."""
    table = published_bandwidth(published("resnet_compute_communication"))
    rows = table[table["gpus"] == 2].set_index("batch_per_gpu")
    compute = _shares()["compute_seconds"].xs(2, level="gpus") / rows["steps"]
    return round(compute[512] / compute[32], 2)


def _recorded_step_ratio() -> float:
    """Return the same of our recorded steps without their all-reduce."""
    muted = exchange(replay(f"{_RECORDED}/communication")).set_index("gpu_batch")["muted_ms"]
    return muted[512] / muted[32]


def _broadcasts() -> int:
    table = messages(replay(f"{_RECORDED}/messages")).set_index(["phase", "collective"])
    return int(table.loc[("third step", "broadcast"), "calls"])


def _stated(**row: Any) -> Stated:
    return Stated(report=REPORT, **row)


CLAIMS = (
    _stated(**_speedup_row(2)),
    _stated(**_speedup_row(4), chosen=False),
    _stated(
        name="bandwidth",
        where="§3.1, batch 32 on 2 GPUs",
        says="The rate between GPUs, over the time that its data loader took",
        printed=lambda: round(_first_row()["bandwidth_gb_per_second"], 3),
        recomputed=lambda: _first_row()["needed_gb_per_s"],
        recomputes="what gradients would need in this time",
        holds=SAME,
        unit="GB/s",
        reason="782 all-reduces of 44.7 MB do not fit the time: it is the loader's, as the text says.",
    ),
    _stated(
        name="computing_of_a_step",
        where="table of computing, 2 GPUs",
        says="A step computes 1.2 times as long with 512 images as with 32",
        printed=_step_ratio,
        recomputed=_recorded_step_ratio,
        recomputes="our recorded steps on 2 × H200",
        holds=within(1.25),
        unit="×",
        reason="16 times the images in 22 to 27 ms: a clock that does not wait for the GPU shows its launches.",
    ),
    _stated(
        name="parts_of_an_epoch",
        where="table of computing and communication",
        says="An epoch is computing and communication",
        printed=lambda: "100 %",
        recomputed=_known_share,
        recomputes="both columns over the epoch's seconds",
        holds=lambda printed, recomputed: printed == recomputed,
        reason="The loader's time is in the columns already. What the rest is, no table tells.",
    ),
    _stated(
        name="data_set",
        where="the text on bandwidth",
        says="The bandwidth is that of a data set of 0.1718 GB",
        printed=_data_set_mb,
        recomputed=lambda: fact(published_bandwidth(published("resnet_compute_communication")), "product_mb"),
        recomputes="bandwidth × time, in all six rows",
        holds=SAME,
        unit="MB",
        digits=4,
        reason="All six rows use 4 % more. GPUs exchange gradients, 44.7 MB per step, not the data set.",
    ),
    _stated(
        name="text_and_table",
        where="text on 512 images per GPU",
        says="4 GPUs are half a second slower than 2",
        printed=lambda: float(_statement("seconds_added_by_4_gpus_at_512")),
        recomputed=lambda: _seconds(4, 512) - _seconds(2, 512),
        recomputes="by its table",
        holds=lambda printed, recomputed: printed * recomputed > 0,
        unit="s",
        reason="By the table they are half a second faster.",
    ),
    _stated(
        name="gradients_only",
        where="Q7",
        says="DDP exchanges gradients only",
        printed=lambda: _statement("messages_in_q7"),
        recomputed=lambda: f"gradients and {_broadcasts()} broadcasts",
        recomputes="per step, our recorded run",
        holds=lambda printed, recomputed: printed == recomputed,
        reason="Before each forward DDP broadcasts BatchNorm's running statistics, one message per type of number.",
    ),
    _stated(
        name="training_accuracy",
        where="§4.1",
        says="Training accuracy after 5 epochs is 78.34 %, above the 75.36 % of an earlier homework",
        printed=lambda: published("resnet_accuracy")["train_accuracy_percent"].max(),
        recomputed=lambda: None,
        holds=undecided,
        unit="%",
        digits=4,
        reason="One run each. The text names no batch, number of GPUs or learning rate.",
    ),
    _stated(
        name="epoch_on_four",
        where="table of seconds, batch 32",
        says="An epoch takes as long on 4 GPUs as on 2",
        printed=lambda: _seconds(4),
        recomputed=lambda: _seconds(2) / 2,
        recomputes="half the steps of 2 GPUs, each as long",
        holds=undecided,
        unit="s",
        chosen=False,
        reason="Either the ranks did not share the images anew, or something that does not divide takes the time.",
    ),
    _stated(
        name="computing_on_four",
        where="table of computing",
        says="4 GPUs compute as long in an epoch as 2 do, at all batches",
        printed=_compute_of_four,
        recomputed=lambda: 0.5,
        recomputes="half the images each",
        holds=undecided,
        unit="×",
        chosen=False,
        reason="Either the ranks did not share the images anew, or the clock shows something else.",
    ),
    _stated(
        name="set_epoch",
        where="the text on synchronisation",
        says="`set_epoch` is synchronisation: its collectives",
        printed=lambda: "some",
        recomputed=lambda: "none",
        holds=lambda printed, recomputed: printed == recomputed,
        chosen=False,
        reason="`set_epoch` stores a number on its own rank, from which the next order is shuffled.",
    ),
    _stated(
        name="locks",
        where="the text on other messages",
        says='Besides gradients, DDP sends "locks"',
        printed=lambda: _statement("messages_besides_gradients"),
        recomputed=lambda: f"{_broadcasts()} broadcasts per step",
        recomputes="our recorded run",
        holds=undecided,
        chosen=False,
        reason="It is right that more than gradients is sent. Locks are none of it.",
    ),
)
