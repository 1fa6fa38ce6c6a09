"""Tables of lab 07 → verdicts: each compares on its tables before it says one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import by_place, fact
from labkit.story import units
from labkit.story.verdict import one_minute, verdict
from labkit.story.words import as_table, listed
from labkit.theory.sizes import MIB
from lessons.precision_memory import tables
from lessons.precision_memory.theory.floats import FORMATS, stalls_at
from lessons.precision_memory.theory.memory import LEVERS

if TYPE_CHECKING:
    from labkit.engine.run import Run

Runs = Mapping[str, Any]  # a run by the name of its plan, such as "memory"
_NEAR = 0.10  # of a peak: what a formula may leave over
_CLOSE = 0.01  # of a loss or of a tensor's bytes: equal but for rounding
_AFTER_THE_LOSS = {"foreach AdamW", "optimizer in backward"}  # levers on gradients and the update
_LISTED = 8  # allocations that a table shows


def not_half(table: pd.DataFrame) -> Markdown:
    """Say which share of float32's memory a steady step takes with 16 bits, at the shortest and longest context."""
    ratios = _mixed_ratio(table, "steady step")
    if ratios.empty:
        return verdict("This run lacks one of the two precisions.")
    least, most = (units.percent(ratios.iloc[end]) for end in (-1, 0))
    halved = "do not halve" if ratios.min() > 0.6 else "about halve"
    more = f", and more than float32 at context {ratios.idxmax()}" if ratios.max() > 1 else ""
    if more and _copies_outweigh(table, ratios.idxmax()):
        more += " (the copies of the weights take more than the smaller activations save)"
    sentence = (
        f"**Half the bits {halved} the memory**: mixed precision needs {least} of float32's at the longest context"
    )
    return verdict(f"{sentence}, {most} at the shortest{more}.")


def _copies_outweigh(table: pd.DataFrame, sequence: Any) -> bool:
    """Return whether in a steady step autocast's copies take more than its activations save, at a context."""
    rows = table[(table["phase"] == "steady step") & (table["sequence"] == sequence)].set_index("precision")
    wide, narrow = rows.loc["float32"], rows.loc["bfloat16"]
    return narrow["copies"] > wide["activations"] - narrow["activations"] > 0


def _mixed_ratio(table: pd.DataFrame, phase: str) -> pd.Series:
    """Return the peak under bfloat16 autocast over float32's, by context, the shortest first."""
    peaks = table[table["phase"] == phase].pivot_table(index="sequence", columns="precision", values="peak")
    if not {"float32", "bfloat16"} <= {*peaks.columns}:
        return pd.Series(dtype=float)
    return (peaks["bfloat16"] / peaks["float32"]).dropna().sort_index()


def sum_stalls(table: pd.DataFrame) -> Markdown:
    """Say where the bfloat16 sum stops and whether torch's sums are the simulated ones; takes `sums`."""
    totals = table.set_index("way")["theory"]
    total, stall = totals["bfloat16 + bfloat16"], stalls_at("bfloat16")
    sentence = f"**The bfloat16 sum ends at {total:g}**."
    if total == stall:
        spacing = FORMATS["bfloat16"].spacing(stall)
        sentence = f"**The bfloat16 sum stops at {total:g}**: there, neighbours are {spacing:g} apart."
    unequal = table.loc[table["equal"].eq(False), "way"]
    if len(unequal):
        torchs = f"✘ torch's sum differs from the simulated one: {listed(unequal)}."
    else:
        torchs = "✔ Each sum that torch made here equals the simulated one, bit for bit."
    names = {"theory": "simulated", "torch": "torch, here", "error": "error"}
    shown = table[["way", *names]].rename(columns=names)
    for name in names.values():
        shown[name] = ["–" if math.isnan(value) else f"{value:.6g}" for value in shown[name]]
    return verdict(f"{sentence} {torchs}", shown)


def casts(here: Run, recorded: Run) -> Markdown:
    """Return the dtypes as a table, with the recorded run's where they differ; say what the loss is.

    Then whether casting by hand gave the same tensors and gradients.
    """
    table, theirs = tables.dtypes(here), tables.dtypes(recorded).set_index("what")
    shown = table.rename(columns={"what": "tensor", "float32": "no autocast"})
    for precision in ("float16", "bfloat16"):
        pairs = zip(table[precision], theirs[precision].reindex(table["what"]), strict=True)
        shown[precision] = [dtype if dtype == other else f"{dtype} (recorded: {other})" for dtype, other in pairs]
    loss = sorted({*table.set_index("what").loc["loss", ["float16", "bfloat16"]]})
    heads = {precision: f"to {precision}" for precision in ("float16", "bfloat16")}
    sentences = f"**Under autocast the loss is {listed(loss)}.** {_by_hand(tables.same_by_hand(here))}"
    return Markdown(f"{as_table(shown.rename(columns=heads))}\n\n{sentences}")


