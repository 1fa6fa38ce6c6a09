"""Tables of lab 10 → sentences: every statement is tested on the table before it is made."""

from __future__ import annotations

from math import inf

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import about_tables, capitalised, listed, resolved, say
from lessons.ddp_from_scratch.theory import GOAL_OVER_DDP, NAMES

_MOST_PLACES = 3  # of a ratio; fewer where its spread is larger


@about_tables
def explain_steps(table: pd.DataFrame, sent: pd.DataFrame) -> Markdown:
    """Say which strategies cost time beyond noise, whether overlap helps, how torch compares; then rate and memory."""
    rows = table[table["status"] == "ok"].drop_duplicates("strategy").set_index("strategy")
    failed = [f"{NAMES[row.strategy]} ({row.status})" for row in table[table["status"] != "ok"].itertuples()]
    sentences = [
        _cost(rows),
        _hidden(rows),
        _overlap_against_flat(rows),
        _against_torch(rows, fact(table, "small")),
        _rate(sent),
    ]
    sentences += [_memory(rows), f"Not measured: {listed(failed)}." if failed else None]
    return say(*sentences, small=fact(table, "small"))


def _cost(rows: pd.DataFrame) -> str | None:
    """Say which strategies take longer than a step that sends nothing, and the largest difference."""
    if "none" not in rows.index:
        return None
    others = rows.drop(index="none")
    clear = others[others["longer_ms"] > others["spread_longer_ms"]]
    within = [NAMES[name] for name in others.index if name not in clear.index]
    if clear.empty:
        return "**Beyond noise, no strategy takes longer than a step that sends nothing**: this run cannot rank them."
    most = clear["longer_ms"].idxmax()
    who = f"these are longer than a step that sends nothing: {listed(NAMES[name] for name in clear.index)}"
    sentence = f"**Beyond noise, {who}.** {capitalised(NAMES[most])} adds most, {_ms(clear['longer_ms'][most])}."
    return f"{sentence} The others differ from it by no more than noise: {listed(within)}." if within else sentence


def _hidden(rows: pd.DataFrame) -> str | None:
    """Say how much of the time that naive adds is gone in the fastest class that sends during backward."""
    during = rows[rows.index.isin(["overlapped", "bucketed"])]
    if during.empty or not {"none", "naive"} <= set(rows.index):
        return None
    naive, best = rows.loc["naive"], during.loc[during["step_ms"].idxmin()]
    added = f"Naive adds {_ms(naive['longer_ms'])} ± {_ms(naive['spread_longer_ms'])} per step"
    if naive["longer_ms"] <= naive["spread_longer_ms"]:
        return "Naive adds no time beyond noise, so **this run cannot say how much backward hides.**"
    saved_ms, name = naive["step_ms"] - best["step_ms"], NAMES[str(best.name)]
    noise = _ms(naive["spread_step_ms"] + best["spread_step_ms"])
    if not _beyond_noise(naive, best):
        than = f"{name} differs from naive by {_ms(abs(saved_ms))}, which is within noise (± {noise})"
        return f"{added}. {capitalised(than)}, so **this run cannot say how much of it backward hides.**"
    if saved_ms < 0:
        return f"{added}. **Backward hides nothing of it**: {name} is {_ms(-saved_ms)} slower than naive (± {noise})."
    share = units.percent(saved_ms / naive["longer_ms"])
    return f"{added}. **Backward hides {_ms(saved_ms)} of it, {share}**: {name} is that much faster (± {noise})."


def _overlap_against_flat(rows: pd.DataFrame) -> str | None:
    """Say whether one call after backward is slower than many calls during backward."""
    if not {"flat", "overlapped"} <= set(rows.index):
        return None
    flat, overlapped = rows.loc["flat"], rows.loc["overlapped"]
    if not _beyond_noise(flat, overlapped):
        return "One call after backward (flat) and many calls during it (overlapped) differ by no more than noise."
    difference = _ms(abs(flat["step_ms"] - overlapped["step_ms"]))
    if flat["step_ms"] > overlapped["step_ms"]:
        return f"**Many calls during backward beat one call after it**: overlapped is {difference} faster than flat."
    return f"**One call after backward beats many calls during it**: flat is {difference} faster than overlapped."


def _against_torch(rows: pd.DataFrame, small: bool) -> str | None:
    if not {"bucketed", "ddp"} <= set(rows.index):
        return None
    return _ratio_to_torch("Bucketed", rows.loc["bucketed"], small)


