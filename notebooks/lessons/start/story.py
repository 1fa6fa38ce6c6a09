"""Tables of lab 00 → sentences: every claim is tested on the table before it is said."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import say


def explain_size(node, plan) -> Markdown:
    """Say at which size the labs run here, and why."""
    if plan.device == "cuda" and plan.size == "full":
        alone = "Labs that need two GPUs run small, on CPU processes." if len(node.gpus) == 1 else None
        full = f"This node has **{node.label}**: the labs run at full size, the size of the published reports."
        return say(full, alone)
    if plan.device == "cuda":
        return say(
            f"This node has **{node.label}**, and {plan.size} runs were asked for: the reports' figures "
            "are at full size."
        )
    return say(
        f"This machine shows no GPU, so **{plan.gpus} CPU processes stand in for GPUs**.",
        "The labs run small, and beside every small result stands a recorded run on 4 × NVIDIA H200 at full size."
        if plan.size == "small"
        else None,
    )


def explain_ranks(table: pd.DataFrame) -> Markdown:
    """Say whether every rank is there, on a device of its own, and added up right."""
    count = len(table)
    where = "each a process of its own"
    if "gpu" in table:
        where = "each on a GPU of its own" if table["gpu"].nunique() == count else "**but some share a GPU**"
    if table["pid"].nunique() != count:
        where = "**but some share a process**"
    right = table["sum_is_right"].all()
    sums = (
        f"Each got the right sum of all ranks, {sum(range(count))}: they can communicate."
        if right
        else (
            f"**Rank {', '.join(map(str, table.loc[~table['sum_is_right'], 'rank']))} got a wrong sum**: do "
            "not trust this node's links."
        )
    )
    if count == 1:
        return say("One rank answered. It has no other rank to communicate with: two GPUs would show more.")
    return say(f"{count} ranks answered, {where}.", sums)


def explain_startup(table: pd.DataFrame, sums: pd.DataFrame) -> Markdown:
    """Say which part of the start-up is longest and what the first sum costs beside a later one."""
    parts = table.groupby("part", sort=False)["seconds"].max()
    total = table.groupby("rank")["end_s"].max().max()
    longest = (
        f"The second sum begins {units.seconds(total)} after the launch. The longest part of that: "
        f"**{parts.idxmax()}** ({units.seconds(parts.max())})."
    )
    first, later = sums["seconds"].iloc[0], sums["seconds"].iloc[1:].median()
    if first > 3 * later:
        pays = (
            f"The first sum took {units.seconds(first)}, a later one {units.seconds(later)}: the first also sets up "
            "the connections. **Never time the first.**"
        )
    else:
        pays = (
            f"The first sum took {units.seconds(first)}, a later one {units.seconds(later)}: here it costs little to "
            "set up the connections."
        )
    return say(longest, pays)


def explain_failure(error) -> Markdown:
    """Say what the error tells, and what was kept."""
    rows = error.run.rows
    kept = (
        f"{len(rows)} row(s) from before are kept, in `error.run.rows`."
        if len(rows)
        else "Nothing had been measured before."
    )
    return say(
        f"`{type(error).__name__}`: {error.sentence}.",
        f"The cause is rank {error.rank}; the ranks that waited for it are not blamed."
        if error.rank is not None
        else None,
        kept,
    )


def show_error(error) -> Markdown:
    """Show the whole text of the error, as the cell would have without the `try`."""
    return Markdown(f"```text\n{type(error).__name__}: {str(error).replace('```', '')}\n```")


def explain_left(left: list) -> Markdown:
    """Say whether processes of a run are left."""
    if left:
        return say(f"**{len(left)} process(es) of the run are still alive**: {', '.join(str(p.pid) for p in left)}.")
    return say("No process of that run is left: its workers, torchrun and whatever they started have ended.")


def point_to_claims() -> Markdown:
    """Say where all claims of published reports stand, with the labs' verdicts."""
    return say(
        "Each lab recomputes what published reports say about its subject. `make run` collects all these claims, with "
        "printed figure, recomputed figure and verdict, on one page: `runs/report/claims.html`."
    )


def explain_cost(table: pd.DataFrame) -> Markdown:
    """Say what launch() adds to torchrun, and what a sweep costs beside one point."""
    rows = table.set_index("way")
    extra, spread = rows.loc["launch", "over_torchrun"] - 1, rows.loc["launch", "spread_over_torchrun"]
    if abs(extra) > spread:
        adds = (
            f"A later launch() takes {units.percent(abs(extra))} {'more' if extra > 0 else 'less'} than the bare "
            "torchrun command."
        )
    else:
        adds = f"A later launch() takes as long as the bare torchrun command within noise (± {units.percent(spread)})."
    sweep = rows.loc["sweep", "seconds"] / rows.loc["launch", "seconds"]
    points = fact(table, "points")
    if sweep < points / 2:
        once = (
            f"**{points} points take {units.times(sweep)} as long as one point, not {points}×**: a sweep pays "
            "start-up, the first step and the ending once."
        )
    else:
        once = (
            f"{points} points take {units.times(sweep)} as long as one point: here measuring takes longer than "
            "start-up."
        )
    first = fact(table, "first_seconds")
    agent = f"A kernel's first launch, which also starts the agent, took {units.seconds(first)}." if first > 0 else None
    return say(adds, agent, once)
