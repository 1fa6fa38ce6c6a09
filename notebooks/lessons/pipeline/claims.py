"""What two reports say about BERT in a pipeline, recomputed: from limits, their own figures, and recorded runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pandas as pd

from labkit.engine.run import Run, replay
from labkit.tables.claims import Stated, within
from labkit.tables.published import published
from lessons.pipeline.plan import BERT
from lessons.pipeline.tables.throughput import balance, memory, throughput
from lessons.pipeline.theory.simulator import speedup_limit, split_limit

FOUR, EIGHT = "eml3-4xh100", "eml3-8xh100"
_BATCH = 64  # samples per step in both reports
_SAME, _NEAR = within(1.005), within(1.1)  # a figure of one report; of another node
_SLACK = 1.02  # over a limit: equal stages are never quite equal
_FOUR_RATES: dict[str, Any] = {"report": FOUR, "where": "table of GPU counts"}
_FOUR_SPLITS: dict[str, Any] = {"report": FOUR, "where": "table of splits"}
_EIGHT_RATES: dict[str, Any] = {"report": EIGHT, "where": "table of GPU counts"}
_EIGHT_CHART: dict[str, Any] = {"report": EIGHT, "where": "chart of micro-batches"}


def _of(name: str, report: str, index: str) -> pd.DataFrame:
    """Return the report's rows of a published table, the first one of each value of `index`."""
    table = published(name)
    return table[table["report"] == report].drop_duplicates(index).set_index(index)


def _stated(report: str, what: str) -> float:
    return _of("pipeline_statements", report, "what")["value"][what]


def _rate(report: str, gpus: int) -> float:
    """Return the samples per second that a report prints."""
    return _of("pipeline_gpus", report, "gpus")["samples_per_second"][gpus]


def _gain(report: str, before: int, after: int) -> float:
    return round(_rate(report, after) / _rate(report, before), 3)


@cache
def _recorded(run: str) -> Run:
    return replay(f"h200{run}")


def _recorded_rates(run: str, index: list[str]) -> pd.Series:
    return throughput(_recorded(run)).set_index(index)["samples_per_s"]


def _recorded_gain() -> float:
    rates = _recorded_rates("x4/pipeline/gpus", ["mode", "ranks"])["streaming"]
    return rates[4] / rates[2]


def _by_count(mode: str, run: str = "x4/pipeline/microbatches") -> pd.Series:
    """Return a recorded mode's samples per second, by number of micro-batches."""
    return _recorded_rates(run, ["mode", "micro_batches"])[mode]


def _gain_of_more() -> float:
    """Return a recorded stream's best rate over its rate with one micro-batch."""
    rates = _by_count("streaming")
    return float(rates.max() / rates[1])


def _fenced() -> pd.Series:
    return _by_count("fenced", "x2/pipeline/microbatches2")


def _least_gain_of_four() -> float:
    two = _by_count("training", "x2/pipeline/microbatches2")
    return float((_by_count("training") / two)[[4, 8]].min())


def _split_ratio() -> float:
    rates = _of("pipeline_splits", FOUR, "split")["samples_per_second"]
    return round(rates["6-2-2-2"] / rates["2-2-2-2"], 3)


def _recorded_split_ratio() -> float:
    rates = _recorded_rates("x4/pipeline/splits", ["mode", "split"])["streaming"]
    return rates["6-2-2-2"] / rates["3-3-3-3"]


def _near_both(printed: float, recomputed: float) -> bool:
    """Whether a ratio of splits is near the recorded one and near what the slowest stage allows."""
    return _NEAR(printed, recomputed) and _NEAR(printed, split_limit("streaming", "3-3-3-3", "6-2-2-2", 4))


def _peaks(split: str) -> pd.Series:
    """Return the peaks that the report prints for a split, by rank; it says MB, and they are MiB (see `_both_ends`)."""
    table = published("pipeline_splits")
    return table[(table["report"] == FOUR) & (table["split"] == split)].set_index("rank")["peak_mb"]


def _surplus() -> float:
    """Return by how much the last rank's peak is above an inner one's."""
    return round(_peaks("2-2-2-2")[3] - _peaks("2-2-2-2")[1], 1)


def _pooling_mib() -> float:
    """Return what pooling's weights, their gradients and AdamW's states take: 16 bytes a parameter."""
    return 16 * (BERT["hidden_size"] ** 2 + BERT["hidden_size"]) / 2**20


def _layers_by_memory() -> float:
    """Return the layers of an inner stage of "2-2-2-2", from what four layers more add to rank 0 of 6-2-2-2."""
    uneven = _peaks("6-2-2-2")
    per_layer = (uneven[0] - _surplus() - uneven[1]) / (6 - 2)
    return 2 + (_peaks("2-2-2-2")[1] - uneven[1]) / per_layer


def _cv(column: str, split: str) -> float:
    return _of("pipeline_splits", FOUR, "split")[column][split]


def _recorded_cv(split: str) -> float:
    return balance(_recorded("x4/pipeline/splits")).set_index(["mode", "split"])["stage_time_cv"]["streaming", split]