def _ratio_to_torch(name: str, row: pd.Series, small: bool) -> str:
    """Say a step as a multiple of torch's DDP, whether they differ beyond noise, and on GPUs whether it is the goal."""
    ratio, spread = row["over_ddp"], row["spread_over_ddp"]
    spread_text = units.number(spread, 2)
    places = min(_MOST_PLACES, len(spread_text.partition(".")[2])) if spread > 0 else _MOST_PLACES
    sentence = f"{name} takes {ratio:.{places}f} × the step of torch's DDP, ± {spread_text}"
    if small:
        return f"{sentence}."
    goal = f"the goal, at most {GOAL_OVER_DDP} ×,"
    if abs(ratio - GOAL_OVER_DDP) <= spread:
        return f"{sentence}: whether it reaches {goal} is open."
    return f"{sentence}: it {'reaches' if ratio <= GOAL_OVER_DDP else '**misses**'} {goal.rstrip(',')}."


def _rate(sent: pd.DataFrame) -> str | None:
    """Say at what rate naive and flat send, which do so while nothing else runs."""
    if sent.empty:
        return None
    rates = listed(f"{NAMES[row.strategy]} sends at {units.rate(row.bus_gb_per_s)}" for row in sent.itertuples())
    limit = float(sent["limit"].iloc[0])
    known = f", where the links allow {units.rate(limit)}" if pd.notna(limit) else ""
    return f"After backward, with nothing else running, {rates}{known}."


def _memory(rows: pd.DataFrame) -> str | None:
    if "extra_mib" not in rows or rows["extra_mib"].isna().all():
        return None
    most = rows["extra_mib"].idxmax()
    if not rows["extra_mib"][most] > 0.01 * rows["peak_mib"][most]:
        return "No strategy needs more memory than a step that sends nothing."
    extra = units.gib(rows["extra_mib"][most] / 1024)
    return f"{capitalised(NAMES[most])} needs most extra memory, {extra}."


@about_tables
def explain_buckets(table: pd.DataFrame, fit: pd.DataFrame) -> Markdown:
    """Say which sizes are fastest, whether the formula fits and finds them, and how torch's DDP compares."""
    small, ran = fact(table, "small"), table["status"] == "ok"
    rows = table[(table["strategy"] == "bucketed") & ran]
    if rows.empty:
        return say("No bucket size was measured.", small=small)
    best = rows.loc[rows["step_ms"].idxmin()]
    sentences = [_fastest(rows, best)]
    sentences += [f"Buckets of {row.bucket_mb:g} MB: {row.status}." for row in table[~ran].itertuples()]
    sentences += [_formula(line, rows) for _, line in fit.iterrows()]
    if pd.notna(best["over_ddp"]):
        sentences.append(_ratio_to_torch("The fastest size", best, small))
    return say(*sentences, small=small)


def _fastest(rows: pd.DataFrame, best: pd.Series) -> str:
    """Say which size is fastest, and which sizes are slower than it beyond noise."""
    sentence = f"Buckets of {best['bucket_mb']:g} MB are fastest, {_ms(best['step_ms'])} per step"
    slower = [f"{mb:g}" for mb in rows.loc[~rows["tied"].astype(bool), "bucket_mb"]]
    if slower:
        return f"{sentence}. Slower beyond noise: {listed(slower)} MB."
    return f"{sentence}, but **no other size is slower beyond noise**." if len(rows) > 1 else f"{sentence}."


def _formula(line: pd.Series, rows: pd.DataFrame) -> str:
    """Say what the fit found, and whether its best size lies among the fastest that were measured."""
    call, rate = f"o = {units.seconds(line['overhead_us'] / 1e6)} per call", f"w = {units.rate(line['gb_per_s'])}"
    if pd.isna(line["optimum_mib"]):
        terms = ((call, line["overhead_us"] > 0), (rate, line["gb_per_s"] < inf))
        known = [term for term, is_known in terms if is_known]
        none = "**the formula has no best size here**: it needs both o and w."
        return f"The fit of n·o + s/(n·w) finds only {listed(known)}, so {none}"
    sentence = (
        f"The fit of n·o + s/(n·w) finds {call} and {rate}; its largest error is {units.percent(line['residual'])}. By "
        f"the formula a mean bucket of {units.number(line['optimum_mib'])} MiB is best"
    )
    least, most = line["tied_from_mib"], line["tied_to_mib"]
    span = f"{units.number(least)} to {units.number(most)} MiB" if least < most else f"{units.number(least)} MiB"
    if not line["identified"]:
        equal = f"**all mean sizes of {span} are equal within noise**"
        return f"{sentence}. The measurement cannot confirm it: {equal}. It cannot judge a prediction in this range."
    below, above = rows["mean_mib"][rows["mean_mib"] < least].max(), rows["mean_mib"][rows["mean_mib"] > most].min()
    among = "**which is among**" if below < line["optimum_mib"] < above else "**which is not among**"
    return f"{sentence}, {among} the sizes measured fastest ({span})."


def _beyond_noise(one: pd.Series, other: pd.Series) -> bool:
    return resolved(one["step_ms"], other["step_ms"], one["spread_step_ms"], other["spread_step_ms"])


def _ms(value_ms: float) -> str:
    return units.seconds(value_ms / 1e3)
