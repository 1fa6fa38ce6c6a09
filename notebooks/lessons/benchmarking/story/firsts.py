"""The first iterations of lab 06 → sentences: how long they take, what dropping them changes, what only they do."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import about_tables, listed, say
from lessons.benchmarking.theory import NAMES

_SETTLED = 0.10  # of the later median: an iteration this near is like them
_ONE_CALL = 0.7  # of the extra time of all calls: one of them makes it
_NAMED = 4  # events that a sentence names


@about_tables
def explain_iterations(table: pd.DataFrame, dropped: pd.DataFrame) -> Markdown:
    """Say how much longer a first iteration takes, when they settle, and what warm-ups do to mean and median.

    Takes tables of `iterations` and `warm_ups`.
    """
    first = table[table["iteration"] == 0].set_index("model")["times_later"]
    worst, phase = first.idxmax(), NAMES[fact(table, "phase")]
    sentences = [
        f"The first {phase} of `{worst}` takes {units.times(first[worst])} the median of the later ones"
        + (", and it is the first work of this process." if worst == table["model"].iloc[0] else ".")
    ]
    others = first.drop(worst)
    if len(others):
        sentences.append(f"In the other sizes the first takes {units.span(others)} the later median.")
    settled = {model: _settled(rows) for model, rows in table.groupby("model", sort=False)}
    latest = max(settled.values())
    if latest >= int(table["iteration"].max()):
        sentences.append(f"Iterations do not settle within {units.percent(_SETTLED)}: the machine is noisy.")
    else:
        sentences.append(f"From iteration {latest} on, every one is within {units.percent(_SETTLED)} of that median.")
    return say(*sentences, *_warm_ups(dropped), small=fact(table, "small"))


def _settled(rows: pd.DataFrame) -> int:
    """Return the first iteration from which all are near the later median."""
    far = rows[(rows["times_later"] - 1).abs() > _SETTLED]["iteration"]
    return int(far.max()) + 1 if len(far) else 0


def _warm_ups(table: pd.DataFrame) -> list[str]:
    """Say what dropping iterations does to mean and standard deviation, and what it does to the median."""
    rows = table[table["phase"] == table["phase"].iloc[0]].set_index("warm_ups")
    none, most = rows.iloc[0], rows.iloc[-1]
    sentences = [
        f"A {NAMES[table['phase'].iloc[0]]} of `{fact(table, 'model')}`, without a warm-up: {_mean(none)}, median "
        f"{_ms(none['median_ms'])}; after {rows.index[-1]} of them {_mean(most)}, median {_ms(most['median_ms'])}."
    ]
    wide = table.pivot_table(index="phase", columns="warm_ups", values=["mean_ms", "median_ms"], aggfunc="first")
    first, last = table["warm_ups"].min(), table["warm_ups"].max()
    moved = {name: (wide[name, first] / wide[name, last] - 1).abs().max() for name in ("mean_ms", "median_ms")}
    if moved["mean_ms"] > moved["median_ms"]:
        sentences.append(
            f"**Of all phases the mean moves by up to {units.percent(moved['mean_ms'])}, the median by "
            f"{units.percent(moved['median_ms'])}**: a few slow iterations decide a mean, not a median."
        )
    else:
        sentences.append("The first iterations do not move the mean more than the median.")
    return sentences


def _mean(row: pd.Series) -> str:
    return f"{units.number(row['mean_ms'])} ± {units.number(row['std_ms'], 2)} ms ({int(row['count'])} iterations)"


@about_tables
def explain_first_calls(events: pd.DataFrame, iterations: pd.DataFrame) -> Markdown:
    """Say what the first iteration does that later ones do not: by kind, by event, with allocations and clocks.

    Takes tables of `first_calls` and `first_iterations`.
    """
    own = iterations
    later = own["ms"].iloc[2:].median()
    extra = own["ms"].iloc[0] - later
    sentences = [
        f"Under the profiler, the first step takes {_ms(own['ms'].iloc[0])}, the second {_ms(own['ms'].iloc[1])}, the "
        f"later ones {_ms(later)}."
    ]
    if extra <= 0:
        return say(*sentences, "**Here the first step is no slower.**", small=fact(iterations, "small"))
    by_kind = events.groupby("kind")["extra_ms"].sum().sort_values(ascending=False)
    parts = [f"{kind} {_ms(ms)}" for kind, ms in by_kind.items() if ms > 0.02 * extra]
    sentences.append(f"What only the first one has, by what the host does: {listed(parts)}.")
    top = events[(events["event"] != "other") & (events["kind"] != "Python") & (events["extra_ms"] > 0)].head(_NAMED)
    named = [f"`{row.event}` ({_ms(row.extra_ms)}{_once(row)})" for row in top.itertuples()]
    sentences.append(f"Most of it lies in {listed(named)}.")
    if (asked := own["device_allocations"]).notna().any():
        sentences.append(
            f"The allocator asks the driver for memory {units.count(asked.iloc[0])} times in it, "
            f"{units.count(asked.iloc[1])} times in the second step, {units.count(asked.iloc[2:].sum())} times later."
        )
    return say(*sentences, _clocks(own["sm_mhz"]), small=fact(iterations, "small"))


def _once(row) -> str:
    """Say where one call of many makes most of the extra time: it sets something up for all later ones."""
    return f", nearly all in one of {row.calls_first} calls" if _alone(row) else ""


def _alone(row) -> bool:
    return row.calls_first > 1 and row.longest_ms > _ONE_CALL * row.extra_ms


def _clocks(mhz: pd.Series) -> str | None:
    if mhz.isna().any():
        return None
    rise = mhz.iloc[-1] / mhz.iloc[0] - 1
    said = (
        f"The GPU's clock is {units.count(mhz.iloc[0])} MHz after the first step, {units.count(mhz.iloc[-1])} at last"
    )
    return f"{said}: {'**it was still rising**' if rise > 0.02 else 'the clock is not what makes the first one slow'}."


def _ms(value_ms: float) -> str:
    return units.seconds(value_ms / 1e3)