def _printed_memory(gpus: int) -> float:
    return _of("pipeline_gpus", FOUR, "gpus")["memory_per_gpu_mb"][gpus]


def _peak_mib(mode: str, run: str = "x4/pipeline/gpus", ranks: int = 4) -> float:
    """Return the mean of the ranks' peaks in a recorded run: the report's figure is the mean over its GPUs."""
    table = memory(_recorded(run))
    return float(table[(table["mode"] == mode) & (table["ranks"] == ranks)]["peak_mib"].mean())


def _spread_of_peaks() -> float:
    """Return the sample standard deviation of the twelve peaks, four GPUs by three seeds, in percent of their mean."""
    peaks = published("pipeline_ranks")["peak_bytes"]
    return 100 * peaks.std() / peaks.mean()


def _printed_spread() -> float:
    row = _of("pipeline_gpus", EIGHT, "gpus").loc[4]
    return round(100 * row["memory_per_gpu_mb_std"] / row["memory_per_gpu_mb"], 1)


def _quarter_of_batch() -> float:
    """Return DDP's printed peak at batch 16, in percent of that at batch 64."""
    table = published("ddp_fsdp")
    rows = table[(table["report"] == EIGHT) & (table["strategy"] == "ddp")]
    peaks = rows.groupby("global_batch")["peak"].max()
    return 100 * peaks[16] / peaks[64]


def _stage_times(name: str, split: str, recorded_split: str, reason: str) -> Stated:
    return Stated(
        name=name,
        **_FOUR_SPLITS,
        says=f"{split}: how far stage times differ, standard deviation ÷ mean",
        printed=partial(_cv, "stage_time_cv", split),
        recomputed=partial(_recorded_cv, recorded_split),
        recomputes=f"recorded stream, {recorded_split}",
        holds=_or_undecided(_NEAR),
        reason=reason,
    )


def _or_undecided(holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool | None]:
    """Return the rule that says True where `holds` does, and else that the printed figures do not decide it."""
    return lambda printed, recomputed: True if holds(printed, recomputed) else None


def _memory(name: str, passes: str, gpus: int, what: str, recomputed: Callable[[], float], reason: str) -> Stated:
    return Stated(
        name=name,
        **_FOUR_RATES,
        says=f"Memory per GPU on {gpus} GPUs: fits forward passes {passes}",
        printed=partial(_printed_memory, gpus),
        recomputed=recomputed,
        recomputes=what,
        holds=_NEAR,
        unit="MiB",
        digits=4,
        reason=reason,
    )


