"""Training steps over two nodes → sentences: strategies, knobs, predictions against points, local steps."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import about_tables, listed, resolved, say
from lessons.beyond_the_node.story.links import rate

_SAME_BYTES = 0.1  # packet headers take 4 %, small messages more
_SAME_LOSS = 0.05  # nats


def _usual(table: pd.DataFrame, link_mbit: float) -> pd.DataFrame:
    """Return one rate's rows without a turned knob, by strategy."""
    rows = table[(table["link_mbit"] == link_mbit) & (table["accumulation"] == 1) & (table["status"] == "ok")]
    return rows.drop_duplicates("strategy").set_index("strategy")


def _slowest(table: pd.DataFrame) -> float:
    rates = table.loc[table["strategy"] != "alone", "link_mbit"]
    shaped = rates[rates > 0]
    return float(shaped.min() if len(shaped) else rates.min())


@about_tables
def explain_strategies(table: pd.DataFrame) -> Markdown:
    """Say what HSDP and FSDP send and take at the slowest link, and whether the counted bytes are theory's."""
    slowest = _slowest(table)
    rows = _usual(table, slowest)
    return say(_sharded(rows, slowest), _against_ddp(rows), _bytes(table), small=fact(table, "small"))


def _sharded(rows: pd.DataFrame, slowest: float) -> str | None:
    if not {"fsdp", "hsdp"} <= set(rows.index):
        return None
    fsdp, hsdp = rows.loc["fsdp"], rows.loc["hsdp"]
    sent = f"FSDP sends {units.times(fsdp['link_mib'] / hsdp['link_mib'])} the bytes of HSDP over the link"
    ratio = fsdp["step_ms"] / hsdp["step_ms"]
    if not resolved(fsdp["step_ms"], hsdp["step_ms"], fsdp["spread_step_ms"], hsdp["spread_step_ms"]):
        return f"{sent}. Their steps at {rate(slowest)} differ by no more than noise."
    if ratio > 1:
        return f"{sent}. **At {rate(slowest)} HSDP's step is {units.times(ratio)} as fast as FSDP's.**"
    return f"{sent}. **At {rate(slowest)} HSDP is slower all the same**, {units.times(1 / ratio)} FSDP's step."


def _against_ddp(rows: pd.DataFrame) -> str | None:
    if not {"ddp", "hsdp"} <= set(rows.index):
        return None
    ddp, hsdp = rows.loc["ddp"], rows.loc["hsdp"]
    ratio = ddp["link_mib"] / hsdp["link_mib"]
    return f"DDP in one flat ring sends {units.times(ratio)} the bytes of HSDP, whose gradients go in two levels."


def _bytes(table: pd.DataFrame) -> str | None:
    rows = table[(table["expected_link_mib"] > 0) & table["link_mib"].notna()]
    if rows.empty:
        return None
    over = rows["link_mib"] / rows["expected_link_mib"] - 1
    span = units.span(over, units.percent)
    if over.abs().max() <= _SAME_BYTES:
        return f"The interface counts theory's bytes in all {len(rows)} settings, with {span} more for packet headers."
    far = rows.loc[over.abs().idxmax()]
    return (
        f"The interface counts other bytes than theory: {far['strategy']} with buckets of {far['bucket_mb']:g} MiB "
        f"at {rate(far['link_mbit'])} is {units.percent(over.abs().max())} off."
    )


@about_tables
def explain_turning(table: pd.DataFrame) -> Markdown:
    """Say what accumulated micro-batches bring at each rate, and whether the bucket size matters there."""
    ddp = table[(table["strategy"] == "ddp") & (table["status"] == "ok")]
    first = ddp["bucket_mb"].iloc[0]
    whole = ddp[ddp["bucket_mb"] == first]
    sentences = []
    for link_mbit, own in whole.groupby("link_mbit", sort=False):
        few, many = own.loc[own["accumulation"].idxmin()], own.loc[own["accumulation"].idxmax()]
        gain = many["efficiency"] - few["efficiency"]
        noise = many["spread_efficiency"] + few["spread_efficiency"]
        how = f"{units.percent(few['efficiency'])} to {units.percent(many['efficiency'])}"
        beyond = "" if abs(gain) > noise else ", within noise"
        at = rate(float(str(link_mbit)))
        sentences.append(
            f"At {at}, {many['accumulation']} micro-batches per step take the efficiency from {how}{beyond}."
        )
    sentences.append(_buckets(ddp[ddp["accumulation"] == 1]))
    return say(*sentences, small=fact(table, "small"))


