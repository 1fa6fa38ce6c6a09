"""Tables of lab 02 → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import about_tables, listed, resolved, say, with_table
from lessons.broadcast.theory import MEAN, NAMES

_SAME = 1.10  # a gain of less than 10 % is called none
_PLATEAU = 1.01  # chunk counts within 1 % of the best


@about_tables
def explain_methods(table: pd.DataFrame) -> Markdown:
    """Say which method was fastest, how far behind the slowest is, how near the links it comes, and what failed."""
    small = fact(table, "small")
    right = table[(table["status"] == "ok") & (table["method"] != "links")].sort_values("seconds")
    if right.empty:
        return say("No setting brought right copies to every GPU.", small=small)
    first, last = right.iloc[0], right.iloc[-1]
    if len(right) == 1:
        return say(f"One setting was right, {_setting(first)}: {units.seconds(first['seconds'])}.", small=small)
    return say(_fastest(first, last, right), _above_links(first), _failures(table), small=small)


def _fastest(first: pd.Series, last: pd.Series, right: pd.DataFrame) -> str:
    rivals = right[right["method"] != first["method"]]
    if len(rivals) and not _differ(first, rival := rivals.iloc[0]):
        return (
            f"Two methods are equally fast within noise: **{_setting(first)}** ({units.seconds(first['seconds'])}) and "
            f"**{_setting(rival)}** ({units.seconds(rival['seconds'])})."
        )
    return (
        f"Fastest: **{_setting(first)}**, {units.number(1e3 * first['seconds'])} ms. Slowest: {_setting(last)}, "
        f"{units.number(1e3 * last['seconds'])} ms, {units.times(last['seconds'] / first['seconds'])} as long."
    )


def _above_links(first: pd.Series) -> str | None:
    if not first["share_of_links"] > 0:
        return None
    factor = 1 / first["share_of_links"]
    side = f"{units.percent(abs(factor - 1))} {'above' if factor >= 1 else 'below'}"
    against = f"{side} that" if factor < 2 else f"{units.times(factor)} that"
    return (
        f"The fastest, {NAMES[first['method']]}, takes a time {against} of `links` from the same memory. "
        "`links` only brings the tensor in once."
    )


def _failures(table: pd.DataFrame) -> str:
    wrong, impossible = table[table["status"] != "ok"], int((table["verdict"] == "impossible").sum())
    copies = f"All {len(table)} settings (`links` included) brought the right values."
    if len(wrong):
        copies = (
            f"{len(wrong)} of {len(table)} settings failed ({listed(dict.fromkeys(wrong['status']))}) and are left out."
        )
    beaten = f" {impossible} settings are faster than the datasheet allows: do not believe these." if impossible else ""
    return copies + beaten


def explain_host_rates(table: pd.DataFrame) -> Markdown:
    """Say how the total rate of the host links under direct compares with that under `links`, and what each counts."""
    rows = table.set_index("method").reindex(["links", "direct"])
    if rows["gb_per_s"].isna().any():
        return say("This run has no pinned `links` and direct to compare.")
    links, direct = rows.loc["links"], rows.loc["direct"]
    more = direct["gb_per_s"] / links["gb_per_s"] - 1
    noise = sum(row["spread_gb_per_s"] for row in (links, direct)) / links["gb_per_s"]
    differ = resolved(*rows["gb_per_s"], *rows["spread_gb_per_s"])
    sentences = say(
        f"Under direct, all host links together carry {units.percent(abs(more))} {'more' if more >= 0 else 'less'} "
        f"GB/s than under `links`, {'beyond' if differ else 'within'} noise (± {units.percent(noise)}).",
        _limit_of_links(links, direct)
        if differ and more > 0
        else "**Direct moves no more bytes per second through the host links than `links` does.**",
    )
    names = {
        "ms": "ms",
        "through_host_links_gib": "GiB through all host links",
        "gb_per_s": "GB/s through them",
        "spread_gb_per_s": "± GB/s",
    }
    shown = table.assign(method=table["method"].map(NAMES)).rename(columns=names)
    return with_table(shown[["method", *names.values()]], sentences)


def _limit_of_links(links: pd.Series, direct: pd.Series) -> str:
    """Say that the links can carry more than `links` makes them carry, and what each of the two times counts."""
    faster = links["ms"] * links["gb_per_s"] / direct["gb_per_s"]
    gib = units.number(links["through_host_links_gib"])
    return (
        f"**So the time of `links`, {units.number(links['ms'])} ms, is not the least time that the hardware allows.** "
        f"It is a measured time: {gib} GiB came in once, a share through each host link. "
        f"At the rate of direct, {gib} GiB would take {units.number(faster)} ms."
    )


def explain_pinning(table: pd.DataFrame, ablation: pd.DataFrame) -> Markdown:
    """Say which cause counts for more from direct pageable to pipelined pinned, then what scatter + all-gather adds.

    `table` holds the `causes` of the `ablation`.
    """
    small = fact(table, "small")
    if table.empty:
        return say(
            "This run lacks direct or pipelined from one of the memories, so it cannot separate the two causes. "
            "The recorded run can.",
            small=small,
        )
    pinning, path = (table.set_index("order")[cause] for cause in ("pinning", "path"))
    mean_pinning, mean_path = pinning[MEAN], path[MEAN]
    more, less = ("pinning", "the path") if mean_pinning >= mean_path else ("the path", "pinning")
    factors = [units.times(factor) for factor in sorted((mean_pinning, mean_path), reverse=True)]
    verdict = (
        f"**{more.capitalize()} counts for more than {less}**: {factors[0]} against {factors[1]} (geometric means)."
    )
    if max(mean_pinning, mean_path) <= _SAME * min(mean_pinning, mean_path):
        verdict = f"Pinning and the path count for the same: {factors[0]} and {factors[1]} (geometric means)."
    sentences = say(verdict, _path_sentence(path), _thread_sentence(pinning), _scatter_sentence(ablation), small=small)
    names = {"pinning": "gain by pinning", "path": "gain by the path", "together": "both together"}
    gains = table.rename(columns=names)
    for name in names.values():
        gains[name] = [units.times(gain) for gain in gains[name]]
    return with_table(gains, sentences)


def _path_sentence(path: pd.Series) -> str:
    after = f"gains {units.times(path['pinning first'])}" if path["pinning first"] > _SAME else "gains nothing"
    before = f"it gains {units.times(path['path first'])}" if path["path first"] > _SAME else "it gains nothing either"
    return f"From pinned memory the pipelined path {after} over direct; from pageable memory {before}."


def _thread_sentence(pinning: pd.Series) -> str | None:
    """Compare direct's gain by pinning with that of pipelined, which makes one copy at a time."""
    direct, single = pinning["pinning first"], pinning["path first"]
    if not direct > single * 1.5:
        return None
    return (
        f"The reason: pinning makes one copy {units.times(single)} as fast. Also, direct's copies run simultaneously "
        "from pinned memory, and one after another from pageable memory."
    )


