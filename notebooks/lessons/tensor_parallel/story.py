"""Tables of lab 16 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact, fact_or, where
from labkit.story import units
from labkit.story.verdict import CPU_TIMES, NOT_COMPARED, one_minute, verdict
from labkit.story.words import listed
from lessons.tensor_parallel import tables
from lessons.tensor_parallel.theory import STRATEGIES

if TYPE_CHECKING:
    from labkit.engine.run import Run

_MOST_PERCENT = 50


def all_right(cases: pd.DataFrame) -> Markdown:
    """Say whether split layers train as whole ones in every case; takes `cases`."""
    shown = cases.assign(**{name: cases[name].map("{:.0e}".format) for name in ("loss_error", "weight_error", "apart")})
    shown["right"] = shown["right"].map({True: "✔", False: "✘"})
    wrong = cases.loc[~cases["right"].astype(bool), "case"]
    if len(wrong):
        return verdict(f"✘ **Not as whole layers: {listed(wrong)}.**", shown, summary="Every case")
    dropped = int(cases["loss_error"].isna().sum())
    said = f"✔ **Split layers train as whole ones do, in all {len(cases) - dropped} cases without dropout.**"
    if dropped:
        said += f" In the {dropped} with dropout, ranks draw the masks that they should."
    return verdict(said, shown, summary="Every case")


def as_formula(table: pd.DataFrame) -> Markdown:
    """Say whether weights, calls and bytes are the formula's, and what sequence parallelism saves; takes `ledgers`."""
    wrong = table.loc[~table["equal"].astype(bool), "strategy"]
    if len(wrong):
        return verdict(f"✘ **Not as the formula says: {listed(wrong)}.**", table.round(2), summary="All figures")
    said = "✔ **Every weight, call and byte is the formula's.**"
    rows = table.set_index("strategy")["activations, MiB"]
    both = [STRATEGIES[name] for name in ("tensor", "sequence")]
    if {*both} <= {*rows.index}:
        less = units.percent(1 - rows[both[1]] / rows[both[0]])
        sent = table.set_index("strategy")["through the link, MiB"]
        more = units.percent(sent[both[1]] / sent[both[0]] - 1)
        said += (
            f" Splitting positions, too, keeps {less} fewer bytes for backward. It sends {more} more: norms' gradients."
        )
    return verdict(said, table.drop(columns="equal").round(2), summary="All figures")


def which_is_fastest(*runs: pd.DataFrame) -> Markdown:
    """Say which strategy trains the same batch fastest, and which in least memory; takes `steps`, this run first."""
    judged, tail = _judged(runs)
    columns = {"tokens_per_s": "tokens/s", "step_ms": "step, ms", "spread_step_ms": "± ms", "held_mib": "held, MiB"}
    columns |= {"over_torch": "× torch's tensor parallelism"}
    shown = pd.concat(
        [
            table.assign(strategy=[STRATEGIES.get(name, name) for name in table["strategy"]])
            for table in _distinct(runs)
        ],
        keys=[where(table) for table in _distinct(runs)],
        names=["run"],
    ).reset_index("run")[["run", "strategy", *columns]]
    shown = shown.rename(columns=columns).round(2)
    return verdict(f"{where(judged).split(',')[0]}: {_said_of_steps(judged)}{tail}", shown, summary="Every strategy")


def _distinct(runs: tuple[pd.DataFrame, ...]) -> list[pd.DataFrame]:
    """Return each run once: a replay of the recorded run is the recorded run."""
    return [*{fact(table, "source"): table for table in runs}.values()]


def _judged(runs: tuple[pd.DataFrame, ...]) -> tuple[pd.DataFrame, str]:
    """Return the run that a verdict is about, and what is said where this run was on CPUs."""
    on_cpu = fact(runs[0], "on_cpu")
    return (runs[-1], f" {CPU_TIMES}") if on_cpu else (runs[0], "")


def _said_of_steps(table: pd.DataFrame) -> str:
    rows = table[table["status"] == "ok"].set_index("strategy")
    if not {"ddp", "tensor"} <= {*rows.index}:
        return "this run lacks replicas or split layers."
    ratio = units.times(rows.loc["tensor", "tokens_per_s"] / rows.loc["ddp", "tokens_per_s"])
    said = f"**split layers train {ratio} as fast as replicas**, with the same batch"
    held = rows["held_mib"]
    said += f", and hold {units.times(held['tensor'] / held['ddp'])} as much"
    if "torch" in rows.index:
        said += f"; ours takes {units.times(rows.loc['tensor', 'over_torch'])} the time of torch's"
    if (longer := _longer(table)) is not None:
        said += f". Splitting positions, too, {'takes longer' if longer > 0 else 'does not take longer'}"
    return f"{said}."