def _by_hand(same: dict[str, bool]) -> str:
    if wrong := [precision for precision, equal in same.items() if not equal]:
        return f"✘ By hand, some tensor or gradient differs in {listed(wrong)}."
    return "✔ By hand, all tensors and gradients are the same, bit for bit." if same else ""


def scaler_agrees(table: pd.DataFrame) -> Markdown:
    """Say whether the lesson's Scaler does what torch's GradScaler does; takes `scaling`."""
    both = tables.scales_beside(table)
    if both.empty:
        return verdict("This run used one scaler only.")
    differ = int((both["scale"] != both["scale_torch"]).sum())
    if differ:
        return verdict(f"✘ Our scale differs from GradScaler's in {differ} of {len(both)} steps.")
    apart = (both["loss"] / both["loss_torch"] - 1).abs().max()
    losses = "the same losses" if apart == 0 else f"losses within {units.percent(apart)}"
    return verdict(f"✔ In all {len(both)} steps the same scale as torch's GradScaler, and {losses}.")


def scale_saves(*runs: tuple[pd.DataFrame, pd.DataFrame]) -> Markdown:
    """Say what the scale saves of the weights' gradients in the last run; takes pairs of `gradients`, `scaling`."""
    rows = {}
    for histogram, course in runs:
        ways, scaled = course.groupby("way"), course[course["way"] == "float16 scaled"]
        zero, last = ways["zero_share"].median(), ways["loss"].last()
        lost = fact(histogram, "lost")
        rows[_whose(course)] = {
            "first step: gradients of activations that float16 rounds to 0": units.percent(lost["activations"]),
            "median step: gradients of weights that are 0, float16": units.percent(zero["float16"]),
            "… float16 with the scale": units.percent(zero["float16 scaled"]),
            "largest scale": f"2^{round(math.log2(scaled['scale'].max()))}",
            "steps skipped": f"{int(scaled['skipped'].sum())} of {len(scaled)}",
            "last loss, float32": units.number(last["float32"]),
            "last loss, float16": units.number(last["float16"]),
            "last loss, float16 with the scale": units.number(last["float16 scaled"]),
            "last loss, bfloat16": units.number(last["bfloat16"]),
        }
        before, after = zero["float16"], zero["float16 scaled"]
    shown = pd.DataFrame(rows).rename_axis("finding").reset_index()
    saved = "The scale saves gradients" if before > 2 * after and before > 0.001 else "The scale saves little"
    whose = _whose(runs[-1][1])
    return verdict(
        f"**{saved}**: without it {units.percent(before)} of the weights' gradients are zero in the {whose}'s "
        f"median step, with it {units.percent(after)}.{_skips_cost(runs[0][1])}",
        shown,
    )


def _skips_cost(course: pd.DataFrame) -> str:
    """Return the sentence on a run whose scale skipped updates and ended with the larger loss; takes `scaling`."""
    last, scaled = course.groupby("way")["loss"].last(), course[course["way"] == "float16 scaled"]
    if not scaled["skipped"].any() or last["float16 scaled"] <= (1 + _CLOSE) * last["float16"]:
        return ""
    return f" In the {_whose(course)} the loss with the scale ends higher: skipped steps train nothing."


def _whose(table: pd.DataFrame) -> str:
    source = fact(table, "source")
    return next((f"{name} run" for name in ("recorded", "published") if source.startswith(name)), "run here")


def bytes_as_computed(table: pd.DataFrame) -> Markdown:
    """Say whether the tensors hold the bytes that the formula gives each item; takes `memory`."""
    errors = table["counted_error"].dropna()
    if errors.empty:
        return verdict("This run counted no tensors.")
    if errors.max() > _CLOSE:
        return verdict(f"✘ Some item differs from the formula's by {units.percent(errors.max())}.")
    within = "exactly" if errors.max() == 0 else f"within {units.percent(errors.max())}"
    return verdict(f"✔ Each item has the bytes that the formula gives, {within}.")