def _scatter_sentence(ablation: pd.DataFrame) -> str | None:
    seconds = ablation.set_index("method")["pinned_seconds"].reindex(["pipelined", "scatter_all_gather"])
    if seconds.isna().any():
        return None
    gain = seconds["pipelined"] / seconds["scatter_all_gather"]
    if not gain > _SAME:
        return f"Scatter + all-gather gains nothing over pipelined ({units.times(gain)}): more host links did not help."
    return (
        f"**From pinned memory, the path of scatter + all-gather helps**: it is {units.times(gain)} as fast as "
        "pipelined, because the host links of all GPUs carry a share each."
    )


@about_tables
def explain_ring(table: pd.DataFrame) -> Markdown:
    """Say where the pinned ring stands between pageable and pinned memory; takes `ring_position`."""
    small, rows = fact(table, "small"), table.set_index("source")
    ring, pageable, pinned = "pageable, through a pinned ring", "pageable", "pinned"
    if ring not in rows.index or pageable not in rows.index:
        return say("This run did not measure the ring and pageable memory.", small=small)
    gain = rows.loc[pageable, "ms"] / rows.loc[ring, "ms"]
    equal = not resolved(*rows.loc[[pageable, ring], "ms"], *rows.loc[[pageable, ring], "spread_ms"])
    first = (
        "The ring makes no difference beyond noise."
        if equal
        else f"**With the ring, the broadcast is {units.times(gain)} as fast as from pageable memory"
        f"{': the ring does not pay' if gain < 1 else ''}.**"
    )
    second = None
    if pinned in rows.index:
        longer = rows.loc[ring, "times_pinned"] - 1
        more = "longer" if longer >= 0 else "less"
        second = f"It takes {units.percent(abs(longer))} {more} than a source that is pinned as a whole."
    names = {"spread_ms": "± ms", "gb_per_s": "GB/s", "times_pinned": "ms, divided by pinned ms"}
    return with_table(table.dropna(axis="columns", how="all").rename(columns=names), say(first, second, small=small))


