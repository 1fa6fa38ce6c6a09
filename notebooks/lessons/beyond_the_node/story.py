"""Tables of lab 14 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact, is_recorded, where
from labkit.story import units
from labkit.story.verdict import CPU_TIMES, folded, one_minute, verdict
from labkit.story.words import as_table, listed, resolved
from lessons.beyond_the_node import tables
from lessons.beyond_the_node.theory import NAMES

if TYPE_CHECKING:
    from labkit.engine.run import Run

_NEAR = 0.1  # of the rate that was set
_SAME = 0.05  # two times within 5 % are called equal
_BYTES_NEAR = 0.1  # packet headers take 4 %, small messages more
_Said = tuple[str, pd.DataFrame | None]  # a sentence, empty where there is nothing to say; and its figures


def rate(link_mbit: float) -> str:
    """Return how a rate of the link is said."""
    return f"{units.count(link_mbit)} Mbit/s" if link_mbit else "the link as it is"


def _each(say: Callable[[pd.DataFrame], _Said], tables: tuple[pd.DataFrame, ...]) -> Markdown:
    """Return what `say` says of each run, which it names, and below, folded, the figures of all."""
    runs = tables[: len({fact(table, "source") for table in tables})]  # a recorded run may stand in for a launch
    told = [say(table) for table in runs]
    names = [where(table) for table in runs]
    lines = [f"{name.split(',')[0]}: {said}" for name, (said, _) in zip(names, told, strict=True) if said]
    lines = [str(verdict(line).data) for line in lines]
    if any(shown is not None for _, shown in told):
        figures = pd.concat([shown for _, shown in told], keys=names, names=["run"]).reset_index("run")
        lines.append(folded("All figures", as_table(figures.astype(object).where(figures.notna(), "–"))))
    return Markdown("\n\n".join(lines))


def _times_count(table: pd.DataFrame) -> bool:
    """Return whether times are judged: not on a reader's CPUs, whose processes and other programs share cores."""
    return is_recorded(table) or not fact(table, "on_cpu")


def judged(*tables: pd.DataFrame) -> pd.DataFrame:
    """Return the first table of `strategies` whose times may be compared; the last one where there is none."""
    return next(filter(_times_count, tables), tables[-1])


def hierarchy_helps(table: pd.DataFrame) -> Markdown:
    """Say what two levels gain over one flat ring on the most nodes; takes `two_levels`."""
    rows = table[table["nodes"] == table["nodes"].max()]
    times = rows.pivot_table(index="whole_bytes", columns="method", values="call_ms")
    ratio = times["flat"] / times["hierarchical"]
    small, large = ratio.iloc[0], ratio.iloc[-1]
    shown = table.pivot_table(index=["nodes", "whole_bytes"], columns="method", values="call_ms").reset_index()
    shown["whole_bytes"] = shown["whole_bytes"].map(units.size)
    shown = shown.rename(
        columns={"whole_bytes": "message", "flat": "one flat ring, ms", "hierarchical": "two levels, ms"}
    )
    if small <= 1 + _SAME:
        return verdict("**Two levels gain nothing, not even with small messages.**", shown)
    tail = f"{units.times(large)} with the largest" if large > 1 + _SAME else "nothing with the largest"
    return verdict(f"**On many nodes two levels gain {units.times(small)} with the smallest message, {tail}.**", shown)


def lines_are_rates(*tables: pd.DataFrame) -> Markdown:
    """Say whether the fitted bandwidths between nodes are the rates that were set; takes `two_lines` of runs."""
    return _each(_said_of_lines, tables)


def _said_of_lines(lines: pd.DataFrame) -> _Said:
    shaped = lines[(lines["place"] == "between") & (lines["link_mbit"] > 0)]
    if shaped.empty:
        return "the link was not shaped, so there is no rate to compare with.", None
    far = shaped[(shaped["share_of_rate"] - 1).abs() > _NEAR]
    names = {"place": "place", "link_mbit": "rate set, Mbit/s", "alpha_us": "α, µs", "beta_gb_per_s": "β, GB/s"}
    shown = lines[list(names)].assign(share=lines["share_of_rate"].map(units.percent, na_action="ignore").fillna("–"))
    shown["link_mbit"] = shown["link_mbit"].astype(object).where(lines["link_mbit"] > 0, "–")
    shown = shown.rename(columns=names | {"share": "β by the rate set"})
    worst = units.percent((shaped["share_of_rate"] - 1).abs().max())
    sentence = f"✔ **every line between nodes carries the rate that was set, to within {worst}.**"
    if len(far):
        sentence = f"✘ **not the rate that was set: {listed(map(rate, far['link_mbit']))}.**"
    if len(far) and (far["share_of_rate"] < 1).all() and not _times_count(lines):
        slow = listed(map(rate, far["link_mbit"]))
        sentence = (
            f"○ **slower than the rate that was set: {slow}.** With few cores, processes may be slow, not the link."
        )
    cores = "" if _times_count(lines) else f" {CPU_TIMES}"
    return sentence + cores, shown