def ledger_explains(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say how much of a peak the formula leaves over at most, here and recorded; takes two tables of `memory`."""
    runs = by_place(here, recorded)
    worst = {place: table["unexplained_share"].abs().max() for place, table in runs.items()}
    judged = "explains every peak" if max(worst.values()) <= _NEAR else "does not explain every peak"
    shape = {"index": ["precision", "sequence"], "columns": "phase", "values": "peak", "sort": False}
    peaks = [table.pivot_table(**shape).reset_index().assign(run=place) for place, table in runs.items()]
    rest = listed(f"{units.percent(share)} {place}" for place, share in worst.items())
    return verdict(
        f"**The formula {judged}**: the rest is at most {rest}.",
        pd.concat(peaks).rename(columns={"sequence": "context"}).round(1),
        summary="All peaks in MiB; forward keeps its activations, no_grad keeps nothing",
    )


def largest_allocation(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say what the recorded run's largest allocation is; the largest of this run are folded. Takes `allocations`."""
    top, matrix = recorded["size_mib"].iloc[0], fact(recorded, "matrix_mib")
    what = "exactly one float32 matrix of the SwiGLU" if top == matrix else "not the size of a matrix of the SwiGLU"
    made_in = recorded["phase"].iloc[0]
    what += f", made in {made_in}" + (": a gradient, no activation" if made_in == "backward" else "")
    shown = here.head(_LISTED).rename(columns={"size_mib": "MiB", "count": "times", "source": "text"})
    shown["text"] = [f"`{text}`" if text else "(autograd's own thread)" for text in shown["text"].fillna("")]
    return verdict(
        f"**In the recorded run the largest takes {units.size(top * MIB)}**: {what}.",
        shown,
        summary="The largest allocations of this run, with the line that made them",
    )


def leanest(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say which lever leaves the lowest peak, and at what time, here and recorded; takes two tables of `levers`."""
    measured = [table.dropna(subset=["peak_ratio"]) for table in (here, recorded)]
    if any(table.empty for table in measured):
        return verdict("The plain step did not run: nothing to compare with.")
    tops = [table.loc[table["peak_ratio"].idxmin()] for table in measured]
    name = tops[0]["lever"] if tops[0]["lever"] == tops[1]["lever"] else listed(top["lever"] for top in tops)
    least = {place: table["peak_ratio"].min() for place, table in by_place(*measured).items()}
    shares = listed(f"{units.percent(share)} {place}" for place, share in least.items())
    idle = {*measured[1].loc[(measured[1]["peak_ratio"] - 1).abs() < _CLOSE, "lever"]} - {"plain"}
    columns = {"peak_ratio": "peak", "time_ratio": "time", "best": "unbeaten"}
    shown = here[["lever", *columns]].merge(recorded[["lever", *columns]], on="lever", how="outer", sort=False)
    shown = shown.set_index("lever").reindex([lever for lever in LEVERS if lever in {*shown["lever"]}]).reset_index()
    shown.columns = ["lever", *(f"{name}, {run}" for run in ("here", "recorded") for name in columns.values())]
    why = ""
    if fact(recorded, "fullest_at_loss") and idle and idle <= _AFTER_THE_LOSS:
        why = ": they change what is there after the loss, the fullest moment"
    return verdict(
        f"**The leanest is *{name}***: of the plain peak, {shares}. Alone, "
        f"{listed(f'*{lever}*' for lever in sorted(idle))} leave the recorded peak as it is{why}.",
        shown.astype(object).fillna("–"),
        summary="All levers, over the plain step; unbeaten: no other lever has a lower peak without taking "
        "longer, or takes less time without a higher peak",
    )


def in_one_minute(here: Runs, recorded: Runs) -> Markdown:
    """Return the lesson's rules, each with what it is worth in this node's runs and in the recorded ones."""
    return one_minute(_RULES, here=here, recorded=recorded)


def _narrow_sum(runs: Runs) -> str:
    ends = tables.sums(runs["numbers"]).set_index("way")["torch"]
    return f"the bfloat16 sum ends at {ends['bfloat16 + bfloat16']:g}, a float32 sum at {ends['float32 + float16']:.4g}"


def _loss_format(runs: Runs) -> str:
    return f"the loss is {tables.dtypes(runs['numbers']).set_index('what').loc['loss', 'bfloat16']}"


def _lost_gradients(runs: Runs) -> str:
    zero = tables.scaling(runs["scaling"]).groupby("way")["zero_share"].median()
    return f"zero gradients: {units.percent(zero['float16'])} without, {units.percent(zero['float16 scaled'])} with"


def _moment(runs: Runs) -> str:
    table = tables.memory(runs["memory"])
    return f"formula and peak differ by at most {units.percent(table['unexplained_share'].abs().max())}"


def _lowest(runs: Runs) -> str:
    return f"{units.percent(tables.levers(runs['levers'])['peak_ratio'].min())} of the plain peak"


_RULES = {
    "Keep a running sum wide": _narrow_sum,
    "Multiply in 16 bits; keep weights, statistics and loss in 32": _loss_format,
    "Give float16 a loss scale; bfloat16 needs none": _lost_gradients,
    "Add up what is there at the fullest moment": _moment,
    "Lower what is there at that moment, by several levers": _lowest,
}
