"""What two reports say about BERT in a pipeline, recomputed: from limits, their own figures, and recorded runs."""

from __future__ import annotations

from functools import cache, partial

import pandas as pd

from labkit.engine.recordings import replay
from labkit.engine.run import Run
from labkit.tables.claims import Figures, within
from labkit.tables.published import EIGHT, FOUR, published
from labkit.theory.shapes import bert
from labkit.theory.sizes import GIB, MIB
from lessons.pipeline.tables.throughput import memory, throughput
from lessons.pipeline.theory.schedules import forward_only
from lessons.pipeline.theory.simulator import Times, closed_form, simulate, speedup_limit, split_limit, step_time

_BATCH = 64  # samples per step in both reports
_NEAR = within(1.1)  # a figure holds; the notebook says so
_SLACK = 1.02  # over a limit: equal stages are never quite equal
_SMALL_PERCENT = 10  # of a step: no larger bubble is called small here
_HIDDEN, _POSITIONS = 768, 512
_PARAMETERS = bert(hidden=_HIDDEN, layers=12, vocabulary=30522, positions=_POSITIONS).parameters


def _report_rows(name: str, report: str, index: str) -> pd.DataFrame:
    """Return the report's rows of a published table, the first one of each value of `index`."""
    table = published(name)
    return table[table["report"] == report].drop_duplicates(index).set_index(index)


def _rate(report: str, gpus: int) -> float:
    """Return the samples per second that a report prints."""
    return _report_rows("pipeline_gpus", report, "gpus")["samples_per_second"][gpus]


def _gain(report: str, before: int, after: int) -> float:
    return round(_rate(report, after) / _rate(report, before), 3)


@cache
def _replayed(run: str) -> Run:
    return replay(f"h200{run}")


def _recorded_rates(run: str, index: list[str]) -> pd.Series:
    return throughput(_replayed(run)).set_index(index)["samples_per_s"]


def _by_count(mode: str, run: str = "x4/pipeline/microbatches") -> pd.Series:
    """Return a recorded mode's samples per second, by number of micro-batches."""
    return _recorded_rates(run, ["mode", "micro_batches"])[mode]


def _gain_of_more(than: int = 4, mode: str = "streaming") -> float:
    """Return a recorded mode's best rate with more micro-batches than these over its rate with these."""
    rates = _by_count(mode)
    return float(rates[rates.index > than].max() / rates[than])


def _only_hurt(*_: object) -> bool | None:
    """Return whether more micro-batches than four make a stream slower, and more than one as good as no faster."""
    return True if _gain_of_more() <= 1 and _NEAR(1, max(1, _gain_of_more(1))) else None


def _split_ratio() -> float:
    rates = _report_rows("pipeline_splits", FOUR, "split")["samples_per_second"]
    return round(rates["6-2-2-2"] / rates["2-2-2-2"], 3)


def _recorded_split_ratio() -> float:
    rates = _recorded_rates("x4/pipeline/splits", ["mode", "split"])["streaming"]
    return rates["6-2-2-2"] / rates["3-3-3-3"]


def _near_both(printed: float, recomputed: float) -> bool:
    """Whether a ratio of splits is near the recorded one and near what the slowest stage allows."""
    return _NEAR(printed, recomputed) and _NEAR(printed, split_limit("streaming", "3-3-3-3", "6-2-2-2", 4))


def _peaks(split: str) -> pd.Series:
    """Return the peaks that the report prints for a split, by rank: its MB are MiB (see the claim `both_ends`)."""
    table = published("pipeline_splits")
    return table[(table["report"] == FOUR) & (table["split"] == split)].set_index("rank")["peak_mb"]


def _surplus() -> float:
    """Return by how much the last rank's peak is above an inner one's; the first rank's is as high."""
    return round(_peaks("2-2-2-2")[3] - _peaks("2-2-2-2")[1], 1)


def _hidden_state_mib() -> float:
    """Return the hidden state of a whole batch: 512 positions of 768 float32 numbers a sample."""
    return 4 * _BATCH * _POSITIONS * _HIDDEN / MIB


def _printed_layers() -> int:
    """Return the layers per stage of the split that the report calls even: all its stages are alike."""
    splits = [split.split("-") for split in _report_rows("pipeline_splits", FOUR, "split").index]
    return next(int(split[0]) for split in splits if len({*split}) == 1)


def _layers_by_memory() -> float:
    """Return the layers of an inner stage of "2-2-2-2", from what four layers more add to rank 0 of 6-2-2-2."""
    uneven = _peaks("6-2-2-2")
    per_layer = (uneven[0] - _surplus() - uneven[1]) / (6 - 2)
    return 2 + (_peaks("2-2-2-2")[1] - uneven[1]) / per_layer


