"""What the report on ResNet-18 over more GPUs says, recomputed from its own tables, arithmetic and recorded runs."""

from __future__ import annotations

from typing import Any

import pandas as pd

from labkit.engine.recordings import replay
from labkit.tables.claims import Figures, undecided, within
from labkit.tables.published import published
from labkit.tables.resnet import published_bandwidth
from lessons.scaling.tables import exchange, messages, published_shares, published_speedups

SAME = within(1.02)  # of a printed figure: what rounding explains
_BATCHES = (32, 128, 512)
_RECORDED = "h100x2/scaling"
_MUTED = "a step without broadcast_buffers"


def _speedups() -> pd.DataFrame:
    return published_speedups(published("resnet_speedup")).set_index(["batch_per_gpu", "gpus"])


def _shares() -> pd.DataFrame:
    table = published_shares(published("resnet_compute_communication"), published("resnet_speedup"))
    return table.set_index(["batch_per_gpu", "gpus"])


def _statement(name: str) -> Any:
    return published("resnet_statements").set_index("statement")["value"][name]


def _column(name: str) -> str:
    """Return a column of the report's speed-ups, by GPUs and batch."""
    column = _speedups()[name]
    lists = {gpus: ", ".join(f"{column[batch, gpus]:.2f}" for batch in _BATCHES) for gpus in (2, 4)}
    return "; ".join(f"{values} on {gpus} GPUs" for gpus, values in lists.items())


def _over_one_gpu(*_figures: str) -> bool | None:
    """Return whether the printed speed-ups are over one GPU; None where they are over the next smaller batch."""
    table = _speedups().sort_index().query("gpus > 1")
    over_smaller_batch = (table.groupby("gpus")["epoch_seconds"].shift() / table["epoch_seconds"]).fillna(1)
    if all(map(SAME, table["speedup_as_printed"], table["true_speedup"])):
        return True
    return None if all(map(SAME, table["speedup_as_printed"], over_smaller_batch)) else False


def _seconds(gpus: int, batch: int = 32) -> float:
    return _speedups().loc[(batch, gpus), "epoch_seconds"]


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


def _confirmed(printed: float, recorded: float) -> bool | None:
    """Return whether our steps grow as printed; else None: the report names neither GPU nor clock."""
    return True if within(1.25)(printed, recorded) else None


def _broadcasts(phase: str) -> int:
    """Return how many broadcasts a phase of our recorded run has."""
    table = messages(replay(f"{_RECORDED}/messages"))
    return int(table[(table["phase"] == phase) & (table["collective"] == "broadcast")]["calls"].sum())


FIGURES = {
    "speedups": Figures(lambda: _column("speedup_as_printed"), lambda: _column("true_speedup"), _over_one_gpu),
    "computing_of_a_step": Figures(_step_ratio, _recorded_step_ratio, _confirmed),
    "text_and_table": Figures(
        lambda: float(_statement("seconds_added_by_4_gpus_at_512")),
        lambda: _seconds(4, 512) - _seconds(2, 512),
        lambda printed, recomputed: printed * recomputed > 0,
    ),
    "gradients_suffice": Figures(
        lambda: f"{_statement('messages_besides_gradients')}, too (Q6); {_statement('messages_in_q7')} suffice (Q7)",
        lambda: f"{_broadcasts('third step')} broadcasts per step; {_broadcasts(_MUTED)} without `broadcast_buffers`",
        lambda *_: _broadcasts("third step") > 0 == _broadcasts(_MUTED),
    ),
    "epoch_on_four": Figures(lambda: _seconds(4), lambda: _seconds(2) / 2, undecided),
}
