"""Tables of lab 13 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact, place_name
from labkit.story import units
from labkit.story.verdict import CPU_TIMES, folded, one_minute, verdict
from labkit.story.words import as_table, listed
from lessons.scaling import tables
from lessons.scaling.theory import GUESSING, TRAININGS

if TYPE_CHECKING:
    from labkit.engine.run import Run

EXPLAINED = 0.03  # of an epoch: what no part may leave unexplained
AGREE_POINTS = 5.0  # of a step: by how much the three ways may differ
_BROADCAST = "broadcast"


def counted(table: pd.DataFrame) -> Markdown:
    """Say whether every image counts once per epoch, in a new order each, and in the accuracy; takes `symptoms`."""
    row = table.iloc[0]
    checks = {
        "every image once per epoch": row["distinct"] == 1,
        "a new order each epoch": row["repeated"] <= 0.5,
        "all test images counted": row["validated"] == 1,
    }
    if missed := [check for check, met in checks.items() if not met]:
        return verdict(f"✘ **Not so: {listed(missed)}**.")
    return verdict(f"✔ {', '.join(checks).capitalize()}.")


def speedups(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say what the most GPUs keep of one GPU's rate with the smallest and the largest batch; takes `scaling`s."""
    runs = {"recorded": recorded}
    if fact(here, "source") != fact(recorded, "source"):
        runs = {"here": here, "recorded": recorded}
    columns = {name: _kept_rates(table) for name, table in runs.items()}
    shown = pd.DataFrame({"efficiency, weak scaling": ["smallest batch", "largest batch"], **columns})
    kept = _most(recorded, "weak").sort_values("fixed")["efficiency"]
    grows = kept.is_monotonic_increasing and kept.is_unique
    sentence = f"**Recorded, efficiency {'grows' if grows else 'does not grow'} with the batch.**"
    sentence += f" {CPU_TIMES}" if "here" in runs and fact(here, "on_cpu") else ""
    names = {"efficiency": "efficiency", "seconds": "epoch, s", "images_per_s": "images/s"}
    every = here[["law", "fixed", "ranks", "speedup", *names]].rename(columns=names)
    return Markdown(f"{as_table(shown)}\n\n{verdict(sentence, every, summary='Every setting of this run').data}")


def _kept_rates(table: pd.DataFrame) -> list[str]:
    """Return the efficiency on the most ranks with the smallest and the largest batch, and these batches."""
    rows = _most(table, "weak").sort_values("fixed")
    if rows.empty:
        return ["one GPU", "one GPU"]
    return [f"{units.percent(row['efficiency'])} ({row['fixed']} images)" for _, row in rows.iloc[[0, -1]].iterrows()]


def _most(table: pd.DataFrame, law: str) -> pd.DataFrame:
    """Return the rows of a law on the most ranks, where these are several."""
    rows = table[(table["law"] == law) & (table["ranks"] == table["ranks"].max()) & table["efficiency"].notna()]
    return rows[rows["ranks"] > 1]


