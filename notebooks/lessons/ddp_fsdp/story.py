"""Tables of lab 04 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import by_place, fact, fact_or
from labkit.story import units
from labkit.story.names import STRATEGY_LABELS, STRATEGY_NAMES
from labkit.story.profile import EXPLAINED
from labkit.story.verdict import CPU_TIMES, NOT_COMPARED, folded, one_minute, verdict
from labkit.story.words import as_table, capitalised, listed, resolved
from labkit.theory.sizes import GIB, MIB
from lessons.ddp_fsdp import tables

if TYPE_CHECKING:
    from labkit.engine.run import Run

_CLOSE = 0.1  # memory per sample within 10 % of what a report needs
_LIMITS = {"zero": ", limits 0", "default": ", default limits", "": ""}
_ALL = "all three"
_BY_HAND = {"own_hook": "DDP, our hook", "own_shards": "FSDP full, by hand", "yours": "FSDP full, your layers"}


def sharding_saves(table: pd.DataFrame) -> Markdown:
    """Say what full sharding saves of DDP's memory at the largest batch, by peaks where there are any."""
    saving = _saved(table)
    if saving is None:
        return verdict("DDP and full sharding were not both measured.")
    saved_mib, share, activations = saving
    if saved_mib <= 0:
        return verdict("**Full sharding saves nothing here.**")
    kept = (
        f" Activations, which no strategy shards, are {units.percent(activations)} of it." if activations > 0.5 else ""
    )
    saved = units.size(saved_mib * MIB)
    return verdict(f"**Full sharding saves {saved} per GPU, {units.percent(share)} of DDP's memory.**{kept}")


def _saved(table: pd.DataFrame) -> tuple[float, float, float] | None:
    """Return the MiB that full sharding saves, the share of DDP's memory, and the activations' share of that."""
    rows = table[table["batch"] == table["batch"].max()] if "batch" in table else table
    rows = rows.set_index("strategy")
    if not {"ddp", "fsdp_full"} <= {*rows.index}:
        return None
    column = "peak" if "peak" in rows and rows.loc[["ddp", "fsdp_full"], "peak"].notna().all() else "predicted"
    ddp, full = rows.loc["ddp"], rows.loc["fsdp_full"]
    saved = ddp[column] - full[column]
    return saved, saved / ddp[column], ddp["activations"] / ddp["predicted"]


def same_training(table: pd.DataFrame) -> Markdown:
    """Say whether torch's strategies and those by hand train as one process does; takes `trained`."""
    names = [_BY_HAND.get(row.variant, STRATEGY_LABELS[row.strategy]) for row in table.itertuples()]
    shown = (
        table[["loss_error", "update_error"]].mul(1e6).set_axis(["losses", "changes of the weights"], axis="columns")
    )
    shown.insert(0, "relative differences, in millionths", names)
    wrong = [name for name, equal in zip(names, table["equal"], strict=True) if not equal]
    if wrong:
        return verdict(f"✘ **Trained otherwise than one process: {listed(wrong)}.**", shown)
    worst = units.number(1e6 * table[["loss_error", "update_error"]].max(axis=None), 2)
    ranks = fact(table, "ranks")
    sentence = f"✔ **On {ranks} ranks all {len(table)} trainings have the losses and the weights of one process**"
    return verdict(f"{sentence}, within {worst} millionths: that is rounding.", shown)