def fewer_bytes(*gains: pd.DataFrame) -> Markdown:
    """Say how much less two levels send than one flat ring, and where that is faster; takes `levels_gain` of runs."""
    return _each(_said_of_levels, gains)


def _said_of_levels(gain: pd.DataFrame) -> _Said:
    largest = gain[gain["kib"] == gain["kib"].max()]
    counted = units.times(largest["bytes_gain"].median())
    clear = (largest["gain"] - 1).abs() > largest["spread_gain"]
    faster, slower = largest[clear & (largest["gain"] > 1)], largest[clear & (largest["gain"] < 1)]
    names = {"link_mbit": "Mbit/s", "kib": "KiB", "flat_ms": "one ring, ms", "hierarchical_ms": "two levels, ms"}
    names |= {"yours_ms": "yours, ms"} if "yours_ms" in gain else {}
    names |= {"gain": "times", "spread_gain": "±", "bytes_gain": "bytes", "expected_gain": "bytes by theory"}
    shown = gain[list(names)].rename(columns=names).round(2)
    sentence = f"**One flat ring sends {counted} the bytes of two levels.**"
    if not ((largest["bytes_gain"] / largest["expected_gain"] - 1).abs() <= _BYTES_NEAR).all():
        sentence = "✘ The interface counts other bytes than theory."
    elif "yours_over_two" in gain:
        ratio = largest["yours_over_two"].median()
        same = abs(ratio - 1) <= _BYTES_NEAR
        sentence += f" Yours sends {'as many as' if same else f'{units.times(ratio)} those of'} the reference solution."
    small = gain[gain["gain"] < 1 - gain["spread_gain"]]
    if not _times_count(gain):
        return sentence, shown
    if len(slower):
        return f"{sentence} Two levels are slower all the same at {rate(slower['link_mbit'].min())}.", shown
    if len(faster):
        rates = "every rate" if len(faster) == len(largest) else f"{len(faster)} of {len(largest)} rates"
        sentence += f" With the largest message it also takes longer at {rates}, beyond noise."
        tail = " With smaller ones it can be faster." if len(small) else ""
        return f"{sentence}{tail}", shown
    return f"{sentence} Their times differ by no more than noise.", shown


def hsdp_sends_less(traffic: pd.DataFrame) -> Markdown:
    """Say how much less HSDP sends between nodes than FSDP, and show what all send; takes `link_traffic`."""
    sizes = traffic.pivot_table(index="strategy", columns="accumulation", values="link_mib", sort=False)
    few, many = sizes.columns.min(), sizes.columns.max()
    sentence = f"**With {many} micro-batches HSDP sends {units.times(sizes[many]['fsdp'] / sizes[many]['hsdp'])} less "
    sentence += "than FSDP over all GPUs.**"
    if (grown := sizes[many]["fsdp"] / sizes[few]["fsdp"]) > 1 + _SAME:
        sentence += f" Only FSDP sends more with more micro-batches, {units.times(grown)}."
    shown = sizes.round().map(units.count).rename(index=NAMES, columns="MiB, micro-batches: {}".format)
    return Markdown(f"{verdict(sentence).data}\n\n{as_table(shown.reset_index())}")


