"""Tables of lab 08 → verdicts: each compares on its tables before it says one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact, sources, where
from labkit.story import units
from labkit.story.verdict import NOT_COMPARED, one_minute, verdict
from labkit.story.words import as_table, listed
from lessons.attention.tables import memory, speed
from lessons.attention.theory import ATTENTION_NAMES, PHASES

Runs = Mapping[str, Any]  # a run by the name of its plan, such as "memory"
_OURS = "flash"
_WHOLE = 0.05  # of an N×N matrix
_NO_BREAK = "\u202f"
_GENERATIONS = ("hopper", _OURS, "sdpa_cudnn")
_SEES = 0.5  # of forward's time: a clock that shows less does not see the work
_INTERPRETED = "Here Triton's interpreter runs our kernel in Python: its times say nothing about a GPU."


def who_fits(table: pd.DataFrame) -> Markdown:
    """Say at which length plain attention runs out of memory, and what FlashAttention needs there; of `held`."""
    gone = table[(table["implementation"] == "plain") & (table["status"] != "ok")]["sequence"]
    if gone.empty:
        return verdict(f"**Plain attention runs at all lengths**, up to {units.count(table['sequence'].max())}.")
    ours = table[(table["implementation"] == _OURS) & (table["sequence"] == gone.min())]["backward_mib"].max()
    other = (
        "so does FlashAttention" if math.isnan(ours) else f"FlashAttention needs {units.count(ours)} MiB in backward"
    )
    return verdict(f"**At {units.count(gone.min())} positions plain attention runs out of memory; {other}.**")


def matrices(*tables: pd.DataFrame) -> Markdown:
    """Say how many N×N matrices are there, by the last table, and whether all are the formulas'; tables of `held`."""
    counts = [_squares(table) for table in tables]
    last, every = counts[-1].set_index("attention"), pd.concat(counts)
    wrong = sorted({*every[every["apart"] > _WHOLE]["attention"]})
    judged = f"✘ Other than by the formulas: {listed(wrong)}." if wrong else "✔ In every run as the formulas say."
    plain, ours = (last.loc[ATTENTION_NAMES[name], ["kept", "most"]] for name in ("plain", _OURS))
    matrices_kept = f"{plain['kept']} N×N {'matrix' if plain['kept'] == '1' else 'matrices'}"
    return verdict(
        f"**Plain attention keeps {matrices_kept} and has {plain['most']} in backward; FlashAttention has "
        f"{max(ours)}.** {judged}",
        every.drop(columns="apart"),
        summary="N×N matrices at the longest length that ran; the length that failed; the longest that fits by formula",
    )