_CHOSEN = (
    Stated(
        name="bubble_hidden",
        **_FOUR_RATES,
        says="Four micro-batches hide the bubble: rate on 4 GPUs ÷ rate on 2",
        printed=partial(_gain, FOUR, 2, 4),
        recomputed=lambda: speedup_limit("fenced", 2, 4, 4),
        recomputes="the limit of fenced steps",
        holds=lambda printed, recomputed: printed <= _SLACK * recomputed,
        unit="×",
        reason="Steps that end with a bubble cannot gain so much. So a stream was timed, whose next batch fills the "
        "bubble.",
    ),
    Stated(
        name="stream",
        **_FOUR_RATES,
        says="The same ratio",
        printed=partial(_gain, FOUR, 2, 4),
        recomputed=_recorded_gain,
        recomputes="a recorded stream",
        holds=_NEAR,
        unit="×",
        reason="A stream of forward passes gives another ratio.",
    ),
    Stated(
        name="only_hurt",
        report=FOUR,
        where="text on micro-batches",
        says="More micro-batches only hurt: best rate ÷ rate with one",
        printed=lambda: 1,
        recomputed=_gain_of_more,
        recomputes="a recorded stream; training gains",
        holds=_NEAR,
        unit="×",
        reason="In a recorded stream more micro-batches help.",
    ),
    Stated(
        name="two_layers",
        **_FOUR_SPLITS,
        says="The even split is 2-2-2-2: layers per stage",
        printed=lambda: 2,
        recomputed=_layers_by_memory,
        recomputes="from its own peaks",
        holds=_NEAR,
        unit="layers",
        reason="BERT-base has 12 layers, not 8. Four more layers on rank 0 of 6-2-2-2 show the memory per layer.",
    ),
    Stated(
        name="both_ends",
        report=FOUR,
        where="text on memory",
        says="Pooling raises the memory of the last rank: its surplus",
        printed=_surplus,
        recomputed=_pooling_mib,
        recomputes="pooling in training, at most",
        holds=_NEAR,
        unit="MiB",
        reason="The surplus is about one hidden state of the whole batch: 64 × 512 × 768 numbers of 4 bytes.",
    ),
    Stated(
        name="samples_per_second",
        report=EIGHT,
        where="published program",
        says="Samples per second on 4 GPUs",
        printed=partial(_rate, EIGHT, 4),
        recomputed=lambda: _BATCH * _rate(EIGHT, 4),
        recomputes="64 samples per step",
        holds=_NEAR,
        unit="samples/s",
        reason="The published program divides the number of steps by the seconds, not the number of samples.",
    ),
    Stated(
        name="slower_with_more",
        **_EIGHT_RATES,
        says="4 GPUs are slower than 3: rate on 4 ÷ rate on 3",
        printed=partial(_gain, EIGHT, 3, 4),
        recomputed=lambda: speedup_limit("fenced", 3, 4, 4),
        recomputes="at most, in fenced steps",
        holds=lambda printed, limit: None if printed <= _SLACK * limit else False,
        unit="×",
        reason="A limit refutes nothing below it. Even stages one after another would give 1, and its seeds do not "
        "explain the loss: cause unknown.",
    ),
)
_FOLDED = (
    Stated(
        name="efficiency",
        **_FOUR_RATES,
        says="Efficiency of the step from 3 to 4 GPUs: its share of 4/3",
        printed=lambda: _stated(FOUR, "efficiency_3_to_4_gpus_percent"),
        recomputed=lambda: 75 * _gain(FOUR, 3, 4),
        recomputes="its rates (it rounds the gain to 1.29 first)",
        holds=_SAME,
        unit="%",
        reason="Its own rates give another share.",
    ),
    Stated(
        name="uneven_split",
        **_FOUR_SPLITS,
        says="6-2-2-2 is slower than the even split: its rate ÷ the even one's",
        printed=_split_ratio,
        recomputed=_recorded_split_ratio,
        recomputes="a recorded stream",
        holds=_near_both,
        unit="×",
        reason="In a stream the slowest stage sets the pace: half the layers in one stage give half the rate.",
    ),
    _stage_times(
        "stage_time_cv_even",
        "2-2-2-2",
        "3-3-3-3",
        "Embedding and head explain at most 1.5 %, by recorded times of each part. The report prints no stage times.",
    ),
    _stage_times("stage_time_cv_uneven", "6-2-2-2", "6-2-2-2", "The report prints no stage times."),
    _memory(
        "forward_memory",
        "under no_grad",
        4,
        "recorded stream under no_grad",
        partial(_peak_mib, "streaming"),
        "A stream under no_grad keeps no activations. The report's passes seem to have kept them, for a backward that "
        "never ran.",
    ),
    _memory(
        "training_memory",
        "that keep activations",
        4,
        "recorded training",
        partial(_peak_mib, "training"),
        "Recorded training needs another amount.",
    ),
    _memory(
        "kept_memory",
        "that keep activations",
        2,
        "recorded forward passes that keep activations",
        partial(_peak_mib, "kept", "x2/pipeline/kept", 2),
        "Recorded passes that keep activations need another amount.",
    ),
    Stated(
        name="steps_per_second",
        **_EIGHT_RATES,
        says="On 3 GPUs, its rate of steps as samples",
        printed=lambda: _BATCH * _rate(EIGHT, 3),
        recomputed=lambda: _recorded_rates("x4/pipeline/gpus", ["mode", "ranks"])["fenced", 3],
        recomputes="recorded fenced forward passes",
        holds=_NEAR,
        unit="samples/s",
        reason="Recorded fenced passes have another rate.",
    ),
    Stated(
        name="memory_spread",
        **_EIGHT_RATES,
        says="Memory per GPU on 4 GPUs: its ± as a share of the mean",
        printed=_printed_spread,
        recomputed=_spread_of_peaks,
        recomputes="its program's 12 peaks: GPUs differ, seeds do not",
        holds=_SAME,
        unit="%",
        reason="The 12 peaks of its program give another figure.",
    ),
    Stated(
        name="quarter_of_batch",
        report=EIGHT,
        where="text on memory",
        says="One fourth of the batch needs nearly one fourth of the memory",
        printed=lambda: 25,
        recomputed=_quarter_of_batch,
        recomputes="its peaks of DDP at batch 16 and 64",
        holds=within(1.2),
        unit="%",
        reason="Parameters, gradients and optimizer states do not depend on the batch.",
    ),
    Stated(
        name="two_faster_than_four",
        **_EIGHT_CHART,
        says="2 GPUs are faster than 4 with 4 and 8 micro-batches",
        printed=lambda: "no figure",
        recomputed=_least_gain_of_four,
        recomputes="rate on 4 ÷ rate on 2, recorded training, the smaller one",
        holds=lambda _, recomputed: True if recomputed < 1 else None,
        unit="×",
        reason="Recorded training on another node cannot refute it. The report's own 4 GPUs are slower than 3, cause "
        "unknown.",
    ),
    Stated(
        name="first_help_then_hurt",
        **_EIGHT_CHART,
        says="More micro-batches first help, then hurt: the best number",
        printed=lambda: "no figure",
        recomputed=lambda: int(_fenced().idxmax()),
        recomputes="recorded fenced forward passes on 2 GPUs",
        holds=lambda _, best: bool(_fenced().index.min() < best < _fenced().index.max()),
        unit="micro-batches",
        reason="Recorded fenced passes are best with the fewest or the most.",
    ),
)
CLAIMS = (*_CHOSEN, *(replace(one, chosen=False) for one in _FOLDED))
