"""Doubts about two published tables, each computed from what they print."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.labs.collectives.story.rates import ends
from labkit.labs.collectives.theory import AGAINST_FROM_BYTES, AGAINST_GOAL, bus_factor, hops
from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import listed, resolved, say

COLLECTIVE = "all-reduce"
_FOLLOWS = 0.5  # the power of the size below which a time does not follow it
_LONG_S = 0.01  # a latency that no link and no launch has
_LOW = 0.1  # of the links' rate
_SAME = 0.02  # two growths, or a product, that are one
_NEAR = 0.1  # of what was printed


def doubt_reports(times: pd.DataFrame, fits: pd.DataFrame, bandwidth: pd.DataFrame, sizes: pd.DataFrame) -> Markdown:
    """Say what the published all-reduces and the published communication of a ResNet-18 contradict.

    Takes `published_times`, `published_fits`, `published_bandwidth` and `candidates`.
    """
    all_reduces = [_size(times, fits), _line(fits), _share(times), _ranks(times), _gloo(times)]
    sentences = [*all_reduces, _product(bandwidth, sizes), _gradients(bandwidth)]
    return Markdown("\n".join(f"- {sentence}" for sentence in sentences if sentence))


def _size(times: pd.DataFrame, fits: pd.DataFrame) -> str:
    least, larger = fits["growth"].min(), fits["larger"].iloc[0]
    nccl = times[times["backend"] == "nccl"]
    ends_s = [nccl.loc[nccl["megabytes"] == pick(nccl["megabytes"]), "seconds"].iloc[0] for pick in (min, max)]
    said = (
        f"all_reduce.csv: {units.number(larger)} times the bytes take {ends(fits['growth'], units.times)} the time "
        f"({listed(units.seconds(value) for value in ends_s)} with two processes)"
    )
    if least > larger**_FOLLOWS:
        return f"{said}: **the time follows the size.**"
    return f"{said}: **what was timed is hardly the transfer.**"


def _line(fits: pd.DataFrame) -> str:
    alpha = ends(fits["alpha_s"], units.seconds)
    smallest = ends(fits["alpha_s"] / fits["alpha_share"], units.seconds)
    said = f"As a line, α + bytes/β, α is {alpha}, where the smallest message takes {smallest}"
    if fits["alpha_s"].min() < _LONG_S:
        return f"{said}: a latency that a call may have."
    rates = ends(fits["beta_gb_per_s"], units.rate)
    said += ": no link waits that long. **Start-up is inside the clock**"
    return f"{said}; what grows with the size leaves β = {rates}."


def _share(times: pd.DataFrame) -> str:
    rows = times[(times["backend"] == "nccl") & (times["megabytes"] == times["megabytes"].max())]
    shares, rates = ends(rows["share_of_limit"], units.percent), ends(rows["bus_gb_per_s"], units.rate)
    said = f"At the largest message the printed times mean {rates}, {shares} of a V100's NVLinks"
    if (times["verdict"] == "impossible").any():
        return f"{said}; **some time is shorter than the links allow.**"
    if rows["share_of_limit"].max() < _LOW:
        return f"{said}: possible, and no measure of the links."
    return f"{said}: what links of that kind reach."


def _ranks(times: pd.DataFrame) -> str | None:
    nccl = times[times["backend"] == "nccl"].pivot_table(index="megabytes", columns="processes", values="seconds")
    few, many = nccl.columns.min(), nccl.columns.max()
    grown = nccl[many] / nccl[few]
    first, last = grown.iloc[0], grown.iloc[-1]
    latency = hops(COLLECTIVE, many) / hops(COLLECTIVE, few)
    rate = bus_factor(COLLECTIVE, many) / bus_factor(COLLECTIVE, few)
    said = (
        f"From {few} to {many} processes the smallest message's time grows {units.times(first)}, the largest's "
        f"{units.times(last)}; a ring's latency would grow {units.times(latency)}, its transfer {units.times(rate)}"
    )
    if abs(first / latency - 1) > _NEAR and abs(last / rate - 1) > _NEAR:
        return (
            f"{said}: **both grow alike, as no ring does.**"
            if abs(last / first - 1) <= _NEAR
            else f"{said}: neither fits."
        )
    return (
        f"{said}: as a ring does." if abs(first / latency - 1) <= _NEAR else f"{said}: only the transfer is a ring's."
    )


def _gloo(times: pd.DataFrame) -> str | None:
    gloo = times[times["backend"] == "gloo"]
    if gloo.empty:
        return None
    pair = times.merge(
        gloo[["processes", "megabytes", "seconds"]], on=["processes", "megabytes"], suffixes=("", "_gloo")
    )
    pair = pair[pair["backend"] == "nccl"]
    ratio = ends(pair["seconds_gloo"] / pair["seconds"], units.times)
    sizes = gloo["megabytes"].nunique()
    said = f"Gloo takes {ratio} NCCL's time at {units.number(gloo['megabytes'].max())} MB"
    if sizes == 1:
        return (
            f"{said}, with the start-up of both inside; it was timed at one size, so **its own rate cannot be told.**"
        )
    return f"{said}, over {sizes} sizes."


def _product(bandwidth: pd.DataFrame, sizes: pd.DataFrame) -> str:
    product = units.number(fact(bandwidth, "product_mb"), 4)
    said = "resnet_compute_communication.csv: bandwidth × time is"
    if fact(bandwidth, "product_spread") > _SAME:
        return f"{said} {ends(bandwidth['product_mb'], units.number)} MB: not one size."
    said = f"{said} {product} MB in all {len(bandwidth)} rows, whatever the batch and the number of GPUs"
    fitting = sizes[sizes["fits"].astype(bool)]
    if fitting.empty:
        nearest = sizes.loc[sizes["off"].abs().idxmin()]
        away = units.percent(abs(nearest["off"]))
        return (
            f"{said}: **a fixed number of bytes**, though none that we know (nearest: {nearest['what']}, {away} off)."
        )
    named = listed(f"{row.what} ({units.number(row.megabytes, 4)})" for row in fitting.itertuples())
    return f"{said}: **as many as {named}, and not what GPUs exchange.**"


def _gradients(bandwidth: pd.DataFrame) -> str:
    row = bandwidth.loc[bandwidth["gradients_gb"].idxmax()]
    printed, need = row["bandwidth_gb_per_second"], row["needed_gb_per_s"]
    said = (
        f"An epoch with batch {row['batch_per_gpu']:.0f} on {row['gpus']:.0f} GPUs exchanges "
        f"{units.number(row['gradients_gb'])} GB of gradients in {row['steps']:.0f} steps; in the printed "
        f"{units.seconds(row['communication_seconds'])} that would need {units.rate(need)}"
    )
    if abs(need / printed - 1) <= _NEAR:
        return f"{said}, as printed."
    return f"{said}, {units.times(need / printed)} the printed {units.rate(printed)}: **another quantity was timed.**"


_SAME_BYTES = 0.01  # of the bytes: chunks differ by an element


def explain_against(table: pd.DataFrame) -> Markdown:
    """Say whether our bus bandwidth reaches the goal of nccl-tests' from 64 MiB up, collective by collective."""
    small = fact(table, "small")
    if not fact(table, "installed"):
        return say("**nccl-tests is not installed here**, so there is nothing to compare with.", small=small)
    rows = table[table["ratio"].notna()]
    large = rows[rows["bytes"] >= AGAINST_FROM_BYTES]
    if large.empty:
        size = units.size(AGAINST_FROM_BYTES)
        return say(f"Nothing was timed beside nccl-tests from {size} up: {_failed(table)}.", small=small)
    shares = ends(large["ratio"], lambda value: units.number(value, 3))
    span = f"from {units.size(large['bytes'].min())} up"
    reached = f"In one run, {span}, ours reaches {shares} of nccl-tests' bus bandwidth."
    return say(reached, *_verdicts(large), _gone(table), small=small)


