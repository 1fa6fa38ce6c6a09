"""Tables of lab 03 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.verdict import CPU_TIMES, NOT_COMPARED, one_minute, verdict
from labkit.story.words import as_table, listed, resolved
from lessons.pipeline.tables import throughput, timeline
from lessons.pipeline.theory.queues import PAIR, RANK, Message, posted
from lessons.pipeline.theory.schedules import SCHEDULE_NAMES, Step, order_of

if TYPE_CHECKING:
    from labkit.engine.run import Run

_CLOSE = 0.05  # a prediction within 5 % of a time, or 5 points of a bubble, is called right


def same_result(table: pd.DataFrame) -> Markdown:
    """Say which pipelines gave the whole model's outputs, loss and gradients; takes `equality`."""
    names = [
        "the loop above" if row.by_hand else f"torch's {SCHEDULE_NAMES[row.schedule]}" for row in table.itertuples()
    ]
    wrong = [name for name, equal in zip(names, table["equal"], strict=True) if not equal]
    if wrong:
        return verdict(f"✘ **Other results than the whole model's**: {listed(dict.fromkeys(wrong))}.")
    return verdict(f"✔ **The same loss and gradients as the whole model**, by {listed(dict.fromkeys(names))}.")


def _both(here: pd.DataFrame, recorded: pd.DataFrame) -> pd.DataFrame:
    """Return the tables below one another, with a column that names the run; a run that stands for both, once."""
    if fact(here, "source") == fact(recorded, "source"):
        return recorded.assign(run="recorded")
    return pd.concat([here.assign(run="this run"), recorded.assign(run="recorded")], ignore_index=True)