def _printed_memory(gpus: int) -> float:
    return _report_rows("pipeline_gpus", FOUR, "gpus")["memory_per_gpu"][gpus]


def _peak_mib(mode: str, run: str = "x4/pipeline/gpus", ranks: int = 4) -> float:
    """Return the mean of the ranks' peaks in a recorded run: the report's figure is the mean over its GPUs."""
    table = memory(_replayed(run))
    return float(table[(table["mode"] == mode) & (table["ranks"] == ranks)]["peak_mib"].mean())


def _spread_of_peaks() -> float:
    """Return the sample standard deviation of the twelve peaks, four GPUs by three seeds, in percent of their mean."""
    peaks = published("pipeline_ranks")["peak_bytes"]
    return 100 * peaks.std() / peaks.mean()


def _printed_spread() -> float:
    row = _report_rows("pipeline_gpus", EIGHT, "gpus").loc[4]
    return round(100 * row["memory_per_gpu_std"] / row["memory_per_gpu"], 1)


def _printed_fall_gib() -> float:
    """Return the printed memory on 3 GPUs less that on 4: the report's GB are GiB (see data/published/README.md)."""
    memory = _report_rows("pipeline_gpus", EIGHT, "gpus")["memory_per_gpu"]
    return round(memory[3] - memory[4], 3)


def _stated(report: str, statement: str) -> str:
    return published("pipeline_statements").set_index(["report", "statement"])["value"][report, statement]


def _waiting_stages(slow: int = 1, ranks: int = 4, micro_batches: int = 4) -> str:
    """Return which stages idle longer in a fenced step of forwards when stage `slow`, from 0, takes twice as long."""

    def idle(forward: list[float]) -> list[float]:
        spans = simulate(forward_only(ranks, micro_batches), Times(forward, forward))
        return [step_time(spans) - sum(span.end - span.start for span in spans if span.rank == r) for r in range(ranks)]

    even, uneven = idle([1.0] * ranks), idle([1.0 + (rank == slow) for rank in range(ranks)])
    waiting = [rank for rank in range(ranks) if rank != slow and uneven[rank] > even[rank]]
    return "earlier and later stages" if min(waiting) < slow < max(waiting) else "later stages"


FIGURES = {
    "bubble_hidden": Figures(
        lambda: f"{_gain(FOUR, 2, 4)} ×, {_stated(FOUR, 'bubble with 4 micro-batches, by the rates')}",
        lambda: speedup_limit("fenced", 2, 4, 4),
        lambda _, limit: True if _gain(FOUR, 2, 4) <= _SLACK * limit else None,
    ),
    "fast_compute": Figures(
        lambda: _stated(FOUR, "bubble with 4 micro-batches"),
        lambda: 100 * closed_form("forward_only", ranks=4, micro_batches=4),
        lambda _, share: True if share <= _SMALL_PERCENT else None,
    ),
    "only_hurt": Figures(lambda: _stated(FOUR, "more chunks"), _gain_of_more, _only_hurt),
    "two_layers": Figures(_printed_layers, _layers_by_memory, _NEAR),
    "both_ends": Figures(_surplus, _hidden_state_mib, _NEAR),
    "samples_per_second": Figures(partial(_rate, EIGHT, 4), lambda: _BATCH * _rate(EIGHT, 4), _NEAR),
    "slower_with_more": Figures(
        partial(_gain, EIGHT, 3, 4),
        lambda: speedup_limit("fenced", 3, 4, 4),
        lambda printed, limit: None if printed <= _SLACK * limit else False,
    ),
    "weights_distributed": Figures(
        lambda: f"{_printed_fall_gib()} GiB, {_stated(EIGHT, 'cause of the memory that falls with GPUs')}",
        lambda: 4 * _PARAMETERS / GIB,
        lambda _, weights: _printed_fall_gib() <= weights,
    ),
    "uneven_split": Figures(_split_ratio, _recorded_split_ratio, _near_both),
    "kept_memory": Figures(partial(_printed_memory, 2), partial(_peak_mib, "kept", "x2/pipeline/kept", 2), _NEAR),
    "memory_spread": Figures(_printed_spread, _spread_of_peaks, _NEAR),
    "slow_stage": Figures(
        lambda: _stated(EIGHT, "a slow stage idles"),
        _waiting_stages,
        lambda printed, ours: True if printed == ours else None if printed in ours else False,
    ),
}