def explain_chunks(table: pd.DataFrame) -> Markdown:
    """Say, per method and memory, which number of chunks was best and whether the choice mattered beyond noise."""
    measured = table[table["seconds"].notna()]
    if measured.empty:
        return say("No chunked broadcast was measured.")
    groups = measured.groupby(["memory", "method"], sort=False)
    lines = [f"- {_chunk_sentence(NAMES[method], memory, rows)}" for (memory, method), rows in groups]
    return say("\n".join([*lines, *_one_for_all(measured)]), small=fact(table, "small"))


def _one_for_all(measured: pd.DataFrame) -> list[str]:
    """Name the number of chunks whose largest loss over all methods and memories is least, where there are several."""
    fastest = measured.groupby(["method", "memory"])["seconds"].transform("min")
    longer = measured.assign(loss=measured["seconds"] / fastest - 1)
    losses = longer.pivot_table(index=["method", "memory"], columns="chunks", values="loss").dropna(axis=1)
    if len(losses) < 2 or losses.shape[1] < 2:
        return []
    most = losses.max()
    chosen = most.idxmin()
    return [
        f"\n**Take {chosen} chunks if you want one number for all**: it takes at most {units.percent(most[chosen])} "
        "longer than the fastest number of the same method and memory."
    ]


def _chunk_sentence(method: str, memory: str, rows: pd.DataFrame) -> str:
    name = f"{method.capitalize()} from {memory} memory"
    low, high = rows.loc[rows["seconds"].idxmin()], rows.loc[rows["seconds"].idxmax()]
    if len(rows) == 1:
        return f"{name}: only {low['chunks']} chunks were measured."
    if not _differ(low, high):
        return f"{name}: the number of chunks makes no difference beyond noise."
    near = sorted(rows.loc[rows["seconds"] <= _PLATEAU * low["seconds"], "chunks"])
    within = f" ({listed(near)} chunks are within {units.percent(_PLATEAU - 1)})" if len(near) > 1 else ""
    longer = units.percent(high["seconds"] / low["seconds"] - 1)
    return f"{name}: **{low['chunks']} chunks** are fastest{within}; {high['chunks']} chunks take {longer} longer."


def _differ(one: pd.Series, other: pd.Series) -> bool:
    """Return whether two rows' times differ by more than their spreads together."""
    return resolved(one["seconds"], other["seconds"], one["spread_seconds"], other["spread_seconds"])


def _setting(row: pd.Series) -> str:
    chunks = f", {row['chunks']} chunks" if row["chunks"] > 1 else ""
    return f"{NAMES[row['method']]} from {row['memory']} memory{chunks}"
