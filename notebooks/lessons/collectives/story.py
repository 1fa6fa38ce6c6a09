"""Tables of lab 09 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact, run_name
from labkit.story import units
from labkit.story.verdict import one_minute, verdict
from labkit.story.words import listed, resolved
from lessons.collectives import tables
from lessons.collectives.theory import FLAT, NAMES, backends, is_noise

if TYPE_CHECKING:
    from labkit.engine.run import Run

_ALL_REDUCE, _CLOCK = "all-reduce", "in flight"
_CLOCKS = {"in flight": "in flight", "one call": "one call, waited for"}
_GOOD = 0.1  # a line that is nowhere further off fits


def start_up(times: pd.DataFrame) -> Markdown:
    """Say what the report's largest message takes in its smallest one's time; takes `published_times`."""
    rows = times[(times["backend"] == "nccl") & (times["processes"] == 2)].sort_values("megabytes")
    first, last = rows.iloc[0], rows.iloc[-1]
    bytes_more, time_more = last["megabytes"] / first["megabytes"], last["seconds"] / first["seconds"]
    return verdict(
        f"**Between two GPUs, {units.number(bytes_more)} times the bytes take {units.times(time_more)} the time.**"
    )


def same_sums(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say whether our ring gives the right sums and sends the formula's bytes, and what Python costs; takes `rings`."""
    both = pd.concat([here.assign(run="this run"), recorded.assign(run="recorded run")])
    both["sent"] = both["sent_bytes"] / both["bytes"]
    names = {"ours_us": "our ring, µs", "library_us": "library, µs", "sent": "bytes sent by rank 0 / message"}
    shown = both[both["ranks"] == both.groupby("run")["ranks"].transform("max")].rename(columns=names)
    shown = shown[["run", "ranks", "elements", *names.values()]]
    summary = "Every length, with the most ranks of each run"
    if len(wrong := both[both["status"] != "ok"]):
        where = listed(f"{units.count(row.elements)} elements on {row.ranks} ranks" for row in wrong[:1].itertuples())
        return verdict(f"✘ **Our ring is wrong** for {where}.", shown, summary=summary)
    if (both["sent_bytes"] != both["formula_bytes"]).any():
        return verdict("✘ **Our ring sends other bytes than the formula says.**", shown, summary=summary)
    most = recorded[recorded["ranks"] == recorded["ranks"].max()].sort_values("elements").iloc[-1]
    if resolved(most["ours_us"], most["library_us"], most["spread_ours_us"], most["spread_library_us"]):
        cost = f"takes {units.times(most['times'])} the library's time for {units.size(most['bytes'])}"
    else:
        cost = f"takes the library's time for {units.size(most['bytes'])}, within noise"
    head = "✔ **Our ring gives the right sums for every length and sends the formula's bytes**, here and recorded."
    return verdict(f"{head} On {most['ranks']} GPUs it {cost}.", shown, summary=summary)


def smallest(table: pd.DataFrame) -> Markdown:
    """Say up to which size an all-reduce takes the smallest one's time, and what its first call took, by clock below.

    Takes `bandwidths`; of a run with two libraries, the faster one.
    """
    rows = _widest(table)
    line = _in_flight(rows, backends(rows["backend"])[0])
    first, last = line.iloc[0], line[line["median_us"] <= FLAT * line["median_us"].iloc[0]].iloc[-1]
    is_told = (rows["backend"] == "nccl") | (rows["clock"] == _CLOCK)  # gloo's calls return when they are done
    small = rows[is_told & (rows["bytes"] == first["bytes"])]
    shown = pd.DataFrame(
        {
            "library": small["backend"].map(NAMES),
            "clock": small["clock"].map(_CLOCKS),
            "µs per call": small["median_us"],
            "± µs": small["spread_us"],
            "first call, µs": small["first_us"],
        }
    )
    summary = f"An all-reduce of {units.exact_size(first['bytes'])} by every clock"
    time = _us(first["median_us"])
    if is_noise([*line["median_us"]]):
        noise = f"up to {units.exact_size(last['bytes'])} noise is larger than what the size adds"
        return verdict(f"{run_name(table)}: **{noise}**, so no line is drawn.", shown, summary=summary)
    if last["bytes"] == first["bytes"]:
        return verdict(
            f"{run_name(table)}: **the time grows from the first step on**, {time} at first.", shown, summary=summary
        )
    least, most = (units.exact_size(row["bytes"]) for row in (first, last))
    sizes = f"up to {most} an all-reduce takes about as long as with {least}"
    sentence = f"{run_name(table)}: **{sizes}, {time}.**"
    return verdict(sentence, shown, summary=summary)


def first_call(table: pd.DataFrame) -> Markdown:
    """Say what the very first call of a run, among the fewest ranks, took beside a later one; takes `bandwidths`."""
    rows = table[table["ranks"] == table["ranks"].min()].dropna(subset="median_us")
    row = _in_flight(rows, backends(rows["backend"])[0]).iloc[0]
    first, later = _us(row["first_us"]), _us(row["median_us"])
    run = f"{run_name(table)}, {int(row['ranks'])} ranks"
    if pd.isna(row["first_us"]) or row["first_us"] < 2 * row["median_us"]:
        return verdict(f"{run}: the very first call took {first}, no longer than twice a later one.")
    return verdict(f"{run}: **the very first call took {first}**, a later one {later}.")