def streams_gain(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say what more GPUs bring to a stream and to fenced steps, and how near that is to the limit; `speedups`s."""
    rows = _both(here, recorded).groupby(["run", "mode"], sort=False).tail(1)
    shown = rows[["run", "mode", "ranks", "speedup", "limit"]].rename(
        columns={"speedup": "gain, ×", "limit": "limit, ×"}
    )
    last = recorded.groupby("mode").tail(1).set_index("mode")
    gains, share = last["speedup"], last["share_of_limit"]
    verb = "keeps to its limit" if share.max() <= 1 else "keeps to its limit within 2 %, which unequal stages explain"
    verb = verb if share.max() <= 1.02 else "**exceeds** its limit"
    more = "more" if gains["streaming"] > gains["fenced"] else "**no more**"
    sentence = (
        f"{_on_cpus(here)}**A stream gains {more} than fenced steps do: {units.number(gains['streaming'])} and "
        f"{units.number(gains['fenced'])} times the rate of two GPUs** (recorded). Every mode {verb}."
    )
    return verdict(sentence, shown, summary="The largest number of ranks ÷ the smallest, in every mode")


def memory_falls(recorded: pd.DataFrame) -> Markdown:
    """Say how the largest peak in training changes with the number of ranks; takes `memory`."""
    peaks = recorded[recorded["mode"] == "training"].groupby("ranks")["peak_mib"].max() / 1024
    few, many = peaks.index.min(), peaks.index.max()
    if not peaks[many] < peaks[few]:
        return verdict("**More stages did not lower the recorded peak.**")
    layers = throughput.by_layers(recorded)
    shown = pd.DataFrame({"rank": layers["place"], "MiB a layer": layers["mib_per_layer"]})
    shown = shown.assign(**{"MiB whatever its layers": layers["rest_mib"]})
    sentence = (
        f"**With {many} stages the fullest GPU needs {units.percent(peaks[many] / peaks[few])} of what it needs "
        f"with {few}** (recorded training)."
    )
    return Markdown(f"{as_table(shown, 4)}\n\n{verdict(sentence).data}")


def schedules_memory(recorded: pd.DataFrame) -> Markdown:
    """Say what each schedule's fullest GPU needs beside GPipe's; takes `memory` of several schedules."""
    peaks = recorded.pivot_table(index="schedule", columns="rank", values="peak_mib", sort=False)
    shares = peaks.max(axis=1) / peaks.loc["gpipe"].max()
    shown = peaks.map(lambda mib: units.count(round(mib)))
    shown = shown.rename(index=SCHEDULE_NAMES, columns=lambda rank: f"rank {rank}, MiB").reset_index()
    summary = "Peak by schedule and rank"
    if not shares["1f1b"] < 1:
        return verdict("**1F1B did not lower the recorded peak.**", shown, summary=summary)
    others = shares.drop(["gpipe", "1f1b"])
    needs = (
        f"needs {units.percent(shares['1f1b'])} of GPipe's memory, under the others up to {units.percent(others.max())}"
    )
    return verdict(f"**Under 1F1B the fullest GPU {needs}** (recorded).", shown, summary=summary)


def bubbles_met(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say whether the simulator gives the recorded bubbles, and how far this run's stand above it; `predictions`."""
    off = (recorded["bubble_simulated"] - recorded["bubble_measured"]).abs()
    missed = [SCHEDULE_NAMES[name] for name in recorded.loc[off > _CLOSE, "schedule"]]
    most = f"{100 * off.max():.1f} points"
    sentence = f"**Recorded: the simulated bubble is within {most} of the measured one in every schedule.**"
    if missed:
        sentence = f"**Recorded: the simulated bubble misses the measured one for {listed(missed)}.**"
    if fact(here, "source") != fact(recorded, "source"):
        sentence += _above_simulated(here)
    shares = {
        "formula": "bubble_formula",
        "+ unequal stages": "bubble_stages",
        "+ transfers": "bubble_transfers",
        "+ queues": "bubble_simulated",
        "measured": "bubble_measured",
    }
    rows = _both(here, recorded)
    shown = pd.DataFrame({"run": rows["run"], "schedule": rows["schedule"].map(SCHEDULE_NAMES)})
    shown = shown.assign(
        **{name: [f"{100 * share:.1f} %" for share in rows[column]] for name, column in shares.items()}
    )
    shown = shown.assign(**{"step, ms": rows["step_ms"], "logged step, ms": rows["logged_ms"]})
    return verdict(sentence, shown, summary="What makes up each bubble, one effect more per column")


def _above_simulated(here: pd.DataFrame) -> str:
    """Say how far this run's measured bubbles stand above the simulated ones."""
    above = (here["bubble_measured"] - here["bubble_simulated"]).max()
    if above <= _CLOSE:
        return f" Here no bubble is measured more than {100 * _CLOSE:.0f} points above the simulated one."
    shared = " Among what the simulator leaves out: processes share cores." if fact(here, "on_cpu") else ""
    return f" Here the measured one is up to {100 * above:.0f} points larger than the simulated.{shared}"


def first_entries(ranks: int, micro_batches: int, chunks: int, count: int = 8) -> Markdown:
    """Return the first entries of rank 0's list as torch makes it for interleaved 1F1B."""
    entries = posted(order_of("interleaved", ranks, micro_batches, chunks))[0][:count]
    return Markdown("\n".join(f"{number}. {_entry(entry)}" for number, entry in enumerate(entries, 1)))


def _entry(entry: Step | Message) -> str:
    if isinstance(entry, Step):
        return f"{entry.kind}{entry.micro_batch}"
    _, stage, i = entry.key
    return (
        f"{entry.what} micro-batch {i} for stage {stage} ({'to' if entry.what == 'send' else 'from'} rank {entry.peer})"
    )


def receives_matter(table: pd.DataFrame) -> Markdown:
    """Say what early receives and their queue do to the schedule's bubble; takes `queues`."""
    bubbles = table.set_index("way")["bubble"]
    measured, before = bubbles["measured"], bubbles[timeline.BEFORE_USE]
    way = fact(table, "queue")
    words = {
        "measured": f"measured, torch {fact(table, 'torch')}",
        timeline.BEFORE_USE: "simulated: every receive just before its use",
        RANK: "simulated: early receives, one queue per rank (torch up to 2.11)",
        PAIR: f"{'simulated' if way == PAIR else 'predicted'}: early receives, one queue per pair of ranks (from 2.12)",
    }
    shown = pd.DataFrame(
        {"way": [words[way] for way in bubbles.index], "bubble": [f"{100 * b:.1f} %" for b in bubbles]}
    )
    explained = way in bubbles and abs(bubbles[way] - measured) <= _CLOSE < abs(before - measured)
    sentence = "**The queue explains the bubble.**" if explained else "**The queue does not explain this bubble.**"
    return Markdown(f"{as_table(shown)}\n\n{verdict(sentence).data}")


def best_counts(here: pd.DataFrame, recorded: pd.DataFrame, *others: pd.DataFrame) -> Markdown:
    """Say which number of micro-batches is best in recorded training and in a stream; takes `throughput`s."""
    runs = {"this run": here, "recorded": recorded} | {f"recorded, {t['ranks'].max()} GPUs": t for t in others}
    rows = [(name, mode, *_best(group)) for name, table in runs.items() for mode, group in table.groupby("mode")]
    shown = pd.DataFrame(rows, columns=["run", "mode", "best", "within noise", "samples/s"])
    of = shown[shown["run"] == "recorded"].set_index("mode")
    if not of.loc["training", "best"] > of.loc["streaming", "best"]:
        return verdict("**In the recorded run training needs no more micro-batches than a stream.**", shown)
    tied = of.loc["training", "within noise"]
    noise = "" if tied == "none" else f" (within noise of {tied})"
    return verdict(
        f"{_on_cpus(here)}**Training is best with {of.loc['training', 'best']} micro-batches{noise}, "
        f"a stream with {of.loc['streaming', 'best']}** (recorded).",
        shown,
        summary="The best number in every run and mode",
    )


def _best(rows: pd.DataFrame) -> tuple[int, str, str]:
    """Return the count with the highest rate, those within noise of it, and the rate."""
    rows = rows[rows["samples_per_s"].notna()].set_index("micro_batches").sort_index()
    best = rows["samples_per_s"].idxmax()
    names = ["samples_per_s", "spread_samples_per_s"]
    (rate, spread), tied = rows.loc[best, names], []
    for count, row in rows[names].drop(best).iterrows():
        if not resolved(rate, row.iloc[0], spread, row.iloc[1]):
            tied.append(count)
    return int(best), listed(tied) if tied else "none", units.number(rate)


def splits_cost(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say what the uneven split costs, and whether its forecast came true; takes `split_forecast`s."""
    rows = _both(here, recorded)
    rows = rows[rows["ratio"] != 1]
    names = {"run": "run", "split": "split", "ratio": "measured, × even split", "forecast_ratio": "forecast, ×"}
    shown = rows[[*names]].rename(columns=names)
    uneven = recorded[recorded["split"] != fact(recorded, "even")].iloc[0]
    true = "the forecast came true" if abs(uneven["error"]) <= _CLOSE else "the forecast **did not come true**"
    if fact(here, "source") != fact(recorded, "source") and not fact(here, "on_cpu"):
        error = here.loc[here["split"] != fact(here, "even"), "error"].iloc[0]
        true += f", here it {_forecast_is(error)}"
    fastest = "the even one" if fact(recorded, "fastest") == fact(recorded, "even") else "another one"
    sentence = (
        f"{_on_cpus(here)}**The uneven split takes {units.number(uneven['ratio'])} times the even one's step** "
        f"(recorded training); "
        f"{true}. Of all {fact(recorded, 'splits')} splits the simulator finds {fastest} fastest."
    )
    return Markdown(f"{as_table(shown)}\n\n{verdict(sentence).data}")


def _on_cpus(here: pd.DataFrame) -> str:
    return f"{CPU_TIMES} " if fact(here, "on_cpu") else ""


def _forecast_is(error: float) -> str:
    if abs(error) <= _CLOSE:
        return "came true, too"
    return "is too low" if error < 0 else "is too high"


def reports_model(table: pd.DataFrame) -> Markdown:
    """Say what dropout and plain attention cost in training; takes `as_reported`."""
    names = {"attention": "attention", "dropout": "dropout", "mode": "mode"}
    names |= {"samples_per_s": "samples/s", "mib_per_gpu": "MiB per GPU"}
    shown = table[[*names]].rename(columns=names)
    rows = table[table["mode"] == "training"].assign(dropped=table["dropout"] > 0).set_index(["attention", "dropped"])
    usual, reported = rows.loc[("fused", False)], rows.loc[("plain", True)]
    rate = reported["samples_per_s"] / usual["samples_per_s"]
    memory = reported["mib_per_gpu"] / usual["mib_per_gpu"]
    peak = "" if pd.isna(memory) else f", and {units.number(memory)} times the memory"
    return verdict(
        f"**Plain attention with dropout: {units.percent(rate)} of the rate{peak}**, in recorded training.",
        shown,
        summary="Each alone, in every mode",
    )


def in_one_minute(here: Mapping[str, Run], recorded: Mapping[str, Run]) -> Markdown:
    """Return the lesson's rules, each with what it is worth by the runs of each plan, here and recorded."""
    return one_minute(_RULES, here=here, recorded=recorded)


def _equal(runs: Mapping[str, Run]) -> str:
    table = throughput.equality(runs["trial"])
    worst = table[table["by_hand"] | (table["variant"] == "right")][throughput.ERRORS].max(axis=None)
    return f"differences up to {units.number(1e6 * worst, 2)} millionths"


def _formula(runs: Mapping[str, Run]) -> str:
    rows = timeline.predictions(runs["schedules"]).set_index("schedule")
    row = rows.loc["gpipe"]
    return f"GPipe: {units.percent(row['bubble_formula'])} by formula, {units.percent(row['bubble_measured'])} measured"


def _kept(runs: Mapping[str, Run]) -> str:
    kept = timeline.predictions(runs["schedules"]).set_index("schedule")["in_flight"]
    counts = f"rank 0 keeps {kept['1f1b']:.0f} micro-batches under 1F1B, {kept['gpipe']:.0f} under GPipe"
    peaks = throughput.memory(runs["schedules"]).groupby("schedule")["peak_mib"].max()
    if peaks.empty:
        return counts
    return f"{counts}; the fullest GPU needs {units.percent(peaks['1f1b'] / peaks['gpipe'])} of GPipe's memory"


def _queue(runs: Mapping[str, Run]) -> str | None:
    run = runs["schedules"]
    if timeline.queue_for(run, "interleaved") == timeline.BEFORE_USE:
        return None
    row = timeline.predictions(run).set_index("schedule").loc["interleaved"]
    shares = (units.percent(row[f"bubble_{name}"]) for name in ("formula", "measured"))
    return "interleaved: {} by formula, {} measured".format(*shares)


def _counts(runs: Mapping[str, Run]) -> str:
    if runs["microbatches"].plan.device == "cpu":
        return NOT_COMPARED
    table = throughput.throughput(runs["microbatches"])
    return f"best in training: {_best(table[table['mode'] == 'training'])[0]}"


def _slowest(runs: Mapping[str, Run]) -> str:
    if runs["splits"].plan.device == "cpu":
        return NOT_COMPARED
    table = timeline.split_forecast(runs["splits"])
    row = table[table["split"] != fact(table, "even")].iloc[0]
    return f"{row['split']}: {units.times(row['ratio'])} the even split's step"


def _stream(runs: Mapping[str, Run]) -> str:
    table = throughput.speedups(throughput.throughput(runs["gpus"]))
    alone = table[table["ranks"] == 1].set_index("mode")[["samples_per_s", "spread_samples_per_s"]]
    if len(alone) and resolved(*alone.loc[["streaming", "fenced"]].to_numpy().T.ravel()):
        return "cannot be told: on one rank, without a bubble, both should be equal and are not"
    gains = table.groupby("mode").tail(1).set_index("mode")["speedup"]
    return f"{units.times(gains['streaming'])} in a stream, {units.times(gains['fenced'])} fenced"


_RULES = {
    "Compare with the whole model before you time": _equal,
    "Equal stages leave a bubble of (p − 1)/(m + p − 1)": _formula,
    "1F1B has GPipe's bubble and less memory": _kept,
    "Ask where receives are posted, not only in which order steps run": _queue,
    "A stream hides the bubble, a training step cannot": _stream,
    "Enough micro-batches, but not the smallest pieces": _counts,
    "The slowest stage sets the pace": _slowest,
}