def _squares(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per implementation: N×N matrices kept and at most in backward, and how far from the formulas."""
    parts = []
    for name, group in table[table["kept_due"].notna()].groupby("implementation", sort=False):
        ran, failed = group[group["status"] == "ok"].iloc[-1], group[group["status"] != "ok"]["sequence"].min()
        apart = [abs(ran[f"{moment}_squares"] - ran[f"{moment}_due"]) for moment in ("kept", "backward")]
        kept, most = (f"{round(ran[f'{moment}_squares'], 1):g}" for moment in ("kept", "backward"))
        lengths = ("–" if math.isnan(length) else units.count(length) for length in (failed, ran["fits"]))
        names = where(table), ATTENTION_NAMES[str(name)], units.count(ran["sequence"])
        parts.append((*names, kept, most, *lengths, max(apart)))
    heads = ["run", "attention", "positions", "kept", "most", "failed", "fits", "apart"]
    return pd.DataFrame(parts, columns=heads)


def clock_waits(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say what a clock that does not wait shows of plain attention's forward at the longest length; of `plain`."""
    on_gpu = fact(here, "gpu_mib") > 0
    sentence = _unseen(here if on_gpu else recorded)
    if not on_gpu:
        sentence += " Here a call returns after its work: where the clocks differ, it is noise, and no GPU's."
    shown = pd.DataFrame({sources(table): _clocks(table) for table in (here, recorded)}).fillna("–")
    summary = "What the check of physics says of each clock, and what compiling gains"
    return verdict(sentence, shown.rename_axis("times of").reset_index(), summary=summary)


def _unseen(table: pd.DataFrame) -> str:
    row = _longest(table, "plain")
    shown, waited = (units.number(row[f"{clock}_ms"]) for clock in ("unsynchronised", "forward"))
    sees = row["unsynchronised_ms"] >= _SEES * row["forward_ms"]
    start = "sees the work: it shows" if sees else "does not see the work: it shows"
    clock, at = f"**{where(table).split(',')[0]}: a clock that does not wait", units.count(row["sequence"])
    at = at.replace(" ", _NO_BREAK)
    return f"{clock} {start} {shown} ms where forward takes {waited} ms**, at {at} positions."


def _longest(table: pd.DataFrame, implementation: str) -> pd.Series:
    """Return an implementation's row at d = 64 and the longest length that it ran at."""
    rows = table[(table["implementation"] == implementation) & (table["head_dim"] == 64)]
    return rows.dropna(subset=["forward_ms", "backward_ms"]).sort_values("sequence").iloc[-1]


def _clocks(table: pd.DataFrame) -> dict[str, str]:
    """Return what the check of physics says of both clocks, and what compiling gains at both ends of the lengths."""
    answers, ms = {}, table[table["head_dim"] == 64].set_index(["implementation", "sequence"])
    for name in ("forward", "backward", "unsynchronised"):
        verdicts = table.loc[table[f"{name}_ms"].notna(), f"{name}_verdict"]
        clock = "forward, without waiting" if name == "unsynchronised" else name
        wrong = f"{(verdicts == 'impossible').sum()} of {len(verdicts)} are shorter than the GPU allows"
        answers[clock] = "no limit known" if (verdicts == "no limit known").all() else wrong
    for phase in ("forward", "backward") if "compiled" in set(table["implementation"]) else ():
        gains = (ms.loc["plain", f"{phase}_ms"] / ms.loc["compiled", f"{phase}_ms"]).dropna()
        least, most = ((units.times(gains[at]), units.count(at)) for at in (gains.index[0], gains.index[-1]))
        answers[f"{phase}, compiled"] = f"{least[0]} as fast as plain at {least[1]} positions, {most[0]} at {most[1]}"
    return answers


def exact(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say whether every tensor is within its tolerance, and a second run gives the same bits; of `errors`."""
    both = pd.concat([table.assign(run=where(table)) for table in (here, recorded)], ignore_index=True)
    both["attention"] = both["implementation"].map(ATTENTION_NAMES)
    wrong, sentence = both[~(both["share"] <= 1)], "✔ **Every tensor is within the tolerance of float64**"
    if len(wrong):
        rows = (f"{row.tensor} of {row.attention}" for row in wrong.itertuples())
        sentence = f"✘ **Beyond the tolerance of float64**: {listed(dict.fromkeys(rows))}"
    hoppers = both["implementation"] == "hopper"
    bits = "the same bits" if both["same_bits"][~hoppers].all() else "other bits"
    if bits == "the same bits" and not both["same_bits"][hoppers].all():
        bits += " but for dQ of the kernels for Hopper"
    worst = both.loc[both.groupby(["run", "attention", "precision"], sort=False)["share"].idxmax()]
    shown = worst[["run", "attention", "precision", "tensor", "shape"]].assign(share=worst["share"].map(units.percent))
    return verdict(
        f"{sentence}; a second run gives {bits}.",
        shown.rename(columns={"shape": "queries × keys × d", "share": "of the tolerance"}),
        summary="The largest error of each attention, the tensor and the shape where it is",
    )


def host_or_kernel(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say how our FlashAttention's time compares with its rival's by both clocks; of `race`."""
    interpreted = fact(here, "interpreted")
    sentence = f"{_against(recorded)} {_INTERPRETED}" if interpreted else _against(here)
    rows = pd.concat([_ends(table) for table in (here, recorded)]).fillna("–")
    summary = "Forward and backward at the shortest and the longest length that were measured, least head dimension"
    return verdict(sentence, rows, summary=summary)


def _against(race: pd.DataFrame) -> str:
    table = race[race["phase"] == "both"]
    rival, of_ours = ATTENTION_NAMES[fact(table, "rival")], table[table["implementation"] == _OURS]
    alone, launched = (of_ours[of_ours["clock"] == clock]["versus"].dropna() for clock in ("captured", "launched"))
    worst, place = of_ours.loc[launched.idxmax()], where(table).split(",")[0]
    host = f"Launched, ours takes up to {units.times(worst['versus'])} {rival}'s time"
    if launched.max() <= 1:
        host = "Launched, it is never slower, either"
    elif alone.max() <= 1:
        host += " where the GPU waits for the host"
    ours, best = (
        table[(table["implementation"] == name) & (table["clock"] == "captured")].set_index(["head_dim", "sequence"])[
            "ms"
        ]
        for name in (_OURS, "sdpa_cudnn")
    )
    ahead = (ours / best).max()
    more = f"; cuDNN is up to {units.times(ahead)} as fast as ours" if ahead > 1 else ""
    faster = "never slower" if alone.max() <= 1 else f"up to {units.times(alone.max())} as slow as"
    than = f"than {rival}" if alone.max() <= 1 else rival
    start = (
        f"**{place}: on the GPU alone, our FlashAttention is {faster} {than}{more}.** " if len(alone) else f"{place}: "
    )
    return f"{start}{host}."


def _ends(table: pd.DataFrame) -> pd.DataFrame:
    rows = table[(table["phase"] == "both") & table["ms"].notna() & (table["head_dim"] == table["head_dim"].min())]
    rows = rows[rows["sequence"].isin([rows["sequence"].min(), rows["sequence"].max()])]
    shown = {
        "run": where(table),
        "attention": rows["implementation"].map(ATTENTION_NAMES),
        "clock": rows["clock"],
        "positions": rows["sequence"].map(units.count),
        "ms": rows["ms"].map(units.number),
        f"over {ATTENTION_NAMES[fact(table, 'rival')]}": rows["versus"].map(units.times),
        "of the peak rate": ["–" if math.isnan(share) else units.percent(share) for share in rows["share_of_peak"]],
    }
    return pd.DataFrame(shown)


def one_generation(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say how long the kernels for Hopper take beside our Triton kernels and cuDNN's, at their longest; of `race`."""
    table = here if "hopper" in {*here["implementation"]} else recorded
    rows = table[(table["clock"] == "launched") & (table["head_dim"] == 64)]
    longest = rows.loc[(rows["implementation"] == "hopper") & rows["ms"].notna(), "sequence"].max()
    rows = rows[(rows["sequence"] == longest) & rows["implementation"].isin(_GENERATIONS)]
    ms = rows.pivot_table(index="implementation", columns="phase", values="ms").reindex(_GENERATIONS, columns=PHASES)
    saved = ms.loc[_OURS] - ms.loc["hopper"]
    hopper, triton, cudnn = (f"{units.number(each)} ms" for each in ms["both"])
    start, most = f"{where(table).split(',')[0]}, at the longest sequence", saved[["forward", "backward"]].idxmax()
    shown = ms.rename(index=ATTENTION_NAMES, columns="{}, ms".format).rename_axis(sources(table)).reset_index()
    return verdict(
        f"**{start}: the kernels for Hopper take {hopper}, our Triton kernels {triton}, cuDNN {cudnn}.** More of "
        f"Triton's time is saved in {most}. Backward also makes fewer products; what starting early gains alone was "
        "not timed.",
        shown,
        summary="Forward and backward apart",
    )


def gain(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say the least and the largest gain over plain attention in forward and backward together; of `sweep`."""
    table = recorded if fact(here, "interpreted") else here
    both = table[table["phase"] == "both"]
    shown = both.assign(
        setting=both["precision"] + ", d = " + both["head_dim"].astype(str),
        positions=both["sequence"].map(units.count),
        gain=both["speed_up"].map(units.times).where(both["plain_status"] == "ok", both["plain_status"]),
    ).pivot_table(index="positions", columns="setting", values="gain", aggfunc="first", sort=False)
    sentence = (
        f"**{where(table).split(',')[0]}: forward and backward together, one head: FlashAttention is "
        f"{units.span(both['speed_up'].dropna())} as fast as plain attention.**"
    )
    shown = shown.rename_axis(f"positions, {sources(table)}").reset_index()
    return Markdown(f"{verdict(sentence).data}\n\n{as_table(shown)}")


def in_one_minute(here: Runs, recorded: Runs) -> Markdown:
    """Return the lesson's rules, each with what it is worth in this node's runs and in the recorded ones."""
    return one_minute(_RULES, here=here, recorded=recorded)


def _most(runs: Runs) -> str:
    rows = _squares(memory.held(runs["memory"])).set_index("attention")["most"]
    return f"N×N matrices in backward: plain {rows[ATTENTION_NAMES['plain']]}, ours {rows[ATTENTION_NAMES[_OURS]]}"


def _growth(runs: Runs) -> str:
    last = memory.held(runs["memory"]).dropna(subset=["exponent"]).groupby("implementation")["exponent"].last()
    return f"plain keeps as N^{last['plain']:.1f}, ours as N^{last[_OURS]:.1f}"


def _clock(runs: Runs) -> str:
    table = memory.plain(runs["plain"])
    if not fact(table, "gpu_mib") > 0:
        return NOT_COMPARED
    row = _longest(table, "plain")
    share = units.percent(row["unsynchronised_ms"] / row["forward_ms"])
    return f"without waiting, it shows {share} of forward ({_gpu(runs['plain'])})"


def _right(runs: Runs) -> str:
    table = memory.errors(runs["errors"])
    names = listed([ATTENTION_NAMES[name] for name in dict.fromkeys(table["implementation"])])
    return f"largest error of {names}: {units.percent(table['share'].max())} of the tolerance"


def _race(runs: Runs, of: str) -> pd.DataFrame | None:
    """Return our and plain attention's ms by length, least d; None where no GPU ran the kernels."""
    table = speed.race(runs["race"])
    rows = table[(table["phase"] == "both") & (table["head_dim"] == table["head_dim"].min())]
    rows = rows[rows[of].isin(["launched", "captured", "plain", _OURS])]
    rows = rows[rows["clock"] == "launched"] if of == "implementation" else rows[rows["implementation"] == _OURS]
    return None if fact(table, "interpreted") else rows.pivot_table(index="sequence", columns=of, values="ms").dropna()


def _again(runs: Runs) -> str | None:
    ms = _race(runs, "implementation")
    if ms is None:
        return None
    gain, setting = ms["plain"].iloc[-1] / ms[_OURS].iloc[-1], f"{runs['race'].plan.heads} heads in bfloat16"
    longest = f"{units.count(ms.index[-1])} positions ({_gpu(runs['race'])})"
    return f"{units.times(gain)} as fast as plain, with {setting} at {longest}"


def _launch(runs: Runs) -> str | None:
    ms = _race(runs, "clock")
    if ms is None or "captured" not in ms:
        return None
    share = units.percent((ms["captured"] / ms["launched"]).iloc[0])
    shortest = f"at {units.count(ms.index[0])} positions"
    return f"{shortest} a replay, cache warm, takes {share} of a launched call, cache cleared ({_gpu(runs['race'])})"


def _gpu(run: Any) -> str:
    return run.node.gpus[0].name


_RULES = {
    "A softmax needs no whole row: keep a maximum, a sum and an output": _most,
    "With tiles, memory grows as N": _growth,
    "Stop the clock after the GPU has finished": _clock,
    "Compare a kernel with float64, at shapes that no tile divides": _right,
    "For long sequences compute scores again rather than read them, but time both": _again,
    "Short sequences pay for launches": _launch,
}