def parts_add_up(table: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say whether the parts explain every epoch, and what images and exposed all-reduces take at most; two `parts`.

    Folded below: every setting of this run, and of the recorded one.
    """
    worst = table["rest_share"].max()
    waits, exposed = (table[f"{part}_s"] / table["seconds"] for part in ("input", "exposed"))
    if worst > EXPLAINED:
        row = table.loc[table["rest_share"].idxmax()]
        return verdict(f"**{units.percent(worst)} of an epoch is not explained** ({_setting(row)}).")
    unexplained = "less than 0.1 %" if worst < 0.001 else units.percent(worst)
    place = place_name(table).capitalize()
    said = verdict(
        f"✔ The parts leave {unexplained} of an epoch open. **{place} getting images takes "
        f"{units.percent(waits.max())} at most, the exposed all-reduce {units.percent(exposed.max())}.**"
    )
    runs = {"here": table, "recorded": recorded}
    tables_of_steps: list[str] = [
        folded(f"A step's parts in every setting, {name}", _steps(run)) for name, run in runs.items()
    ]
    return Markdown("\n\n".join([str(said.data), *tables_of_steps]))


def _steps(table: pd.DataFrame) -> str:
    names = {"ranks": "GPUs", "gpu_batch": "images per GPU", "loader": "loader"}
    steps_ms = {name: 1e3 * table[f"{name}_s"] / table["steps"] for name in tables.PARTS}
    shown = table[[*names]].rename(columns=names).assign(**{"step, ms": 1e3 * table["seconds"] / table["steps"]})
    return as_table(shown.assign(**{f"{name}, ms": ms for name, ms in steps_ms.items()}))


def _setting(row: pd.Series) -> str:
    """Return GPUs and images per GPU, as the charts name a setting: 4 × 512."""
    return f"{int(row['ranks'])} × {int(row['gpu_batch'])}"


def ways_agree(table: pd.DataFrame, line: pd.DataFrame, data_parallel: pd.DataFrame, here: pd.DataFrame) -> Markdown:
    """Say whether three ways of measuring an all-reduce agree; takes recorded tables: `exchange` and two beside it.

    `here`: this run's `exchange`, which is judged beside them where it ran on several GPUs.
    """
    several = table[table["ranks"] > 1]
    names = {f"{way}_share": way for way in tables.WAYS} | {
        "alone_ms": "all-reduce alone, ms",
        "hidden": "hidden, % of it",
        "over_line": "alone, × lab 09's line",
        "times": "DataParallel's step, × DDP's",
    }
    several = several.assign(
        over_line=line["over_line"].reindex(several.index),
        hidden=[units.percent(share) if share > 0 else "none: more is exposed" for share in several["hidden_share"]],
    )
    several = several.merge(data_parallel[[*tables.BY, "times"]], on=tables.BY, how="left")
    shown = several[["ranks", "gpu_batch", *names]].rename(columns=names)
    summary = "Recorded shares of a step, the all-reduces alone, and DataParallel: one process for all GPUs"
    summary += f"; lab 09's line was {fact(line, 'line_source')}"
    judged = {fact(each, "source"): each for each in (table, here) if not fact(each, "small")}
    return verdict(" ".join(filter(None, map(_ways_agree, judged.values()))), shown, summary=summary)


def _ways_agree(table: pd.DataFrame) -> str:
    several = table[table["ranks"] > 1]
    if several.empty:
        return ""
    row = several.loc[several["apart_points"].idxmax()]
    points = f"{units.number(row['apart_points'], 2)} points of a step"
    if row["apart_points"] <= AGREE_POINTS:
        return f"**{place_name(table).capitalize()} the three ways agree within {points}.**"
    most = max(tables.WAYS, key=lambda way: row[f"{way}_share"] if pd.notna(row[f"{way}_share"]) else -1.0)
    return f"**{place_name(table).capitalize()} the three ways differ by {points}** at worst: {_WHY[most]}."


_WHY = {
    "steps": "two step times show most. Why was not measured. Trust the hooks: they time a plain step",
    "trace": "the trace shows most, and its steps run under the profiler. Trust the hooks: they time a plain step",
    "hooks": "hooks show most. Why was not measured",
}


def besides_gradients(table: pd.DataFrame) -> Markdown:
    """Say what a step sends besides gradients, and what `no_sync` leaves out; takes `messages`."""
    phases = {str(phase): rows.set_index("collective") for phase, rows in table.groupby("phase", sort=False)}
    shown = table.assign(size=table["sent_bytes"].map(units.size))[["phase", "collective", "calls", "size"]]
    summary = "Every message"
    if fact(table, "ranks") == 1:
        return verdict("With one rank, each call reaches only its own process.", shown, summary=summary)
    steady, quiet = phases.get("third step"), phases.get("a step under no_sync")
    if steady is None or quiet is None:
        return verdict("No step was watched.")
    besides = steady.drop("all-reduce", errors="ignore")
    head = "**Besides gradients, a step sends nothing.**"
    if len(besides):
        calls = listed(f"{row.calls} {row.Index}s" for row in besides.itertuples())
        share = besides["sent_bytes"].sum() / max(1, steady["sent_bytes"].get("all-reduce", 0))
        gradients = units.size(steady["sent_bytes"].get("all-reduce", 0))
        head = f"**Besides gradients, a step sends {calls}**: {units.percent(share)} of this run's {gradients}."
    later = phases.get("a second step under no_sync")
    tail = "A first step under `no_sync` leaves out the gradients alone."
    if quiet["calls"].get("all-reduce", 0):
        tail = "`no_sync` sends gradients!"
    elif later is not None and not later["calls"].get(_BROADCAST, 0):
        tail = "`no_sync` leaves out the gradients, and after its first step the broadcasts, too."
    return verdict(f"{head} {tail}", shown, summary=summary)


def trained_alike(table: pd.DataFrame) -> Markdown:
    """Say whether the large batch learns in every seed; takes `accuracy`."""
    rows = [
        (
            TRAININGS[str(row["variant"])],
            row["batch"],
            row["rate"],
            row["warm_up_epochs"],
            row["seconds"],
            ", ".join(f"{percent:.1f}" for percent in row["percents"]),
        )
        for row in table.to_dict("records")
    ]
    shown = pd.DataFrame(
        rows, columns=["training", "batch", "peak rate", "warm-up, epochs", "seconds", "% right, seed by seed"]
    )
    return verdict(f"{place_name(table).capitalize()}: {_trained_alike(table)}", shown, summary="Every seed")


def _trained_alike(table: pd.DataFrame) -> str:
    if (table["test_percent"] < GUESSING + 5).all():
        return "**no training learnt more than guessing**: so few steps show the code alone."
    trained = table.set_index("variant")
    if not {"reference", "large"} <= {*trained.index}:
        return "no training had the large batch on all GPUs."
    reference, large = trained.loc["reference"], trained.loc["large"]
    enough = min(reference["percents"]) / 2
    learnt = trained["percents"].map(lambda percents: [percent for percent in percents if percent >= enough])
    count = len(learnt["large"])
    if count < large["seeds"]:
        below = count and max(learnt["large"]) < min(reference["percents"])
        end = " and stay below the reference" if below else ""
        head = f"**with the large batch on all GPUs {count} of {large['seeds']} seeds learn{end}.**"
        if "no_warm_up" in trained.index and not learnt["no_warm_up"]:
            head = f"**without warm-up no seed learns. With it, {count} of {large['seeds']} do{end}.**"
    else:
        off = _points_from(reference["test_percent"], large["test_percent"])
        head = f"**the large batch on all GPUs ends {off} the reference.**"
        if "no_warm_up" in trained.index and not learnt["no_warm_up"]:
            head = f"**without warm-up no seed learns; with it, the large batch ends {off} the reference.**"
        if "unscaled" in trained.index:
            off = _points_from(large["test_percent"], trained.loc["unscaled", "test_percent"])
            head = f"{head} With an unscaled rate it ends {off} the scaled one."
    if "one_gpu" not in trained.index or fact(table, "on_cpu"):
        return head
    gained = units.times(trained.loc["one_gpu", "seconds"] / large["seconds"])
    return f"{head} More GPUs make it {gained} as fast; the rest of the gain comes from the larger batch."


def _points_from(reference_percent: float, percent: float) -> str:
    return f"{abs(percent - reference_percent):.1f} points {'above' if percent > reference_percent else 'below'}"


def in_one_minute(here: Mapping[str, Run], recorded: Mapping[str, Run]) -> Markdown:
    """Return the lesson's rules, each with what it is worth here and as recorded; runs by the names of their plans."""
    return one_minute(_RULES, here=here, recorded=recorded)


def _batch(runs: Mapping[str, Run]) -> str | None:
    rows = _most(tables.scaling(runs["epochs"]), "weak").sort_values("fixed")
    if len(rows) < 2:
        return None
    first, last = rows.iloc[0], rows.iloc[-1]
    return (
        f"{units.percent(first['efficiency'])} with {first['fixed']} images each, "
        f"{units.percent(last['efficiency'])} with {last['fixed']}"
    )


def _waiting(runs: Mapping[str, Run]) -> str:
    table = tables.parts(runs["epochs"])
    shares = [(table[f"{part}_s"] / table["seconds"]).max() for part in ("input", "exposed")]
    return f"at most {units.percent(shares[0])} getting images, {units.percent(shares[1])} exposed"


def _ways(runs: Mapping[str, Run]) -> str | None:
    table = tables.exchange(runs["communication"]).dropna(subset="apart_points")
    if table.empty:
        return None
    noise_ms = table["spread_steps_ms"] + table["spread_waited_ms"]
    clear = table[table["apart_points"] / 100 * table["step_ms"] > noise_ms]
    return f"{units.number(clear['apart_points'].max(), 2)} points apart" if len(clear) else "apart by noise alone"


def _besides(runs: Mapping[str, Run]) -> str | None:
    table: Any = tables.messages(runs["messages"]).set_index(["phase", "collective"])
    if ("third step", _BROADCAST) not in table.index:
        return "nothing besides gradients"
    return f"{table.loc[('third step', _BROADCAST), 'calls']} broadcasts per step"


def _seeds(runs: Mapping[str, Run]) -> str | None:
    table = tables.accuracy(runs["accuracy"]).set_index("variant")
    if "large" not in table.index:
        return None
    percents = sorted(table.loc["large", "percents"])
    if max(percents) < GUESSING + 5:
        return "not visible: no more than guessing"
    return f"{listed(map(units.number, percents))} % right, by seed"


_RULES = {
    "Give each GPU enough images": _batch,
    "Getting images and waiting for gradients are two parts": _waiting,
    "Measure communication in more than one way": _ways,
    "DDP sends more than gradients": _besides,
    "A large batch is another training: look at every seed": _seeds,
}