def _verdicts(large: pd.DataFrame) -> list[str]:
    """Say who meets the goal, who misses it, and for whom our times' spread leaves it open."""
    worst = large.loc[large.groupby("collective", sort=False)["ratio"].idxmin()]
    below, apart = worst["ratio"] < AGAINST_GOAL, (worst["ratio"] - AGAINST_GOAL).abs()
    is_open = apart <= worst["spread_share"] * worst["ratio"]
    missed, undecided = worst[below & ~is_open], worst[is_open]
    met = f"{len(worst) - len(missed) - len(undecided)} of {len(worst)} collectives meet it"
    if missed.empty and undecided.empty:
        return [f"**The goal, {AGAINST_GOAL}, is met** by all {len(worst)} collectives at every size."]
    sentences = []
    if len(missed):
        sentences.append(f"**The goal, {AGAINST_GOAL}, is missed** by {_ratios(missed)}; {met}.")
    else:
        sentences.append(f"**Whether the goal, {AGAINST_GOAL}, is met is open** for {_ratios(undecided)}; {met}.")
    if len(undecided):
        distance = "miss" if below[is_open].all() else "distance from the goal"
        names = listed(undecided["collective"])
        sentences.append(f"For {names} the {distance} is within our times' spread: not resolved by these data.")
    return sentences


