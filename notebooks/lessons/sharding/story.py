"""Tables of lab 05 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact, is_recorded, place_name
from labkit.story import units
from labkit.story.names import STRATEGY_NAMES
from labkit.story.profile import EXPLAINED, host_bound
from labkit.story.verdict import NOT_COMPARED, one_minute, verdict
from labkit.story.words import listed, resolved
from lessons.sharding import tables

if TYPE_CHECKING:
    from labkit.engine.run import Run

_CLEAR = 0.02  # of one GPU's rate: what a smaller batch must cost to be named
_AGREE_POINTS = 3.0  # of overlap
_SAME = "the same time within noise"
_POINT = 0.01  # of a single GPU's speed: a loss projected within a point is called right
_STRAIGHT = 0.2  # a line that misses no point by more is called a fit
_CLOSE = 0.04  # speed-ups on other GPUs that count as equal


def _shown(table: pd.DataFrame, names: Mapping[str, str], *first: str) -> pd.DataFrame:
    """Return the columns `first` and those of `names` under their new names, strategies in words, no empty columns."""
    chosen = table.reindex(columns=[*first, *names]).dropna(axis="columns", how="all")
    if "strategy" in first:
        chosen = chosen.assign(strategy=chosen["strategy"].map(STRATEGY_NAMES))
    return chosen.rename(columns=names)


def worth_it(rates: pd.DataFrame, held: pd.DataFrame) -> Markdown:
    """Say what full sharding saves of DDP's memory and keeps of DDP's rate; takes `strategies` and `memory`."""
    full, ddp, saved = _row(rates, "fsdp_full"), _row(rates, "ddp"), _saved_share(held)
    if full is None or ddp is None or saved is None:
        return verdict("This run lacks DDP or full sharding with the large batch.")
    counted = "the peak" if held["peak"].notna().any() else "what the ledger counts"
    kept = f"keeps {units.percent(full['efficiency'] / ddp['efficiency'])} of the rate"
    if not resolved(*(row[name] for name in ("efficiency", "spread_efficiency") for row in (full, ddp))):
        kept = "has the same rate within noise"
    large = rates[rates["load"] == "large"]
    keys = zip(large["strategy"], large["ranks"], strict=True)
    names = {"efficiency": "rate kept", "spread_efficiency": "±", "gib": "peak, GiB"}
    return verdict(
        f"**Against DDP, full sharding saves {units.percent(saved)} of {counted} and {kept}**, large batch.",
        _shown(large.assign(gib=[_peak_mib(held, *key) / 1024 for key in keys]), names, "strategy", "ranks"),
        summary="Every strategy",
    )


def _row(table: pd.DataFrame, strategy: str, load: str = "large") -> Any:
    """Return the strategy's row on all GPUs of the run, None where there is none."""
    chosen = (table["strategy"] == strategy) & (table["load"] == load) & (table["ranks"] == table["ranks"].max())
    return table[chosen].iloc[0] if chosen.any() else None


def _peak_mib(held: pd.DataFrame, strategy: str, ranks: int) -> float:
    """Return the peak with the large batch, measured or, where no allocator counts it, predicted; NaN for no row."""
    chosen = (held["strategy"] == strategy) & (held["load"] == "large") & (held["ranks"] == ranks)
    column = "peak" if held["peak"].notna().any() else "predicted"
    return float(held[chosen][column].iloc[0]) if chosen.any() else float("nan")


def _saved_share(held: pd.DataFrame) -> float | None:
    """Return the share of DDP's peak that full sharding saves on all GPUs of the run; None where one is missing."""
    ddp, full = (_peak_mib(held, strategy, held["ranks"].max()) for strategy in ("ddp", "fsdp_full"))
    return None if pd.isna(ddp + full) else 1 - full / ddp


