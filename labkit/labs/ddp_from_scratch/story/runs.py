"""Tables of lab 10 → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

from math import inf

import pandas as pd
from IPython.display import Markdown

from labkit.labs.ddp_from_scratch.theory import GOAL_OVER_DDP, MIB, NAMES
from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import listed, resolved, say


def explain_steps(table: pd.DataFrame, sent: pd.DataFrame) -> Markdown:
    """Say what sending costs each, at which rate, who saves how much of it, how torch compares, what it needs."""
    rows = table[table["status"] == "ok"].drop_duplicates("strategy").set_index("strategy")
    failed = [f"{NAMES[row.strategy]} ({row.status})" for row in table[table["status"] != "ok"].itertuples()]
    small = fact(table, "small")
    sentences = [_cost(rows), *_rates(sent), _once(rows), _saved(rows), _torch(rows, small), _memory(rows)]
    sentences.append(f"Not measured: {listed(failed)}." if failed else None)
    return say(*sentences, small=small)


def _cost(rows: pd.DataFrame) -> str | None:
    if "none" not in rows.index:
        return None
    none, others = rows.loc["none"], rows.drop(index="none")
    clear = [_apart(row, none) and row["exposed_ms"] > 0 for _, row in others.iterrows()]
    costs = [
        f"{NAMES[name]} {_ms(row['exposed_ms'])} ({units.percent(row['exposed_share'])} of its step)"
        for name, row in others[clear].iterrows()
    ]
    lost = [NAMES[name] for name in others.index[[not one for one in clear]]]
    said = f"A step that sends nothing takes {_ms(none['step_ms'])}. "
    said += f"Sending adds to it: {listed(costs)}." if costs else "What sending adds is not resolved by these data."
    return f"{said} Not resolved from it: {listed(lost)}." if costs and lost else said


def _rates(sent: pd.DataFrame) -> list[str]:
    """Say at what rate naive and flat send, of what the links allow, and which of the two is faster at it."""
    sentences = []
    for row in sent.itertuples():
        share = f", {units.percent(row.share_of_limit)} of what the links allow" if row.share_of_limit > 0 else ""
        sentences.append(
            f"{NAMES[row.strategy].capitalize()} waits {_ms(row.waited_ms)} for its gradients: "
            f"{units.rate(row.bus_gb_per_s)}{share}."
        )
    waited = sent.set_index("strategy")["waited_ms"]
    if {"naive", "flat"} <= set(waited.index):
        more = "the copies weigh more" if waited["flat"] > waited["naive"] else "the calls that it saves weigh more"
        sentences.append(f"Flat pays for one call and for two copies of every gradient: {more}.")
    return sentences


def _once(rows: pd.DataFrame) -> str | None:
    if not {"flat", "overlapped"} <= set(rows.index):
        return None
    flat, single = rows.loc["flat"], rows.loc["overlapped"]
    if not _apart(flat, single):
        return "Whether flat's one call or overlapped's many are faster is not resolved by these data."
    gap = _ms(abs(flat["step_ms"] - single["step_ms"]))
    if flat["step_ms"] > single["step_ms"]:
        return (
            f"**One call is not faster than many that begin early**: flat sends when backward is over, and takes "
            f"{gap} longer than overlapped."
        )
    return f"**Here one call beats many that begin early**: flat is {gap} faster than overlapped."


def _saved(rows: pd.DataFrame) -> str | None:
    """Say which share of what naive's sending adds the others save, by fewer calls or by sending during backward."""
    if not {"naive", "none"} <= set(rows.index) or not _apart(rows.loc["naive"], rows.loc["none"]):
        return None
    others = rows[rows["hidden_share"].notna() & (rows.index != "naive")]
    clear = [_apart(row, rows.loc["naive"]) for _, row in others.iterrows()]
    parts = [
        f"{NAMES[name]} {units.percent(min(1.0, share))}" if share > 0 else f"{NAMES[name]} **nothing**"
        for name, share in others.loc[clear, "hidden_share"].items()
    ]
    lost = [NAMES[name] for name in others.index[[not one for one in clear]]]
    said = f"Of what sending adds to naive, there save: {listed(parts)}." if parts else ""
    return f"{said} Not told apart from naive: {listed(lost)}.".strip() if lost else said


def _torch(rows: pd.DataFrame, small: bool) -> str | None:
    if not {"bucketed", "ddp"} <= set(rows.index):
        return None
    own = rows.loc["bucketed"]
    return f"Bucketed takes {_beside_torch(own, bool(own['resolved']), small)}"


def _beside_torch(row: pd.Series, apart: bool, small: bool) -> str:
    """Say a step as a factor of torch's, whether the two are told apart, and on GPUs whether the target is met."""
    ratio, spread = row["over_ddp"], row["spread_over_ddp"]
    said = f"{units.number(ratio)} × torch's DDP{'' if apart else ', not told apart from it by these data'}"
    if small:
        return f"{said}."
    if abs(ratio - GOAL_OVER_DDP) <= spread:
        noise = units.number(spread, 2)
        return f"{said}: with a spread of {noise}, whether it keeps the {GOAL_OVER_DDP} × asked for is open."
    return f"{said}: {'at most' if ratio <= GOAL_OVER_DDP else '**more than**'} the {GOAL_OVER_DDP} × asked for."


def _memory(rows: pd.DataFrame) -> str | None:
    if "extra_mib" not in rows or rows["extra_mib"].isna().all():
        return None
    parts = [
        f"{NAMES[name]} {units.size(extra * MIB)}"
        for name, extra in rows["extra_mib"].items()
        if name != "none" and extra > 0.02 * rows["extra_mib"].max() > 0
    ]
    return f"More memory at the peak than without sending: {listed(parts)}." if parts else "None needs more memory."