def _slowest(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without a turned knob at the slowest link, by strategy."""
    rows = table[(table["status"] == "ok") & (table["accumulation"] == 1)]
    sent = rows[rows["strategy"] != "alone"]
    slowest = (
        sent["link_mbit"][sent["link_mbit"] > 0].min() if (sent["link_mbit"] > 0).any() else sent["link_mbit"].min()
    )
    return sent[sent["link_mbit"] == slowest].drop_duplicates("strategy").set_index("strategy")


def sharded_steps(*tables: pd.DataFrame) -> Markdown:
    """Say how HSDP's step compares with FSDP's and DDP's at the slowest link; takes `strategies` of runs."""
    return _each(_said_of_steps, tables)


def _said_of_steps(table: pd.DataFrame) -> _Said:
    rows = _slowest(table)
    if not {"fsdp", "hsdp"} <= {*rows.index}:
        return "this run did not measure both FSDP and HSDP.", None
    fsdp, hsdp = rows.loc["fsdp"], rows.loc["hsdp"]
    at, ratio = rate(hsdp["link_mbit"]), fsdp["step_ms"] / hsdp["step_ms"]
    if not resolved(fsdp["step_ms"], hsdp["step_ms"], fsdp["spread_step_ms"], hsdp["spread_step_ms"]):
        sentence = f"**at {at} the steps of FSDP and HSDP differ by no more than noise.**"
    elif ratio > 1:
        sentence = f"**at {at} HSDP's step is {units.times(ratio)} as fast as FSDP's.**"
    else:
        sentence = f"**at {at} HSDP is slower all the same**, {units.times(1 / ratio)} FSDP's step."
    sentence += f"{_beside_ddp(rows, _ddp_wins_somewhere(table))} "
    counted = table[(table["expected_link_mib"] > 0) & table["link_mib"].notna()]
    off = (counted["link_mib"] / counted["expected_link_mib"] - 1).abs().max()
    bytes_said = f"Bytes are theory's to within {units.percent(off)}."
    if not _times_count(table):
        sentence, bytes_said = "", f"**bytes are theory's to within {units.percent(off)}.** Times of CPU processes, "
        bytes_said += "which share cores, are not compared."
    if off > _BYTES_NEAR:
        bytes_said = f"✘ The interface counts other bytes than theory, up to {units.percent(off)} off."
    names = {"strategy": "strategy", "link_mbit": "Mbit/s", "accumulation": "micro-batches", "bucket_mb": "bucket, MiB"}
    names |= {"step_ms": "step, ms", "spread_step_ms": "±", "link_mib": "MiB sent", "expected_link_mib": "by theory"}
    return f"{sentence}{bytes_said}", table[list(names)].rename(columns=names).round(2)


def _ddp_wins_somewhere(table: pd.DataFrame) -> bool:
    """Return whether DDP's step is shorter than HSDP's beyond noise at some rate."""
    plain = table[(table["status"] == "ok") & (table["accumulation"] == 1)].drop_duplicates(["link_mbit", "strategy"])
    steps = {name: rows.set_index("link_mbit") for name, rows in plain.groupby("strategy")}
    if not {"ddp", "hsdp"} <= {*steps}:
        return False
    pairs = steps["ddp"].join(steps["hsdp"].add_suffix("_hsdp"), how="inner")
    return any(
        row.step_ms < row.step_ms_hsdp
        and resolved(row.step_ms, row.step_ms_hsdp, row.spread_step_ms, row.spread_step_ms_hsdp)
        for row in pairs.itertuples()
    )


def _beside_ddp(rows: pd.DataFrame, turned: bool) -> str:
    """Return the sentence on DDP beside HSDP, of the rows of `_slowest`; empty where DDP was not measured."""
    if "ddp" not in rows.index:
        return ""
    ddp, hsdp = rows.loc["ddp"], rows.loc["hsdp"]
    if not resolved(ddp["step_ms"], hsdp["step_ms"], ddp["spread_step_ms"], hsdp["spread_step_ms"]):
        return " DDP's differs from it by no more than noise."
    if ddp["step_ms"] > hsdp["step_ms"]:
        return f" DDP's is slower than HSDP's{'; faster links turn that round' if turned else ''}."
    return " DDP's is shorter than HSDP's, though it sends more."


def which_knob(table: pd.DataFrame) -> Markdown:
    """Say what accumulation brings at the slowest link, and whether any bucket size is faster; takes `strategies`."""
    place = where(table).split(",")[0]
    ddp = table[(table["strategy"] == "ddp") & (table["status"] == "ok")]
    ddp = ddp[ddp["link_mbit"] == _slowest(table)["link_mbit"].iloc[0]]
    whole = ddp[ddp["bucket_mb"] == ddp["bucket_mb"].iloc[0]]
    few, many = whole.loc[whole["accumulation"].idxmin()], whole.loc[whole["accumulation"].idxmax()]
    gain = many["efficiency"] - few["efficiency"]
    at = rate(few["link_mbit"])
    if abs(gain) <= many["spread_efficiency"] + few["spread_efficiency"]:
        sentence = f"{place}: at {at} accumulation changes the efficiency by no more than noise."
    else:
        ends = f"{units.percent(few['efficiency'])} to {units.percent(many['efficiency'])}"
        sentence = f"{place}: **at {at} accumulation takes the efficiency from {ends}.**"
    ddp = table[(table["strategy"] == "ddp") & (table["status"] == "ok") & (table["accumulation"] == 1)]
    matters = [_bucket_matters(rows) for _, rows in ddp.groupby("link_mbit")]
    where_it_matters = "every rate" if all(matters) else "some rates"
    buckets = (
        f"The size of buckets matters at {where_it_matters}" if any(matters) else "No bucket size is clearly faster"
    )
    return verdict(f"{sentence} {buckets}.")


def _bucket_matters(single: pd.DataFrame) -> bool:
    """Return whether a bucket size of DDP is slower than the best one beyond noise; takes the rows of one rate."""
    best = single.loc[single["step_ms"].idxmin()]
    return any(
        row["step_ms"] > (1 + _SAME) * best["step_ms"]
        and resolved(row["step_ms"], best["step_ms"], row["spread_step_ms"], best["spread_step_ms"])
        for _, row in single.iterrows()
    )


def within_band(*tables: pd.DataFrame) -> Markdown:
    """Say how many efficiencies lie outside their predicted band, and how far below it; takes `strategies` of runs."""
    return _each(_said_of_band, tables)


def _said_of_band(table: pd.DataFrame) -> _Said:
    if not _times_count(table):
        return "", None
    rows = table[
        table["plain"] & (table["strategy"] != "alone") & (table["link_mbit"] > 0) & table["least_efficiency"].notna()
    ]
    if rows.empty:
        return "the link was not shaped, so there is no band.", None
    spread, efficiency = rows["spread_efficiency"].fillna(0), rows["efficiency"]
    least, most = (rows[column].astype(float) for column in ("least_efficiency", "most_efficiency"))
    below, above = efficiency + spread < least, efficiency - spread > most
    if below.any():
        deepest = units.number((efficiency / least).min(), 2)
        sentence = (
            f"**the lines promise too much: {int(below.sum())} of {len(rows)} efficiencies lie below their band**"
        )
        return f"{sentence}, one at {deepest} of its lower edge.", None
    if above.any():
        return f"**{int(above.sum())} of {len(rows)} efficiencies lie above their band.**", None
    return f"**all {len(rows)} efficiencies lie in their band.**", None


def link_needed(needed: pd.DataFrame) -> Markdown:
    """Say which strategies no link between nodes brings to the efficiency; takes `needed_links`."""
    never = needed[needed["gbit_per_s"] == float("inf")]
    least = needed.loc[needed["gbit_per_s"].idxmin()]
    shown = needed.assign(strategy=needed["strategy"].map(NAMES))
    shown["gbit_per_s"] = [
        units.number(value) if value < float("inf") else "no link is enough" for value in needed["gbit_per_s"]
    ]
    shown = shown.rename(columns={"accumulation": "micro-batches", "gbit_per_s": "Gbit/s per node"})
    goal = units.percent(fact(needed, "efficiency"))
    most = f"{NAMES[least['strategy']]} with {least['accumulation']} micro-batches"
    sentence = f"**For {goal}, {most} needs the least: {units.number(least['gbit_per_s'])} Gbit/s.**"
    if len(never):
        names = listed(f"{NAMES[row.strategy]}" for row in never.drop_duplicates("strategy").itertuples())
        sentence += f" {names} can need more than any link gives: the links inside a node take too long."
    few = needed[needed["accumulation"] == needed["accumulation"].min()].set_index("strategy")["gbit_per_s"]
    if few["ddp"] < few["hierarchical"]:
        sentence += " Two levels can need a faster link than one flat ring: they also spend time inside the node."
    return Markdown(f"{verdict(sentence).data}\n\n{as_table(shown)}")


def local_steps_cost(*tables: pd.DataFrame) -> Markdown:
    """Say what the rarest exchange saves in bytes and costs in loss; takes `exchanges` of runs."""
    return _each(_said_of_exchanges, tables)


def _said_of_exchanges(table: pd.DataFrame) -> _Said:
    rows = table.set_index("every")
    if 1 not in rows.index or len(rows) < 2:
        return "this run has nothing to compare with.", None
    first, last = rows.loc[1], rows.iloc[-1]
    worse = last["final_loss"] - first["final_loss"]
    noise = last["spread_final_loss"] + first["spread_final_loss"]
    cost = f"its loss ends {units.number(abs(worse), 2)} nats {'higher' if worse > 0 else 'lower'}"
    cost = cost if abs(worse) > noise else "its loss on unseen text ends as low, within the seeds' spread"
    cost = cost if rows["seeds"].min() > 1 else "one seed says nothing of its loss"
    alike = "" if table["apart"].max() == 0 else " ✘ **Ranks end with different weights.**"
    shown = table[["every", "final_loss", "spread_final_loss", "seeds", "link_mib"]].round(3)
    less = units.times(last["times_less"])
    return f"**an exchange every {last.name} steps sends {less} less; {cost}.**{alike}", shown


def limits_at_scale(table: pd.DataFrame) -> Markdown:
    """Say which strategy keeps most on the most GPUs, without stragglers and with them; takes `projection`."""
    most = table[table["gpus"] == table["gpus"].max()]
    best = most.loc[most["efficiency"].idxmax()]
    kept, left = units.percent(best["efficiency"]), units.percent(best["simulated_efficiency"])
    shown = table.pivot_table(index="gpus", columns="strategy", values="efficiency", sort=False)
    shown = shown.rename(columns=NAMES).map(units.percent).reset_index().rename(columns={"gpus": "GPUs"})
    name = NAMES[best["strategy"]]
    sentence = f"**On {units.count(best['gpus'])} GPUs {name} keeps most, {kept}"
    same = best["efficiency"] - best["simulated_efficiency"] < _SAME / 10
    return verdict(
        f"{sentence}.**" if same else f"{sentence}; with stragglers {left}.**", shown, summary="By two lines alone"
    )


def in_one_minute(here: Mapping[str, Run], recorded: Mapping[str, Run]) -> Markdown:
    """Return the lesson's rules, each with what it is worth by the runs of each plan, here and recorded.

    Where recorded runs stood in for some of this node's, there is no column for them.
    """
    ran = {} if any(run.recorded for run in here.values()) else {"here": here}
    return one_minute(_RULES, **ran, recorded=recorded)


def _two_lines(runs: Mapping[str, Run]) -> str | None:
    lines = tables.two_lines(runs["messages"])
    inside, between = (lines[lines["place"] == place]["beta_gb_per_s"] for place in ("inside", "between"))
    if inside.empty or between.empty:
        return None
    ratio = inside.iloc[0] / between.min()
    if not math.isfinite(ratio):
        return "no rate: these times do not grow with the message's bytes"
    slowest = lines.loc[between.idxmin(), "link_mbit"]
    return f"{units.times(ratio)} slower between nodes, set to {rate(slowest)}"


def _bytes(runs: Mapping[str, Run]) -> str:
    gain = tables.levels_gain(runs["messages"])
    return f"one flat ring sends {units.times(gain['bytes_gain'].iloc[-1])} the bytes of two levels"


def _sharded(runs: Mapping[str, Run]) -> str | None:
    rows = _slowest(tables.strategies(runs["strategies"]))
    if not {"fsdp", "hsdp"} <= {*rows.index}:
        return None
    return f"FSDP sends {units.times(rows['link_mib']['fsdp'] / rows['link_mib']['hsdp'])} HSDP's bytes"


def _rarely(runs: Mapping[str, Run]) -> str:
    table = tables.exchanges(runs["localsteps"])
    last = table.iloc[-1]
    losses, seed = [units.number(loss) for loss in table["final_loss"]], ", of one seed"
    if table["seeds"].min() > 1:
        spreads = [units.number(spread, 2) for spread in table["spread_final_loss"]]
        losses, seed = [f"{loss} ± {spread}" for loss, spread in zip(losses, spreads, strict=True)], ""
    less = f"{units.times(last['times_less'])} fewer bytes with one exchange in {int(last['every'])} steps"
    return f"{less}; loss {losses[-1]} instead of {losses[0]}{seed}"


_RULES = {
    "A cluster has two lines, not one": _two_lines,
    "Send between nodes what only they can know": _bytes,
    "Shard inside a node, replicate between nodes": _sharded,
    "What is exchanged rarely sends little: watch the loss": _rarely,
}