def ledger_holds(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say whether the predicted memory explains what was measured here and in the recorded run; takes `memory`s."""
    names = {"predicted": "predicted, MiB", "peak": "peak, MiB", "unexplained_share": "unexplained, %"}
    shown = recorded[["strategy", "batch", *names]].replace({"strategy": STRATEGY_LABELS})
    shown["unexplained_share"] *= 100
    worst = recorded["unexplained_share"].abs().max()
    sentence = f"**At most {units.percent(worst)} of a recorded peak is missing in the ledger**"
    if worst > EXPLAINED:
        sentence = f"**{units.percent(worst)} of a recorded peak is not explained**"
    if "here" not in by_place(here, recorded):
        of_this_run = ""
    elif here["peak"].notna().any():
        share = here["unexplained_share"].abs().max()
        of_this_run = (
            f"; here at most {units.percent(share)}" if share <= EXPLAINED else f"; here {units.percent(share)} is not"
        )
    else:
        error = here["counted_error"].max()
        agrees = "agrees with the formulas within" if error < 0.01 else "differs from the formulas by"
        of_this_run = (
            f"; here, on CPUs, what the ranks hold, added up over their tensors, {agrees} {units.percent(error)}"
        )
    return verdict(f"{sentence}{of_this_run}.", shown.rename(columns=names), summary="The recorded peaks")


def collectives_agree(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say whether the counted collectives are the formulas', here and in the recorded run; takes `sent`s."""
    runs = by_place(here, recorded)
    for name, table in runs.items():
        unequal = table[~table["equal"].astype(bool)]
        if len(unequal):
            first = unequal.iloc[0]
            calls = f"{first['counted_calls']} calls, not {first['calls']}"
            what = f"{STRATEGY_NAMES[first['strategy']]}, {first['collective']}: {calls}"
            return verdict(f"✘ **{len(unequal)} kinds of collectives differ from the formulas {name}** ({what}).")
    shown = recorded[recorded["batch"] == recorded["batch"].max()]
    shown = shown[["strategy", "collective", "counted_calls", "counted_mib"]].replace({"strategy": STRATEGY_NAMES})
    shown = shown.rename(columns={"counted_calls": "calls per step", "counted_mib": "MiB of tensors per step"})
    sentence = "✔ **Every kind of collective agrees with its formula, in calls and bytes**"
    counts = listed(f"{len(table)} {place}" for place, table in runs.items())
    text = verdict(f"{sentence}: {counts}, over all batches.").data
    head = f"The recorded run, at batch {recorded['batch'].max()}. "
    head += "An all-reduce sends twice what an all-gather of its tensors sends:"
    return Markdown(f"{text}\n\n{head}\n\n{as_table(shown, 4)}")


def costs(here: pd.DataFrame, recorded: pd.DataFrame, four: pd.DataFrame) -> Markdown:
    """Say what sharding costs in the recorded run, and in a table in all runs on GPUs; takes `compared`s.

    The smaller batch has two rows more: how long a step is.
    """
    on_cpu = fact(here, "on_cpu")
    columns = {} if on_cpu else {_this_run(here): here}
    columns |= {f"recorded, {fact(table, 'ranks')} GPUs": table for table in (recorded, four)}
    shown = pd.DataFrame({name: _cost(table) for name, table in columns.items()}).rename_axis("finding").reset_index()
    rows = recorded.set_index(["batch", "strategy"])
    loss = _difference(rows.loc[(recorded["batch"].max(), "fsdp_full")])
    sentence = f"**FSDP full beside DDP, recorded: {loss} at the larger batch.**"
    least = recorded[recorded["batch"] == recorded["batch"].min()].set_index("strategy")
    if _alike(least) == _ALL:
        sentence += " At the smaller one noise hides which way of FSDP is the fastest."
    least = four[four["batch"] == four["batch"].min()].set_index("strategy").loc["fsdp_full"]
    if least["resolved"] and least["percent"] < -50:
        more = fact(four, "ranks") > fact(recorded, "ranks")
        sentence += (
            f" **On {'more' if more else 'as many'} GPUs it loses more than half of the rate at the smaller batch.**"
        )
    sentence += f" {CPU_TIMES}" if on_cpu else ""
    main = shown["finding"].str.startswith(("DDP's rate", "FSDP full beside"))
    rest = folded("The other ways of FSDP, and the steps", as_table(shown[~main]))
    return Markdown(f"{verdict(sentence).data}\n\n{as_table(shown[main])}\n\n{rest}")


def _this_run(table: pd.DataFrame) -> str:
    """Return the heading of this run's column; a middle size has smaller batches than the recorded runs beside it."""
    return "this run, middle size" if fact_or(table, "middle", False) else "this run"


def _cost(table: pd.DataFrame) -> dict[str, str]:
    """Return of a run, per finding, what replicating and sharding cost."""
    cost = {}
    for role, batch in (("larger", table["batch"].max()), ("smaller", table["batch"].min())):
        rows = table[table["batch"] == batch].set_index("strategy")
        for name, row in rows.reindex(["ddp", "fsdp_grad", "fsdp_full", "fsdp_root"]).iterrows():
            if name != "ddp":
                cost[f"{STRATEGY_NAMES[name]} beside DDP, {role} batch"] = _difference(row)
                continue
            share = f"{100 * row['efficiency']:.1f} ± {100 * row['spread_efficiency']:.1f} %"
            if pd.isna(row["efficiency"]):
                share = "not measured"
            elif abs(row["efficiency"] - 1) <= row["spread_efficiency"]:
                share = "same within noise"
            cost[f"DDP's rate, share of ranks alone, {role} batch"] = share
        cost[f"FSDP's ways that noise does not tell apart, {role} batch"] = _alike(rows)
    steps = _steps(table[table["batch"] == table["batch"].min()].set_index("strategy"))
    return cost | {
        f"a step of {STRATEGY_NAMES[name]}, smaller batch, ms": steps.get(name, "not measured")
        for name in ("ddp", "fsdp_full")
    }


def _alike(rows: pd.DataFrame) -> str:
    """Return which ways of FSDP have the same rate within noise, pair by pair; takes one batch, by strategy."""
    ways = rows.loc[[name for name in ("fsdp_grad", "fsdp_full", "fsdp_root") if name in rows.index]]
    ways = ways[ways["samples_per_s"].notna()]
    pairs = [
        f"{_way(one.Index)} and {_way(other.Index)}"
        for one, other in combinations(ways.itertuples(), 2)
        if not resolved(one.samples_per_s, other.samples_per_s, one.spread_samples_per_s, other.spread_samples_per_s)
    ]
    if len(ways) < 2:
        return "not measured"
    return _ALL if len(pairs) == 3 else "; ".join(pairs) or "none"


def _way(strategy: str) -> str:
    return STRATEGY_NAMES[strategy].removeprefix("FSDP ").removeprefix("as ")


def _difference(row: Any) -> str:
    """Return how far a strategy's rate is from DDP's: "−1.7 ± 0.3 %", or that it is the same within noise."""
    if pd.isna(row["percent"]):
        return "not measured"
    if not row["resolved"]:
        return "same within noise"
    return f"{row['percent']:+.1f} ± {row['spread_percent']:.1f} %".replace("-", "−")


def knobs_gain(here: pd.DataFrame, recorded: pd.DataFrame, four: pd.DataFrame) -> Markdown:
    """Say what the knobs gain in the recorded run; the steps of all runs stand in a table. Takes `ladder`s."""
    columns = {f"{_this_run(here)}, ms": here}
    columns |= {f"recorded, {fact(table, 'ranks')} GPUs, ms": table for table in (recorded, four)}
    steps = {name: _steps(table.set_index("knob")) for name, table in columns.items()}
    shown = pd.DataFrame(steps).reindex(recorded["knob"]).fillna("").reset_index()
    rows = recorded[recorded["samples_per_s"].notna()]
    spread = rows["spread_samples_per_s"] / rows["samples_per_s"]
    gains = rows.assign(clear=(rows["times_previous"] - 1).abs() > spread + spread.shift()).iloc[1:]
    faster = gains[gains["clear"] & (gains["times_previous"] > 1)]
    if faster.empty:
        return verdict("**No knob made the recorded step faster beyond noise.**", shown)
    most, best = faster.loc[faster["times_previous"].idxmax()], gains.loc[gains["samples_per_s"].idxmax()]
    largest = f"the largest gain is {most['knob']}, {units.times(most['times_previous'])}"
    sentence = (
        f"**Up to {best['knob']}, the recorded step becomes {units.times(best['times_first'])} as fast**; {largest}."
    )
    return verdict(sentence, shown, summary="The time of a step, also on four GPUs")


def _steps(table: pd.DataFrame) -> pd.Series:
    """Return each step's time with its half-spread, in ms; nothing where it was not measured."""
    measured = table[table["step_ms"].notna()]
    texts = [f"{row.step_ms:.1f} ± {row.spread_step_ms:.1f}" for row in measured.itertuples()]
    return pd.Series(texts, measured.index, dtype=object)


def sample_memory(here: pd.DataFrame, recorded: pd.DataFrame, printed_mb: Mapping[str, float]) -> Markdown:
    """Show what a sample adds to the peak, by formula, measured and printed; say whether the reports' figures fit.

    Takes `per_sample`s. Sentences are about the recorded run; a run on CPUs has no peaks, and its rates are not shown.
    """
    models = [
        f"{row.attention} attention, {'with' if row.dropout > 0 else 'no'} dropout" for row in recorded.itertuples()
    ]
    columns = {"model": models}
    place = " here, smaller batches" if fact_or(here, "middle", False) else " here"
    for whose, table in ((place, here), ("", recorded)):
        if table is recorded or table["peak_mb"].notna().any():
            columns[f"formula{whose}, MB"] = table["formula_mb"].map(_known)
            columns[f"peak{whose}, MB"] = table["peak_mb"].map(_known)
            columns[f"samples/s{whose}"] = table["samples_per_s"].map(_known)
    reports = [{"model": name, "printed peak, MB": units.number(size)} for name, size in printed_mb.items()]
    template = {
        "model": "fused attention, with dropout and the template's head",
        "peak, MB": _known(_with_head(recorded)),
    }
    shown = pd.concat([pd.DataFrame(columns), pd.DataFrame([template, *reports])]).fillna("–")
    head = f"One more sample, in MB of 10⁶ bytes; {fact(recorded, 'source')}:"
    return Markdown(f"{head}\n\n{as_table(shown)}\n\n{verdict(_said_of_a_sample(recorded, printed_mb)).data}")


def _with_head(table: pd.DataFrame) -> float:
    """Return what a sample adds to the peak, in MB: fused attention with dropout, and the template's head."""
    return tables.template_per_sample(
        table[(table["attention"] == "fused") & (table["dropout"] > 0)]["peak_mb"].iloc[0]
    )


def _known(value: float, digits: int = 3) -> str:
    return "not known" if pd.isna(value) else units.number(value, digits)


def _said_of_a_sample(table: pd.DataFrame, printed_mb: Mapping[str, float]) -> str:
    column = "peak_mb" if table["peak_mb"].notna().all() else "formula_mb"
    rates = table.set_index(["attention", table["dropout"] > 0])["samples_per_s"]
    rows = table.set_index(rates.index)[column]
    fitting = [
        f"{attention} attention {'with' if dropped else 'without'} dropout"
        for (attention, dropped), value in rows.items()
        if all(abs(value / printed - 1) <= _CLOSE for printed in printed_mb.values())
    ]
    sizes = [units.number(rows[setting]) for setting in (("fused", True), ("plain", True))]
    fits = f"The reports' peaks fit {listed(fitting)}." if fitting else "Neither fits the reports."
    if not fitting and all(abs(_with_head(table) / printed - 1) <= _CLOSE for printed in printed_mb.values()):
        fits += " With the template's head, fused attention does."
    rate = units.percent(rates["plain", True] / rates["fused", True])
    adds = f"**With dropout, a sample adds {sizes[0]} MB with fused attention and {sizes[1]} MB with plain.**"
    return f"{adds} Plain attention trains at {rate} of fused attention's rate. {fits}"


def zero_beside_fsdp(table: pd.DataFrame) -> Markdown:
    """Show rate, peak and traffic of each way, and the run's machine; say how ZeRO-3 compares with FSDP full.

    Takes `zero`.
    """
    rates = zip(table["samples_per_s"], table["spread_samples_per_s"], strict=True)
    shown = pd.DataFrame(
        {
            "way": [STRATEGY_LABELS[row.strategy] + _LIMITS[row.limits] for row in table.itertuples()],
            "samples/s": [f"{_known(rate)} ± {_known(spread, 2)}" for rate, spread in rates],
            "peak memory, GiB": (table["peak_mib"] * MIB / GIB).map(_known),
            "MiB through a link a step": table["link_mib"].map(_known),
        }
    )
    head = f"{capitalised(fact(table, 'source'))}:"
    return Markdown(f"{head}\n\n{as_table(shown)}\n\n{verdict(_said_of_zero(table)).data}")


def _said_of_zero(table: pd.DataFrame) -> str:
    measured = table[["samples_per_s", "link_mib"]].notna().all(axis=1)
    rows = table[measured].set_index(["strategy", "limits"])
    needed = {("zero3", "default"), ("fsdp_full", ""), ("zero2", ""), ("ddp", "")}
    if not needed <= {*rows.index}:
        return "This run did not measure both libraries."
    sent = rows.loc[("zero2", ""), "link_mib"] / rows.loc[("ddp", ""), "link_mib"]
    lower = f"The two lower stages send {units.times(sent)} DDP's bytes."
    if fact(table, "on_cpu"):
        return f"{lower} {CPU_TIMES}"
    zero, full = rows.loc[("zero3", "default")], rows.loc[("fsdp_full", "")]
    rate, memory = zero["samples_per_s"] / full["samples_per_s"], zero["peak_mib"] / full["peak_mib"]
    peak = "" if pd.isna(memory) else f" and {units.percent(memory)} of its peak"
    return (
        f"**DeepSpeed's full sharding, at its default limits, has {units.percent(rate)} of the rate of "
        f"FSDP full{peak}.** {lower}"
    )


def features() -> Markdown:
    """Show what FSDP2 and ZeRO do alike and differently, by their documentation and DeepSpeed 0.19's source."""
    rows = [
        ("sharded", "parameters, gradients, states", "states", "states, gradients", "states, gradients, parameters"),
        ("a shard is", "some rows of every parameter", *["a part of one flat buffer"] * 2, "a part of each, flat"),
        (
            "gradients are sent by",
            "reduce-scatter",
            *["all-reduce by default, reduce by option"] * 2,
            "reduce-scatter",
        ),
        ("parameters are sent by", "all-gather per block", *["one all-gather per step"] * 2, "all-gather per module"),
        ("backward and step", "your own loop", *["DeepSpeed's engine"] * 3),
        ("can move to", "CPU", *["CPU: states"] * 2, "CPU or NVMe: states and parameters"),
        ("bfloat16", "gathered from float32 shards", *["float32 copies, sharded"] * 3),
        ("pipeline parallel", "torch.distributed.pipelining", *["its PipelineModule", "no"], "no"),
        (
            "tensor parallel",
            "torch's parallelize_module, on one mesh",
            *["AutoTP, Megatron-DeepSpeed"] * 2,
            "Megatron-DeepSpeed",
        ),
        ("set up by", "calls in Python", *["a JSON configuration and a launcher"] * 3),
        ("comes with", "PyTorch", *["its own library (Accelerate, Lightning use it)"] * 3),
        (
            "choose it for",
            "plain PyTorch, with other kinds of parallelism",
            "states too large, one copy fits",
            "the same, gradients too",
            "models too large for all GPUs: offloading",
        ),
    ]
    table = pd.DataFrame(rows, columns=["", "FSDP2", "ZeRO-1", "ZeRO-2", "ZeRO-3"])
    return Markdown(folded("FSDP2 and DeepSpeed's ZeRO, feature by feature", as_table(table)))


def in_one_minute(here: Mapping[str, Run], recorded: Mapping[str, Run]) -> Markdown:
    """Return the lesson's rules, each with what it is worth by the runs of each plan, here and recorded."""
    return one_minute(_RULES, here=here, recorded=recorded)


def _same(runs: Mapping[str, Run]) -> str:
    table = tables.trained(runs["trial"])
    return f"differences up to {units.number(1e6 * table[['loss_error', 'update_error']].max(axis=None), 2)} millionths"


def _saving(runs: Mapping[str, Run]) -> str | None:
    saving = _saved(tables.memory(runs["strategies"]))
    return saving and f"full sharding saves {units.percent(saving[1])} of DDP's memory"


def _traffic(runs: Mapping[str, Run]) -> str | None:
    table = tables.sent(runs["strategies"])
    table = table[(table["batch"] == table["batch"].max()) & (table["collective"] != "broadcast")]
    twice = table["collective"].map({"all-reduce": 2.0}).fillna(1.0)
    link = (table["counted_mib"] * twice).groupby(table["strategy"]).sum()
    return (
        f"FSDP full sends {units.times(link['fsdp_full'] / link['ddp'])} DDP's bytes" if "fsdp_full" in link else None
    )


def _beyond_noise(runs: Mapping[str, Run]) -> str:
    table = tables.compared(runs["strategies"])
    if fact(table, "on_cpu"):
        return NOT_COMPARED
    rows = table[(table["strategy"] == "fsdp_full") & (table["batch"] == table["batch"].max())]
    return f"FSDP full beside DDP: {_difference(rows.iloc[0])}"


def _knobs(runs: Mapping[str, Run]) -> str:
    if runs["knobs"].plan.device == "cpu":
        return NOT_COMPARED
    return f"up to {units.times(tables.ladder(runs['knobs'])['times_first'].max())} as fast"


_RULES = {
    "Compare with one process before you time": _same,
    "Sharding divides what belongs to parameters, not the activations": _saving,
    "Full sharding gathers the blocks twice": _traffic,
    "Call a strategy faster only beyond the noise": _beyond_noise,
    "First choose the precision, then the strategy": _knobs,
}