def knee(table: pd.DataFrame) -> Markdown:
    """Say where bytes begin to count for more than latency, and whether one line fits; all lines below.

    Takes `bandwidths`; the sentence is about the faster library's all-reduce.
    """
    rows = _widest(table, None)
    rows = rows[(rows["clock"] == _CLOCK) & rows["residual"].notna()]
    if rows.empty:
        return verdict("This run has too few sizes for a line.")
    lines = [
        (name, sizes.iloc[0], sizes["residual"].abs().max()) for name, sizes in rows.groupby(["backend", "collective"])
    ]
    shown = pd.DataFrame(
        [
            (
                NAMES[name[0]],
                name[1],
                line["alpha_us"],
                line["beta_gb_per_s"],
                units.exact_size(line["knee_bytes"]),
                units.percent(worst),
            )
            for name, line, worst in lines
        ],
        columns=["library", "collective", "α_call, µs", "β, GB/s", "knee", "largest miss"],
    )
    line = _in_flight(rows, backends(rows["backend"])[0])
    worst = line.loc[line["residual"].abs().idxmax()]
    knees = f"from {_knee_of(line)} on, bytes count for more than latency"
    if _knee_of(line) is None:
        knees = "at no size that was measured do bytes count for more than latency"
    head = f"{run_name(table)}: **{knees}.**"
    if abs(worst["residual"]) <= _GOOD:
        tail = f"One line fits every size within {units.percent(_GOOD)}."
    else:
        side = "short" if worst["residual"] < 0 else "long"
        miss = units.percent(abs(worst["residual"]))
        tail = f"A single line fits badly: at {units.exact_size(worst['bytes'])} it is {miss} too {side}."
    return verdict(f"{head} {tail}", shown, summary="The line of every collective")


def libraries(table: pd.DataFrame) -> Markdown:
    """Say how many times as long gloo takes as NCCL, at the smallest and the largest message; takes `bandwidths`."""
    rows = _widest(table)
    nccl, gloo = (_in_flight(rows, name).set_index("bytes") for name in NAMES)
    sizes = nccl.index.intersection(gloo.index)
    if sizes.empty:
        return verdict("One library alone was measured: two need GPUs.")
    parts = []
    for size in (sizes.min(), sizes.max()):
        fast, slow = (library.loc[size] for library in (nccl, gloo))
        apart = resolved(fast["median_us"], slow["median_us"], fast["spread_us"], slow["spread_us"])
        parts.append(units.times(slow["median_us"] / fast["median_us"]) if apart else "1.0×, within noise,")
    small, large = parts
    return verdict(
        f"**gloo takes {small} the time of NCCL for {units.exact_size(sizes.min())}, {large} for the largest of both.**"
    )


def reached(table: pd.DataFrame) -> Markdown:
    """Say what the largest messages reach of the links, and who is above a ring's bound; takes `bandwidths`."""
    wrong = int(((table["status"] != "ok") | (table["verdict"] == "impossible")).sum())
    rows = _widest(table, None)
    rows = rows[(rows["backend"] == backends(rows["backend"])[0]) & (rows["clock"] == _CLOCK)]
    rows = rows[rows["bytes"] == rows["bytes"].max()].sort_values("bus_gb_per_s", ascending=False)
    share = rows["share_of_limit"]
    names = {"bus_gb_per_s": "bus bandwidth, GB/s", "algorithm_gb_per_s": "algorithm bandwidth, GB/s"}
    shown = rows.rename(columns=names)[["collective", *names.values()]].assign(
        **{
            "limit, GB/s": rows["limit"],
            "of the limit": ["–" if pd.isna(part) else units.percent(part) for part in share],
        }
    )
    best = rows.iloc[0]
    spread = rows["bus_gb_per_s"] * rows["spread_us"] / rows["median_us"]
    near = (best["bus_gb_per_s"] - rows["bus_gb_per_s"] <= spread.iloc[0] + spread) & (rows.index != best.name)
    noise = f" Within noise of it: {listed(rows.loc[near, 'collective'])}." if near.any() else ""
    allows = f", {units.percent(best['share_of_limit'])} of what the links allow" if share.notna().any() else ""
    rate = units.rate(best["bus_gb_per_s"])
    head = f"{run_name(table)}: **{best['collective']} reaches most, {rate}{allows}.**{noise}"
    if len(rows) > 2 and near.sum() == len(rows) - 1:
        head = f"{run_name(table)}: **noise hides the order**; {best['collective']} was fastest, {rate}{allows}."
    if wrong:
        head = f"✘ **{wrong} settings gave wrong values, or beat the links.** {head}"
    elif rows["above_ring"].astype(bool).any():
        head = f"{head} It is above a ring's bound, and no error: the switch adds, so each GPU sends fewer bytes."
    return verdict(head, shown, summary=f"Every collective, {units.exact_size(best['bytes'])}")