def _ratios(rows: pd.DataFrame) -> str:
    return listed(
        f"{row.collective} ({units.number(row.ratio)} at {units.size(row.bytes)})" for row in rows.itertuples()
    )


def _gone(table: pd.DataFrame) -> str | None:
    gone = sorted(set(table.loc[table["status"] != "ok", "collective"]))
    return f"No comparison for {listed(gone)}: {_failed(table)}." if gone else None


def _failed(table: pd.DataFrame) -> str:
    rows = table[table["status"] != "ok"]
    said = dict.fromkeys(f"{row.status}{f' ({row.said})' if row.said else ''}" for row in rows.itertuples())
    return listed(said) if said else "no size was that large"


def explain_ring(table: pd.DataFrame) -> Markdown:
    """Say whether our ring is right for every length and sends what the formula says, and what it costs in time."""
    return say(_right(table), _sent(table), *_timed(table), small=fact(table, "small"))


def _right(table: pd.DataFrame) -> str:
    wrong = table[table["status"] != "ok"]
    counts = listed(sorted(set(table["ranks"])))
    if wrong.empty:
        odd = (table["elements"] % table["ranks"] != 0).sum()
        return f"Our ring gives the right sums on {counts} ranks, {odd} of {len(table)} lengths not divisible by them."
    where = listed(f"length {units.count(row.elements)} on {row.ranks} ranks" for row in wrong.itertuples())
    return f"**Our ring is wrong** for {where}: {listed(dict.fromkeys(wrong['status']))}."


def _sent(table: pd.DataFrame) -> str:
    large = table[table["elements"] > 100 * table["ranks"]]  # in fewer, one element more is not small
    share = [bus_factor("all-reduce", ranks) for ranks in large["ranks"]]
    off = (large["sent_bytes"] / (share * large["bytes"]) - 1).abs().max()
    if pd.isna(off):
        return "No length was large enough to hold the bytes against the formula."
    if off <= _SAME_BYTES:
        counts = listed(f"N = {ranks}" for ranks in sorted(set(large["ranks"])))
        return f"A rank sends 2(N − 1)/N of the message, as the formula says, for {counts}."
    return f"**What a rank sends differs from 2(N − 1)/N of the message by {units.percent(off)}.**"


def _timed(table: pd.DataFrame) -> list[str]:
    """Say of the shortest and the longest message what ours takes, and of how many times the library's that is."""
    said = []
    for ranks, own in table.dropna(subset="times").groupby("ranks"):
        rows = [own.loc[own["elements"] == pick(own["elements"])].iloc[0] for pick in (min, max)]
        known = [row for row in rows if _resolved(row)]
        parts = [f"{units.times(row['times'])} the library's time for {units.size(row['bytes'])}" for row in known]
        if vague := [units.size(row["bytes"]) for row in rows if not _resolved(row)]:
            parts.append(f"for {listed(vague)} a time that these data do not tell from the library's")
        said.append(f"On {ranks} ranks it takes {listed(parts)}.")
    return said


def _resolved(row: pd.Series) -> bool:
    return resolved(row["ours_us"], row["library_us"], row["spread_ours_us"], row["spread_library_us"])
