"""Tables of lab 13 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact, place_name
from labkit.story import units
from labkit.story.verdict import one_minute, verdict
from labkit.story.words import listed, resolved
from lessons.scaling import tables
from lessons.scaling.theory import GUESSING

if TYPE_CHECKING:
    from labkit.engine.run import Run

EXPLAINED = 0.03  # of an epoch: what no part may leave unexplained
AGREE_POINTS = 5.0  # of a step: by how much the three ways may differ
_STEPS = 0.1  # of the formula: how near a number of steps must be
_NEAR = 0.1  # of a line's promise
_BROADCAST = "broadcast"
TRAININGS = {
    "reference": "the reference on one GPU",
    "one_gpu": "the same large batch on one GPU",
    "large": "the large batch on all GPUs",
    "unscaled": "an unscaled learning rate",
    "no_warm_up": "no warm-up",
    "same_order": "no `set_epoch`",
    "sync_bn": "SyncBatchNorm",
}


def speedups(table: pd.DataFrame) -> Markdown:
    """Say how many times one GPU's rate the most GPUs reach, with the best and the worst batch; takes `scaling`."""
    rows = _most(table, "weak")
    if rows.empty:
        return verdict("One GPU scales to nothing: speed-up needs two GPUs at least.")
    best, worst = rows.loc[rows["efficiency"].idxmax()], rows.loc[rows["efficiency"].idxmin()]
    name = f"{best['ranks']} {'processes' if fact(table, 'small') else 'GPUs'}"
    names = {"efficiency": "efficiency", "seconds": "epoch, s", "images_per_s": "images/s"}
    shown = table[["law", "fixed", "ranks", "speedup", *names]].rename(columns=names)
    if best["fixed"] == worst["fixed"]:
        kept = units.percent(best["efficiency"])
        return verdict(f"**Each of {name} keeps {kept} of one's rate.**", shown, summary="Every setting")
    least, most = (units.percent(row["efficiency"]) for row in (worst, best))
    sentence = f"**Each of {name} keeps {most} of one's rate at best, and {least} with the batch that scales worst.**"
    return verdict(sentence, shown, summary="Every setting")


def _most(table: pd.DataFrame, law: str) -> pd.DataFrame:
    """Return the rows of a law on the most ranks, where these are several."""
    rows = table[(table["law"] == law) & (table["ranks"] == table["ranks"].max()) & table["efficiency"].notna()]
    return rows[rows["ranks"] > 1]


def serial_share(table: pd.DataFrame, fits: pd.DataFrame) -> Markdown:
    """Say which serial share strong scaling shows, where more than one point can tell; takes `scaling` and `laws`."""
    points = table[(table["law"] == "strong") & (table["ranks"] > 1)]
    strong = fits[fits["law"] == "strong"]
    if strong.empty:
        return verdict("One GPU has no serial share.")
    row = strong.iloc[0]
    if len(points) == 1:
        point = points.iloc[0]
        return verdict(
            f"Strong scaling reaches {units.times(point['speedup'])}. **One point fits every law**: it does not tell "
            "which part of the work is serial."
        )
    least, most = (f"{100 * row[name]:.1f} %" for name in ("least", "most"))
    if row["least"] <= 0 <= row["most"]:
        return verdict(f"No serial share can be told from zero: the points allow {least} to {most}.")
    if row["most"] < 0:
        return verdict(f"**The speed-up exceeds the number of GPUs: no serial share explains that** ({least}, {most}).")
    if row["share"] >= 1:
        return verdict(f"**More GPUs are slower than one**: the serial share is {100 * row['share']:.0f} %.")
    return verdict(f"**Amdahl's serial share is {100 * row['share']:.1f} %**; the points allow {least} to {most}.")


def steps_divide(table: pd.DataFrame) -> Markdown:
    """Say whether a rank's steps in an epoch fall as the GPUs grow: if not, the sampler does not know the ranks."""
    for batch, rows in table[table["law"] == "weak"].groupby("fixed"):
        steps = rows.groupby("ranks")["steps"].first()
        for ranks, count in steps.items():
            if abs(count * int(str(ranks)) / steps[1] - 1) > _STEPS:
                return verdict(
                    f"✘ **A rank's steps do not divide by the ranks**: {count:.0f} instead of "
                    f"{steps[1] / int(str(ranks)):.0f} (batch {batch})."
                )
    return verdict("✔ A rank's steps divide by the ranks, with every batch.")


def parts_add_up(table: pd.DataFrame) -> Markdown:
    """Say whether the parts explain every epoch, and how much of it is waiting and exposed at most; takes `parts`."""
    worst = table["rest_share"].max()
    waits, exposed = (table[f"{part}_s"] / table["seconds"] for part in ("input", "exposed"))
    if worst > EXPLAINED:
        row = table.loc[table["rest_share"].idxmax()]
        return verdict(f"**{units.percent(worst)} of an epoch is not explained** ({_setting(row)}).")
    unexplained = "less than 0.1 %" if worst < 0.001 else units.percent(worst)
    place = place_name(table).capitalize()
    return verdict(
        f"✔ The parts leave {unexplained} of an epoch open. **{place} waiting for images takes "
        f"{units.percent(waits.max())} at most, the exposed all-reduce {units.percent(exposed.max())}.**"
    )