def small_batch(rates: pd.DataFrame) -> Markdown:
    """Say which strategy loses most where the report's batch is shared out; takes `strategies`."""
    shared = rates[(rates["load"] == "shared out") & (rates["strategy"] != "single") & rates["efficiency"].notna()]
    if shared.empty:
        return verdict("This run has no batch that is shared out.")
    worst = shared.loc[shared["efficiency"].idxmin()]
    large = _row(rates, worst["strategy"])
    name, kept = STRATEGY_NAMES[worst["strategy"]], units.percent(worst["efficiency"])
    if large is None or worst["efficiency"] > large["efficiency"] - _CLEAR:
        return verdict(f"With the report's batch every strategy keeps {kept} or more: no less than with the large one.")
    large_kept = units.percent(large["efficiency"])
    recorded = "In the recorded run, with" if is_recorded(rates) else "With"
    one_group = shared[(shared["strategy"] == "fsdp_root") & (shared["efficiency"] > worst["efficiency"] + _CLEAR)]
    fewer = "".join(
        f" As one group, in few collectives, it keeps {units.percent(share)}." for share in one_group["efficiency"]
    )
    return verdict(f"**{recorded} the report's batch, {name} keeps {kept} instead of {large_kept}.**{fewer}")


def ledgers_agree(held: pd.DataFrame, sent: pd.DataFrame) -> Markdown:
    """Say whether both ledgers are right: the bytes that a GPU holds, and the collectives that it calls."""
    unequal = int((~sent["equal"].astype(bool)).sum())
    head = "**Every collective agrees with the formulas, in calls and in bytes.**"
    if unequal:
        head = f"**{unequal} of {len(sent)} collectives differ from the formulas.**"
    worst = held["unexplained_share"].abs().max()
    if pd.isna(worst):
        error = units.percent(held["counted_error"].max())
        tail = f"What the ranks hold is within {error} of the memory ledger; CPUs have no allocator's peak."
    elif worst <= EXPLAINED:
        tail = f"The memory ledger explains every peak within {units.percent(worst)}."
    else:
        tail = f"The memory ledger leaves {units.percent(worst)} of a peak open."
    names = {"calls": "calls by formula", "counted_calls": "calls", "mib": "MiB by formula", "counted_mib": "MiB"}
    shown = _shown(sent, names, "load", "strategy", "ranks", "collective")
    return verdict(f"{head} {tail}", shown, summary="Every collective of a step")


def same_training(table: pd.DataFrame) -> Markdown:
    """Say whether every strategy trained as one process did; takes `equality`."""
    if table.empty:
        return verdict("This run has no training to compare.")
    wrong = table[~table["equal"].astype(bool)]
    worst = table[["loss_error", "update_error"]].max(axis=None)
    if len(wrong):
        names = listed(STRATEGY_NAMES[name] for name in wrong["strategy"])
        return verdict(f"✘ **{names} trained otherwise than one process**, by up to {units.percent(worst)}.")
    millionths = units.number(1e6 * worst, 2)
    return verdict(
        "✔ **All strategies train as one process does**: losses and updates differ by rounding, "
        f"at most {millionths} millionths."
    )