def _buckets(rows: pd.DataFrame) -> str | None:
    """Say at how many rates some bucket size is slower than the fastest beyond noise."""
    clear = []
    for link_mbit, own in rows.groupby("link_mbit", sort=False):
        best, worst = own.loc[own["step_ms"].idxmin()], own.loc[own["step_ms"].idxmax()]
        if resolved(worst["step_ms"], best["step_ms"], worst["spread_step_ms"], best["spread_step_ms"]):
            sizes = f"{best['bucket_mb']:g} MiB beats {worst['bucket_mb']:g} MiB"
            at = rate(float(str(link_mbit)))
            clear.append(f"{sizes} by {units.percent(1 - best['step_ms'] / worst['step_ms'])} at {at}")
    if not clear:
        return "**No bucket size is faster than another beyond noise**: the bytes stay, and the link is their limit."
    return f"Bucket sizes differ beyond noise: {listed(clear)}. The bytes are the same."


@about_tables
def explain_efficiency(table: pd.DataFrame) -> Markdown:
    """Say how many measured efficiencies lie between both predictions, and what the slowest link leaves."""
    rows = table[table["least_efficiency"].notna() & (table["link_mbit"] > 0) & (table["status"] == "ok")]
    if rows.empty:
        return say("No rate of the link was set, so nothing was predicted.", small=fact(table, "small"))
    inside = in_band(rows)
    sentences = [f"**{inside.sum()} of {len(rows)} measured efficiencies lie in their predicted band**, within noise."]
    if not inside.all():
        above = int((rows.loc[~inside, "efficiency"] > rows.loc[~inside, "most_efficiency"]).sum())
        below = int((~inside).sum()) - above
        sentences.append(f"Above the band: {above}; below it: {below}.")
    sentences.append(_longer(rows))
    slow = _usual(table, _slowest(table)).drop(index="alone", errors="ignore")
    shares = listed(f"{name.upper()} {units.percent(own['efficiency'])}" for name, own in slow.iterrows())
    sentences.append(f"At {rate(_slowest(table))}: {shares}.")
    return say(*sentences, small=fact(table, "small"))


def _longer(rows: pd.DataFrame) -> str:
    """Say how far steps are from what the lines predict with nothing hidden, at the slowest and the fastest link."""
    slowest, fastest = rows["link_mbit"].min(), rows["link_mbit"].max()
    over = rows["least_efficiency"].astype(float) / rows["efficiency"] - 1
    said = [f"{units.span(over[rows['link_mbit'] == one], units.percent)} at {rate(one)}" for one in (slowest, fastest)]
    sentence = f"Against the lines with nothing hidden, steps are longer by {listed(dict.fromkeys(said))}."
    means = [over[rows["link_mbit"] == one].abs().mean() for one in (slowest, fastest)]
    if slowest == fastest:
        return sentence
    better = "slower" if means[0] < means[1] else "faster"
    return f"{sentence} The {better} the link, the better the lines predict: what they leave out is work of the CPUs."


def in_band(rows: pd.DataFrame) -> pd.Series:
    """Return, for each row, whether its efficiency lies between both predictions, give or take its spread."""
    spread = rows["spread_efficiency"].fillna(0)
    low = rows["efficiency"] + spread >= rows["least_efficiency"].astype(float)
    return low & (rows["efficiency"] - spread <= rows["most_efficiency"].astype(float))


@about_tables
def explain_local_steps(table: pd.DataFrame) -> Markdown:
    """Say how many bytes rarer exchanges save, and what they cost in loss after as many steps."""
    rows = table.set_index("every")
    sentences = []
    for every, row in rows[rows.index > 1].iterrows():
        saved = f"An exchange every {every} steps sends {units.times(row['times_less'])} less than one per step"
        if 1 not in rows.index:
            continue
        first = rows.loc[1]
        difference = row["final_loss"] - first["final_loss"]
        noise = row["spread_final_loss"] + first["spread_final_loss"]
        nats = units.number(abs(difference), 2)
        end = f"ends {nats} nats {'higher' if difference > 0 else 'lower'}"
        if abs(difference) <= noise:
            end += f", no more than the seeds differ (± {units.number(noise, 2)})"
        elif abs(difference) <= _SAME_LOSS:
            end += f", too little to tell (less than {_SAME_LOSS:g})"
        sentences.append(f"{saved} and {end}.")
    apart = float(table["apart"].max())
    alike = "All ranks end with the same weights." if apart == 0 else f"**Ranks end {units.number(apart)} apart.**"
    seeds = int(table["seeds"].min())
    caution = (
        f"{seeds} seed{'s' if seeds > 1 else ''} of a tiny model show{'' if seeds > 1 else 's'} a direction, not a law."
    )
    return say(*sentences, alike, caution, small=fact(table, "small"))