def _longer(table: pd.DataFrame) -> float | None:
    """Return by which share splitting positions, too, makes a step longer; 0 within noise, None if not measured."""
    rows = table[table["status"] == "ok"].set_index("strategy")
    if not {"tensor", "sequence"} <= {*rows.index}:
        return None
    step, spread = (rows.loc[["tensor", "sequence"], name] for name in ("step_ms", "spread_step_ms"))
    longer = step["sequence"] - step["tensor"]
    return longer / step["tensor"] if abs(longer) > spread.sum() else 0.0


def from_which_width(*runs: pd.DataFrame) -> Markdown:
    """Say what sending costs by width, and whether that is the formula's; takes `widths`, this run first."""
    judged, tail = _judged(runs)
    columns = {
        "hidden": "width",
        "gradients_ms": "sent, ms",
        "silent_ms": "nothing sent, ms",
        "longer_percent": "longer, %",
        "spread_longer_percent": "± %",
    }
    columns |= {"by_formula": "by formula, %", "gb_per_s": "passed the link, GB/s"}
    parts = [
        table.assign(
            strategy=table["strategy"].map(STRATEGIES),
            by_formula=100 * table["by_formula"],
        )
        for table in _distinct(runs)
    ]
    shown = pd.concat(
        [part[["strategy", *columns]] for part in parts],
        keys=[where(table) for table in _distinct(runs)],
        names=["run"],
    )
    shown = shown.reset_index("run").rename(columns=columns).round(1)
    return verdict(f"{where(judged).split(',')[0]}: {_said_of_widths(judged)}{tail}", shown, summary="Every width")


def _said_of_widths(table: pd.DataFrame) -> str:
    rows = table[table["strategy"] == "tensor"].dropna(subset="longer_share").sort_values("hidden")
    if len(rows) < 2:
        return "this run lacks two widths, sent and not."
    first, last = rows.iloc[0], rows.iloc[-1]
    wide = units.count(last["hidden"])
    longer = f"{units.percent(first['longer_share'])} longer in the narrowest layers"
    least = units.percent(last["longer_share"])
    said = f"**sending makes forward and backward {longer}, and {least} at a width of {wide}.**"
    conditions = fact_or(table, "conditions", {})
    if conditions.get("throttled_percent", 0) > _MOST_PERCENT:
        said += f" For most of the measuring a GPU was throttled ({conditions['throttle_reasons']})."
    return said


def in_one_minute(here: Mapping[str, Run], recorded: Mapping[str, Run]) -> Markdown:
    """Return the lesson's rules, each with what it is worth by the runs of each plan, here and recorded."""
    return one_minute(_RULES, here=here, recorded=recorded)


def _sent(runs: Mapping[str, Run]) -> str | None:
    table = tables.ledgers(runs["steps"])
    rows = table[table["strategy"] == STRATEGIES["tensor"]]
    return f"{rows['all-reduce calls'].iloc[0]} all-reduces in a step" if len(rows) else None


def _kept(runs: Mapping[str, Run]) -> str | None:
    rows = tables.ledgers(runs["steps"]).set_index("strategy")["activations, MiB"]
    both = [STRATEGIES[name] for name in ("tensor", "sequence")]
    if not {*both} <= {*rows.index}:
        return None
    said = f"{units.percent(1 - rows[both[1]] / rows[both[0]])} fewer bytes kept"
    table = tables.steps(runs["steps"])
    longer = None if fact(table, "on_cpu") else _longer(table)
    return f"{said}, a step {units.percent(longer)} longer" if longer and longer > 0 else said


def _wide(runs: Mapping[str, Run]) -> str | None:
    table = tables.widths(runs["widths"])
    if fact(table, "on_cpu"):
        return NOT_COMPARED
    rows = table[table["strategy"] == "tensor"].dropna(subset="longer_share").sort_values("hidden")
    ends = rows.iloc[[0, -1]]
    said = " and ".join(units.percent(share) for share in ends["longer_share"])
    return f"{said} longer at widths of {' and '.join(map(units.count, ends['hidden']))}"


def _right(runs: Mapping[str, Run]) -> str:
    table = tables.cases(runs["equality"])
    return f"{int(table['right'].sum())} of {len(table)} cases are right"


_RULES = {
    "Columns first, then rows: one sum per pair of layers": _sent,
    "Split positions where every rank would hold the same": _kept,
    "The wider the layer, the smaller the share of sending": _wide,
    "Compare every awkward case with whole layers": _right,
}