def beside_nccl_tests(table: pd.DataFrame) -> Markdown:
    """Say what share of nccl-tests' bus bandwidth ours reaches from 64 MiB up; takes `against`."""
    shown = table.assign(
        message=[units.exact_size(size) for size in table["bytes"]],
        ratio=[units.number(ratio, 3) for ratio in table["ratio"]],
    ).rename(columns={"ours_gb_per_s": "ours, GB/s", "theirs_gb_per_s": "nccl-tests, GB/s", "ratio": "ours / theirs"})
    shown = shown[["collective", "message", "ours, GB/s", "nccl-tests, GB/s", "ours / theirs"]]
    sentence = f"{run_name(table)}: **our clock gives {_least(table)} of nccl-tests' bus bandwidth.**"
    if not fact(table, "installed"):
        sentence = f"{run_name(table)}: nccl-tests is not installed."
    return verdict(sentence, shown, summary="Every collective and size")


def _least(table: pd.DataFrame) -> str:
    ratios = table.loc[table["bytes"] >= tables.LARGE_BYTES, "ratio"].dropna()
    return f"at least {units.number(ratios.min())}" if len(ratios) else "no comparable part"


def clues(table: pd.DataFrame) -> pd.DataFrame:
    """Return `symptoms` for reading: a column per suspect, times in ms."""
    times = {"seconds": "ms", "late_seconds": "late_ms"}
    shown = table.drop(columns=["variant", "message_bytes"]).rename(columns=times)
    for name in times.values():
        shown[name] = [units.number(1e3 * value) for value in shown[name]]
    rates = ["claimed_gb_per_s", "bus_gb_per_s", "wrong_share"]
    shown[rates] = shown[rates].map(units.number)
    return shown.set_axis(list("ABC"[: len(shown)])).T


def in_one_minute(here: Mapping[str, Run], recorded: Mapping[str, Run]) -> Markdown:
    """Return the lesson's rules, each with what it is worth in the runs of this node and in the recorded ones.

    Takes the run by name: "sweep".
    """
    return one_minute(_RULES, here=here, recorded=recorded)


def _fastest(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Return the faster library's all-reduces in flight with the most ranks."""
    rows = _widest(tables.bandwidths(runs["sweep"]))
    return _in_flight(rows, backends(rows["backend"])[0])


def _few_large(runs: Mapping[str, Run]) -> str:
    line = _fastest(runs)
    flat = line[line["median_us"] <= FLAT * line["median_us"].iloc[0]]
    if is_noise([*line["median_us"]]):
        return f"up to {units.exact_size(flat['bytes'].iloc[-1])} noise is larger than what the size adds"
    if len(flat) == 1:
        return "the time grows from the first step on"
    return f"{units.exact_size(flat['bytes'].iloc[-1])} take as long as {units.exact_size(line['bytes'].iloc[0])}"


def _knee(runs: Mapping[str, Run]) -> str:
    line = _fastest(runs)
    if is_noise([*line["median_us"]]):
        return "noise hides the knee"
    size = _knee_of(line)
    return f"knee at {size}" if size else "no knee among these sizes"


def _knee_of(line: pd.DataFrame) -> str | None:
    """Return the size of the knee, where it is among the sizes that were measured."""
    size = line["knee_bytes"].iloc[0]
    return units.exact_size(size) if line["bytes"].min() <= size <= line["bytes"].max() else None


def _bus(runs: Mapping[str, Run]) -> str:
    last = _fastest(runs).iloc[-1]
    share = last["share_of_limit"]
    allows = "no known limit" if pd.isna(share) else f"{units.percent(share)} of {units.rate(last['limit'])}"
    return f"all-reduce of {units.exact_size(last['bytes'])}: {units.rate(last['bus_gb_per_s'])}, {allows}"


def _start(runs: Mapping[str, Run]) -> str:
    first = _fastest(runs).iloc[0]
    if not first["first_us"] > first["median_us"]:
        return "not visible: the first call was not longer"
    return f"{int(first['ranks'])} ranks: first call {_us(first['first_us'])}, later {_us(first['median_us'])}"


_RULES = {
    "Send few, large messages": _few_large,
    "Know the knee: left of it latency counts, right of it bytes": _knee,
    "Compare bus bandwidth with a link's rate": _bus,
    "Keep start-up outside the clock": _start,
}


def _widest(table: pd.DataFrame, collective: str | None = _ALL_REDUCE) -> pd.DataFrame:
    """Return the timed rows with the most ranks of their library, of one collective or of all."""
    rows = table.dropna(subset="median_us")
    rows = rows[rows["ranks"] == rows.groupby("backend")["ranks"].transform("max")]
    return rows if collective is None else rows[rows["collective"] == collective]


def _in_flight(rows: pd.DataFrame, backend: str) -> pd.DataFrame:
    chosen = (rows["backend"] == backend) & (rows["clock"] == _CLOCK) & (rows["collective"] == _ALL_REDUCE)
    return rows[chosen].sort_values("bytes")


def _us(value: float) -> str:
    return units.seconds(value / 1e6)