def one_exchange(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say what one exchange per step saves beside one per micro-batch, here if on GPUs; takes `accumulation`s."""
    table = recorded if fact(here, "on_cpu") else here
    changes = {name: _change(table, name) for name in table["strategy"].unique()}
    said = listed(f"{STRATEGY_NAMES[name]} takes {change}" for name, change in changes.items())
    if {*changes.values()} == {_SAME}:
        said = f"every strategy takes {_SAME}"
    columns = (("step_ms", "ms"), ("spread_step_ms", "± ms"), ("sent_mib", "MiB sent"), ("peak_mib", "peak MiB"))
    ends = [("every", "after each"), ("last", "once")]
    ends += [("yours", "yours")] if "step_ms_yours" in table else []
    names = {f"{name}_{end}": f"{unit}, {exchanged}" for end, exchanged in ends for name, unit in columns}
    shown = _shown(table, names, "micro_batches", "strategy")
    place, count = place_name(table).capitalize(), table["micro_batches"].max()
    return verdict(f"**{place}, with one exchange for {count} micro-batches, {said}.**", shown)


def _change(table: pd.DataFrame, strategy: str) -> str:
    """Say how one exchange changes the time of the step of most micro-batches, and whether fewer disagree."""
    rows = table[table["strategy"] == strategy]
    row, saved = rows.loc[rows["micro_batches"].idxmax()], rows[rows["resolved"]]["saved_ms"]
    if saved.min() < 0 < saved.max():
        return "less time with some numbers of micro-batches, more with others"
    if not row["resolved"]:
        fewer = "" if saved.empty else f", but {'less' if saved.max() > 0 else 'more'} with fewer micro-batches"
        return f"{_SAME}{fewer}"
    share = units.percent(abs(row["saved_ms"]) / row["step_ms_every"])
    return f"{share} {'less' if row['saved_ms'] > 0 else 'more'} time"


def hidden_share(table: pd.DataFrame) -> Markdown:
    """Say how much communication is exposed by the trace, and how far three methods agree; takes `overlap`."""
    if table.empty:
        return verdict("Nothing was communicated.")
    exposed = listed(
        f"{units.number(row.trace_ms, 2)} ms ({STRATEGY_NAMES[row.strategy]})" for row in table.itertuples()
    )
    agree = table["apart_points"].max() <= _AGREE_POINTS
    tail = "The three methods agree." if agree else "The three methods do not agree: none of them alone is the overlap."
    late = " The host is late: it starts kernels after the GPU is free." if host_bound(table) else ""
    names = {
        "communication_ms": "communication, ms",
        "least_ms": "of the rank that waits least, ms",
        "trace_ms": "exposed by trace, ms",
        "steps_ms": "by difference, ms",
        "waits_ms": "by hooks, ms",
        "slowed_ms": "computing longer by, ms",
        "idle_ms": "idle longer by, ms",
    }
    summary = "Three methods, and what differs from one rank alone"
    return verdict(
        f"**Exposed, by the trace: {exposed}.** {tail}{late}", _shown(table, names, "strategy"), summary=summary
    )


def added_by_sharding(table: pd.DataFrame) -> Markdown:
    """Say which operator differs most between two strategies; takes `operators`."""
    if table.empty:
        return verdict("The profile has no kernels.")
    largest = table.loc[table["difference_us"].abs().idxmax()]
    names = {"calls_difference": "calls more", "difference_us": "µs more"}
    ms = units.number(largest["difference_us"] / 1e3)
    sentence = f"**The largest difference is {largest['operator']}: {ms} ms per step**, mean of the ranks with waiting."
    return verdict(sentence, _shown(table.head(8).round(0), names, "operator"), summary="The largest differences")


def lines_fit(table: pd.DataFrame, here: pd.DataFrame) -> Markdown:
    """Say whether α grows as a ring's hops do in the projection's links, and show this run's; takes `fits` of both."""
    if table.empty:
        return verdict("No collective was timed at two sizes.")
    names = {"alpha_us": "α, µs", "beta_gb_per_s": "β, GB/s", "knee_mib": "α is half of the time at, MiB"}
    names |= {"miss": "misses a time by up to"}
    runs = pd.concat([table.assign(run="projected from"), here.assign(run="this run")])
    runs["miss"] = runs["residual"].map(units.percent)
    shown, summary = _shown(runs, names, "run", "ranks", "collective"), "α and β of every line"
    worst = units.percent(table["residual"].max())
    fit = f"Every time that is projected from is within {worst} of its line."
    if table["residual"].max() > _STRAIGHT:
        fit = f"A line is too simple: it misses by up to {worst}."
    alphas = table.groupby("ranks")["alpha_us"].median()
    if len(alphas) < 2 or not alphas.iloc[0] > 0:
        return verdict(fit, shown, summary=summary)
    grown, hops = alphas.iloc[-1] / alphas.iloc[0], (alphas.index[-1] - 1) / (alphas.index[0] - 1)
    rule = "as the hops of a ring"
    if abs(grown / hops - 1) > _STRAIGHT:
        rule = f"{'less' if grown < hops else 'more'} than the hops of a ring"
    ranks = f"From {alphas.index[0]} to {alphas.index[-1]} ranks"
    return verdict(f"{fit} **{ranks}, α grows {rule}.**", shown, summary=summary)


def projection_error(table: pd.DataFrame) -> Markdown:
    """Say how right the projection is where it was measured; takes `projection`."""
    tested = table[table["error"].notna()]
    if tested.empty:
        return verdict("Nothing here tests the projection.")
    lost, measured = 1 - tested["efficiency"], 1 - tested["efficiency"] / (1 + tested["error"])
    worst = (lost - measured).abs().idxmax()
    where = f"{STRATEGY_NAMES[tested.loc[worst, 'strategy']]} on {tested.loc[worst, 'gpus']} GPUs"
    both = f"{where} should lose {units.percent(lost[worst])} of the speed, and loses {units.percent(measured[worst])}"
    shown = pd.DataFrame(
        {
            "strategy": tested["strategy"].map(STRATEGY_NAMES),
            "GPUs": tested["gpus"],
            "projected loss": lost.map(units.percent),
            "measured loss": measured.map(units.percent),
        }
    )
    if abs(lost[worst] - measured[worst]) <= _POINT:
        return verdict(f"**The projection is right**, within one point: {both}.", shown)
    wrong = "leaves out most of the cost" if lost[worst] < measured[worst] else "counts too much"
    near = (lost - measured).abs().groupby(tested["strategy"], sort=False).max() <= _POINT
    names = listed(STRATEGY_NAMES[str(name)] for name in near.index[near])
    right = f" It is right within one point for {names}." if near.any() else ""
    return verdict(f"**The projection {wrong}**: {both}.{right}", shown)


def as_the_report(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say how DDP's speed-up in the report's configuration compares with the printed one; takes two `reported`s.

    Of this run where it has the report's size, else of the recorded one.
    """
    table = recorded if fact(here, "small") else here
    rows = table[table["strategy"] == "ddp"]
    if rows.empty:
        return verdict("This run lacks DDP in the report's configuration.")
    row = rows.iloc[0]
    names = {
        "tokens_per_s": "tokens/s",
        "printed_tokens_per_s": "tokens/s by the printed seconds",
        "speedup": "speed-up",
        "printed_speedup": "printed speed-up",
        "peak_mib": "peak MiB",
        "printed_peak_gb": "printed peak, GB",
    }
    shown = _shown(table, names, "strategy", "ranks")
    measured, printed = row["speedup"], row["printed_speedup"]
    place = "Recorded, on" if fact(here, "small") else "On"
    both = f"**{place} {row['ranks']} ranks DDP is {measured:.2f} times as fast; the report prints {printed:.2f}"
    alike = abs(measured / printed - 1) <= _CLOSE
    return verdict(f"{both}**{': about the same, on other GPUs' if alike else ''}.", shown)


def in_one_minute(here: Mapping[str, Run], recorded: Mapping[str, Run]) -> Markdown:
    """Return the lesson's rules, each with what it is worth here and as recorded; runs by the names of their plans."""
    return one_minute(_RULES, here=here, recorded=recorded)


def _saving(runs: Mapping[str, Run]) -> str | None:
    held = tables.memory(runs["strategies"])
    saved, ddp = _saved_share(held), _row(held, "ddp")
    if saved is None:
        return None
    activations = units.percent(ddp["activations"] / ddp["predicted"])
    of = "the peak" if held["peak"].notna().any() else "what the ledger counts"
    return f"{units.percent(saved)} of {of} saved; {activations} are activations"


def _enough_work(runs: Mapping[str, Run]) -> str | None:
    rates = tables.strategies(runs["strategies"])
    both = [_row(rates, "fsdp_full", load) for load in ("large", "shared out")]
    if both[0] is None or both[1] is None:
        return None
    large, shared = (units.percent(row["efficiency"]) for row in both)
    return f"FSDP full keeps {large}; {shared} with a small batch"


def _exchange(runs: Mapping[str, Run]) -> str:
    table = tables.accumulation(runs["accumulation"])
    return "; ".join(f"{STRATEGY_NAMES[name]}: {_change(table, name)}" for name in table["strategy"].unique())


def _hidden(runs: Mapping[str, Run]) -> str | None:
    table = tables.overlap(runs["profiles"]).set_index("strategy")
    if "ddp" not in table.index:
        return None
    shares = table.loc["ddp", ["trace_share", "steps_share", "waits_share"]].astype(float).clip(lower=0)
    least, most = (units.percent(share) for share in (shares.min(), shares.max()))
    return f"DDP: {least if least == most else f'{least} to {most}'} hidden, by method"


def _on_gpus(plan: str, show: Callable[[Mapping[str, Run]], str | None]) -> Callable[[Mapping[str, Run]], str | None]:
    return lambda runs: NOT_COMPARED if runs[plan].plan.device == "cpu" else show(runs)


_RULES = {
    "Sharding shrinks states, never activations": _saving,
    "Give a GPU enough work between two collectives": _on_gpus("strategies", _enough_work),
    "One exchange of gradients per step sends less: measure whether it is faster": _on_gpus("accumulation", _exchange),
    "Measure overlap in more than one way": _on_gpus("profiles", _hidden),
}