def _setting(row: pd.Series) -> str:
    """Return GPUs and images per GPU, as the charts name a setting: 4 × 512."""
    return f"{int(row['ranks'])} × {int(row['gpu_batch'])}"


def ways_agree(table: pd.DataFrame) -> Markdown:
    """Say whether three ways of measuring an all-reduce agree; takes `exchange`."""
    several = table[table["ranks"] > 1]
    if several.empty:
        return verdict("One rank exchanges nothing.")
    names = {f"{way}_share": way for way in tables.WAYS} | {
        "alone_ms": "all-reduce alone, ms",
        "hidden_share": "of which hidden",
    }
    shown = several[["ranks", "gpu_batch", *names]].rename(columns=names)
    row, summary = several.loc[several["apart_points"].idxmax()], "Shares of a step, and the all-reduces alone"
    points = f"{units.number(row['apart_points'], 2)} points of a step"
    if row["apart_points"] <= AGREE_POINTS:
        return verdict(
            f"**{place_name(table).capitalize()} the three ways agree within {points}.**", shown, summary=summary
        )
    most = max(tables.WAYS, key=lambda way: row[f"{way}_share"] if pd.notna(row[f"{way}_share"]) else -1.0)
    return verdict(
        f"**{place_name(table).capitalize()} the three ways differ by {points}** at worst. {_WHY[most]}",
        shown,
        summary=summary,
    )


_WHY = {
    "steps": "Two step times show most. `no_sync` leaves out broadcasts, too; if that is why was not measured.",
    "trace": "The trace shows most: the profiler slows the host, and ranks wait longer for each other.",
    "hooks": "Hooks show most: they count the wait of the rank that is early.",
}


def beside_the_line(table: pd.DataFrame) -> Markdown:
    """Say whether the gradients' all-reduces run at the rate that lab 09's line promises; takes `beside_line`."""
    measured = table[table["line_ms"].notna() & (table["ranks"] > 1)]
    if measured.empty:
        size = units.size(table["sent_bytes"].max())
        return verdict(f"A step sends {size} of gradients. No line is recorded for these ranks.")
    least, most = measured["over_line"].min(), measured["over_line"].max()
    if max(abs(least - 1), abs(most - 1)) <= _NEAR:
        return verdict("**A step's gradients, alone, take what the fitted line promises.**")
    return verdict(
        f"**A step's gradients, alone, take {units.span(measured['over_line'])} what the fitted line promises.**"
    )


def data_parallel_takes(table: pd.DataFrame) -> Markdown:
    """Say how DataParallel, one process for all GPUs, compares with DDP; takes `data_parallel`."""
    if table.empty:
        return verdict("DataParallel was not measured: it needs two GPUs in one process.")
    clear = all(resolved(row.dp_ms, row.ddp_ms, row.spread_dp_ms, row.spread_ddp_ms) for row in table.itertuples())
    span = units.span(table["times"])
    if clear and table["times"].min() > 1:
        return verdict(f"**DataParallel's step takes {span} DDP's**: one process copies model and batch in every step.")
    return verdict(f"DataParallel's step takes {span} DDP's{'' if clear else ', not all of it beyond noise'}.")


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
            row["seconds"],
            ", ".join(f"{percent:.1f}" for percent in row["percents"]),
        )
        for row in table.to_dict("records")
    ]
    shown = pd.DataFrame(rows, columns=["training", "batch", "seconds", "% right, seed by seed"])
    return verdict(_trained_alike(table), shown, summary="Every seed")


def _trained_alike(table: pd.DataFrame) -> str:
    if (table["test_percent"] < GUESSING + 5).all():
        return "**No training learnt more than guessing**: so few steps show the code alone."
    trained = table.set_index("variant")
    if not {"reference", "large"} <= {*trained.index}:
        return "This run lacks the large batch on all GPUs."
    reference, large = trained.loc["reference"], trained.loc["large"]
    low = [percent for percent in large["percents"] if percent < min(reference["percents"]) / 2]
    if low:
        count = f"{len(low)} of {large['seeds']}"
        head = f"**In {count} seeds the large batch on all GPUs has learnt little: no mean describes that.**"
    else:
        off = f"{large['test_percent'] - reference['test_percent']:+.1f} points"
        head = f"**The large batch on all GPUs ends {off} off the reference.**"
    if "one_gpu" not in trained.index:
        return head
    gained = units.times(trained.loc["one_gpu", "seconds"] / large["seconds"])
    return f"{head} More GPUs make it {gained} as fast; what else it gains on the reference is the batch's."


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
    return f"at most {units.percent(shares[0])} waiting, {units.percent(shares[1])} exposed"


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
    "Waiting for images and for gradients are two parts": _waiting,
    "Measure communication in more than one way": _ways,
    "DDP sends more than gradients": _besides,
    "A large batch is another training: look at every seed": _seeds,
}