def explain_overlap(table: pd.DataFrame) -> Markdown:
    """Say who calls collectives during backward, who only after it, and whether calls and bytes are those asked for."""
    rows = table[table["collectives"] > 0]
    if rows.empty:
        return say("Nothing was sent.", small=fact(table, "small"))
    early = rows["before_last_gradient"] > 0
    during, after = rows[early], rows[~early]
    sentences = []
    if len(during):
        parts = [f"{NAMES[r.strategy]} {r.before_last_gradient} of {r.collectives}" for r in during.itertuples()]
        sentences.append(f"Called while gradients were still to come: {listed(parts)}.")
    if len(after):
        names = listed(NAMES[name] for name in after["strategy"])
        sentences.append(f"**Only when all were there**: {names}; nothing of theirs can be hidden.")
    wrong = rows[~rows["equal"].astype(bool)]
    if wrong.empty:
        sentences.append("Every strategy makes as many calls, of as many bytes, as was asked for.")
    else:
        parts = [f"{NAMES[row.strategy]} ({row.collectives} calls, {row.due} due)" for row in wrong.itertuples()]
        sentences.append(f"**Not what was asked for**: {listed(parts)}.")
    return say(*sentences, small=fact(table, "small"))


def explain_buckets(table: pd.DataFrame, fit: pd.DataFrame) -> Markdown:
    """Say which sizes are fastest, whether the formula fits and finds them, and how torch's DDP compares."""
    small, ran = fact(table, "small"), table["status"] == "ok"
    own = table[(table["strategy"] == "bucketed") & ran]
    if own.empty:
        return say("No bucket size was measured.", small=small)
    best, worst = own.loc[own["step_ms"].idxmin()], own.loc[own["step_ms"].idxmax()]
    tied = [f"{mb:g}" for mb in own.loc[own["tied"].astype(bool), "bucket_mb"] if mb != best["bucket_mb"]]
    said = f"Buckets of {best['bucket_mb']:g} MB are fastest, {_ms(best['step_ms'])}"
    said += f"; not told apart from that: {listed(tied)} MB." if tied else "."
    sentences = [said]
    if _apart(best, worst):
        sentences.append(f"The slowest, {worst['bucket_mb']:g} MB, takes {_ms(worst['step_ms'])}.")
    sentences += [f"{row.bucket_mb:g} MB: {row.status}." for row in table[~ran].itertuples()]
    return say(*sentences, *(_model(row, own) for _, row in fit.iterrows()), _ddp(table, best), small=small)


def _model(found: pd.Series, own: pd.DataFrame) -> str:
    """Say what the fit sees, and whether its best size lies where the fastest were measured."""
    call, rate = f"o = {units.seconds(found['overhead_us'] / 1e6)} a call", f"w = {units.rate(found['gb_per_s'])}"
    if pd.isna(found["optimum_mib"]):
        terms = ((call, found["overhead_us"] > 0), (rate, found["gb_per_s"] < inf))
        seen = [term for term, is_seen in terms if is_seen]
        return f"Of n·o + s/(n·w) the fit sees {listed(seen)} alone: **by it no size is best.**"
    said = (
        f"n·o + s/(n·w) with {call} and {rate} misses no size by more than {units.percent(found['residual'])}. Its "
        f"best mean bucket is {units.number(found['optimum_mib'])} MiB"
    )
    least, most = found["tied_from_mib"], found["tied_to_mib"]
    span = f"{units.number(least)} to {units.number(most)} MiB" if least < most else f"{units.number(least)} MiB"
    if not found["identified"]:
        return f"{said}; measured, {span} are alike up to the sweep's end: **the best is not resolved by these data.**"
    below, above = own["mean_mib"][own["mean_mib"] < least].max(), own["mean_mib"][own["mean_mib"] > most].min()
    slower = f"{units.number(below)} and {units.number(above)} MiB are slower"
    if below < found["optimum_mib"] < above:
        return f"{said}, **where the fastest were measured**: {span}; {slower}."
    return f"{said}, **not where the fastest were measured**: {span}; {slower}."


def _ddp(table: pd.DataFrame, best: pd.Series) -> str | None:
    if pd.isna(best["over_ddp"]):
        return None
    apart = resolved(best["step_ms"], fact(table, "ddp_ms"), best["spread_step_ms"], fact(table, "spread_ddp_ms"))
    return f"That is {_beside_torch(best, apart, fact(table, 'small'))}"


def explain_equality(table: pd.DataFrame) -> Markdown:
    """Say whether all strategies average as one process does in every case, and where they do not."""
    wrong, strategies = table[~table["equal"].astype(bool)], table["strategy"].nunique()
    cases = table["case"].nunique()
    if wrong.empty:
        exact = table["tolerance"] == table["tolerance"].min()
        worst = table.loc[exact, ["gradient_error", "weight_error", "buffer_error"]].max(axis=None)
        return say(
            f"All {strategies} strategies on {fact(table, 'ranks')} ranks do in all {cases} cases what one process "
            f"does. The largest error in float32 is {worst:.0e}: rounding.",
            small=fact(table, "small"),
        )
    names = listed(f"{NAMES[row.strategy]} ({row.case})" for row in wrong.itertuples())
    return say(f"**Not as one process**: {names}.", small=fact(table, "small"))


def _apart(one: pd.Series, other: pd.Series) -> bool:
    return resolved(one["step_ms"], other["step_ms"], one["spread_step_ms"], other["spread_step_ms"])


def _ms(value_ms: float) -> str:
    return units.seconds(value_ms / 1e3)
