"""The published table of DDP implementations → sentences: what repeats, what a size can mean, what was not found."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.story import units, words

_SLACK = 0.1  # of the communication: what may seem hidden beyond all of it
_NEAR = 0.02  # steps this near are the same
_FULL = 0.7  # of a link's datasheet rate, which no collective reaches


def doubt_reports(
    *,
    repeats: pd.DataFrame,
    sizes: pd.DataFrame,
    links: pd.DataFrame,
    flat: pd.DataFrame,
    hidden: pd.DataFrame,
    optimum: pd.DataFrame,
    memory: pd.DataFrame,
) -> Markdown:
    """Say, as at most seven bullets, which differences count, what a link and a GPU allow, and what does not follow.

    Takes the tables of `tables.reading.everything` by their names.
    """
    sentences = [
        _repeats(repeats, sizes),
        _calls(sizes, repeats),
        _links(links),
        _flat(flat),
        _hidden(hidden),
        _optimum(optimum, links),
        _memory(memory),
    ]
    return Markdown("\n".join(f"- {sentence}" for sentence in sentences if sentence))


def _repeats(repeats: pd.DataFrame, sizes: pd.DataFrame) -> str:
    spread = repeats["over_least"].max()
    times = words.listed(units.number(step) for step in repeats["step_s"])
    said = f"Individual parameters, overlapped, are printed {len(repeats)} times: {times} s"
    said += f", {units.percent(spread)} apart"
    within = sizes[sizes["apart"] <= spread]
    if within.empty:
        return f"{said}: less than any two bucket sizes are."
    pairs = words.listed(
        f"{row.small_mb:g} and {row.large_mb:g} MB ({units.percent(row.apart)})" for row in within.itertuples()
    )
    return f"{said}. **Bucket sizes less apart than that are not told apart**: {pairs}."


def _calls(sizes: pd.DataFrame, repeats: pd.DataFrame) -> str:
    same = sizes[sizes["small_calls"] == sizes["large_calls"]]
    if same.empty:
        return "Every bucket size means another number of calls, so that each may take its own time."
    row = same.loc[same["apart"].idxmax()].to_dict()
    small, large = (f"{row[f'{end}_mb']:g}" for end in ("small", "large"))
    calls, other = units.count(row["small_calls"]), units.count(row["large_mib_calls"])
    said = (
        f"A bucket takes whole gradients, and XL's matrices hold 10 MB or more: buckets of {small} and of {large} MB "
        f"are the same {calls} calls (of {large} MiB, {other}). They are printed {units.percent(row['apart'])} apart"
    )
    if row["apart"] <= _NEAR:
        return f"{said}, as they should be."
    worse = row["apart"] > repeats["over_least"].max()
    return f"{said}: **{'worse than' if worse else 'as'} the repeats above, and no size's doing.**"


def _links(table: pd.DataFrame) -> str:
    wrong = table[table["verdict"] == "impossible"]
    if len(wrong):
        return f"**No NVLink moves the gradients as fast as printed**: {words.listed(wrong['implementation'])}."
    best = table.loc[table["gb_per_s"].idxmax()]
    shares = words.listed(f"{units.percent(row.share_of_step)} ({row.implementation})" for row in table.itertuples())
    rate, limit = units.rate(best["gb_per_s"]), units.rate(best["limit"])
    said = (
        f"Communication is printed as {shares} of a step. XL's float32 gradients are {units.number(best['sent_gb'])} "
        f"GB, and each of two GPUs sends as much: at best here {rate}, {units.percent(best['share_of_limit'])} of "
        f"NVLink's {limit}, where {units.seconds(best['least_s'])} would do"
    )
    if best["communication_s"] >= best["pcie_s"]:
        return f"{said}: **as slow as PCIe.**"
    full = "nearly full" if best["share_of_limit"] > _FULL else "far from full"
    return f"{said}. PCIe would take {units.seconds(best['pcie_s'])}: **NVLink was used, and {full}.**"


def _flat(table: pd.DataFrame) -> str:
    row = table.iloc[0]
    slower, more, copying = (units.seconds(row[name]) for name in ("slower_s", "communication_s", "copy_s"))
    if row["slower_s"] <= 0:
        return "Flat is no slower than naive: one call beats hundreds, as it should."
    said = f"Flat, one call for hundreds, is {slower} slower than naive"
    rest = row["slower_s"] - max(0.0, row["communication_s"]) - row["copy_s"]
    if rest <= 0:
        return f"{said}: its communication ({more} more) and copying ({copying}) explain that."
    return (
        f"{said}; {more} of that is communication, which one call should make less, and copying takes {copying}: "
        f"**{units.seconds(rest)} are not explained.**"
    )


def _hidden(table: pd.DataFrame) -> str:
    beyond, none = table[table["share"] > 1], table[table["share"] <= 0]
    said = []
    if len(beyond):
        row = beyond.loc[beyond["share"].idxmax()]
        whole = "**more than there is to hide**" if row["share"] > 1 + _SLACK else "as much as there is"
        said.append(f"{row['printed']} saves {units.percent(row['share'])} of naive's communication, {whole}")
    if len(none):
        said.append(f"**slower than naive, which hides nothing**, are {words.listed(none['printed'])}")
    if not said:
        least, most = units.percent(table["share"].min()), units.percent(table["share"].max())
        said = [f"overlapping hides {least} to {most} of naive's communication"]
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _optimum(table: pd.DataFrame, links: pd.DataFrame) -> str:
    printed, moved = table.iloc[0], table.iloc[1:]["best_mb"]
    if pd.isna(printed["best_mb"]):
        return "n·o + s/(n·w) through the printed sizes has a negative cost: **no size is best by these figures.**"
    known = links["gb_per_s"].max()
    said = (
        f"n·o + s/(n·w) through the printed sizes gives w = {units.rate(printed['gb_per_s'])} and a best size of "
        f"{units.number(printed['best_mb'], 2)} MB"
    )
    if abs(printed["gb_per_s"] / known - 1) > 0.5:
        said += f"; the report's own communication ran at {units.rate(known)}: **the formula is not what was timed**"
    lost = moved.isna().sum()
    if lost:
        said += f". Each step moved by half of what repeats are apart, {lost} of {len(moved)} fits have no best size"
    return f"{said}; moved so, it is {units.number(moved.min(), 2)} to {units.number(moved.max(), 2)} MB."


def _memory(table: pd.DataFrame) -> str:
    lost, ran = table[~table["ran"]], table[table["ran"]]
    if lost.empty:
        return "Every bucket size fitted."
    row, largest = lost.iloc[0], ran.loc[ran["bucket_gb"].idxmax()]
    states, limit = units.number(row["states_gb"]), units.number(row["limit_gb"])
    said = f"Buckets of {units.number(1e3 * row['bucket_gb'])} MB ran out of memory"
    if largest["bucket_gb"] > row["bucket_gb"]:
        return (
            f"{said}; {largest['implementation']}, one bucket of {units.number(largest['bucket_gb'])} GB, did not, and "
            f"weights, gradients and AdamW's states take {states} of {limit} GB: **something else than the size filled "
            "it.**"
        )
    return f"{said}: no larger bucket ran, and states take {states} of {limit} GB."
