"""Plain attention's times, memory and errors → sentences: what grows, what is held, what fits, what is right."""

from __future__ import annotations

import math

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.names import ATTENTION_NAMES as NAMES
from labkit.story.words import about_tables, bullets, capitalised, listed

_KEPT = {"by_hand": "exp(S − max) and P", "plain": "P", "flash": "nothing N×N"}
_BACKWARD = {
    "by_hand": "exp(S − max), dP and four for the gradient of the row sums",
    "plain": "P, dP, dP∘P and dS",
    "flash": "none",
}
_FOLLOWS = 1.5  # a time that grows with at least this power of N follows work that grows as N²
_SEEN, _SAME = 0.5, 0.1  # a clock that shows less of forward's time does not see it; times this close are the same
_EXACT, _WHOLE, _EXPONENT = 0.01, 0.05, 0.15  # of a formula's bytes; of an N×N matrix; of a power of N


@about_tables
def explain_plain(table: pd.DataFrame) -> Markdown:
    """Say what grows on which clock, what the check says of each, what compiling changes, and what does not fit."""
    sentences = [_growing(table), _waiting(table), _checked(table), _compiled(table), _gone(table)]
    return bullets(*sentences, small=fact(table, "small"))


@about_tables
def explain_memory(held: pd.DataFrame, limit: pd.DataFrame) -> Markdown:
    """Say which N×N matrices are kept, how memory grows, whether the formulas hold, and why the shortest failed."""
    sentences = [
        _kept(held),
        _exponents(held),
        _formulas(held),
        *[_limited(row) for row in _shortest(limit)],
        _runs(limit),
    ]
    return bullets(*sentences, small=fact(held, "small"))


@about_tables
def explain_errors(table: pd.DataFrame) -> Markdown:
    """Say whether every tensor is within the tolerance, which comes nearest, and whether a second run is the same."""
    wrong = table[~(table["share"] <= 1)]
    shapes = table.groupby("implementation", sort=False)["shapes"].max()
    counts = listed(f"{NAMES[name]} ({count} shapes)" for name, count in shapes.items())
    sentences = [f"**Every tensor is within the tolerance of float64**: {counts}."]
    if len(wrong):
        rows = (
            f"{row.tensor} of {NAMES[row.implementation]} in {row.precision} ({units.number(row.worst)}, at "
            f"{row.shape})"
            for row in wrong.itertuples()
        )
        sentences = [f"**Beyond the tolerance**: {listed(rows)}."]
    for precision, group in table.groupby("precision", sort=False):
        worst = group.loc[group["share"].idxmax()]
        sentences.append(
            f"Closest to the tolerance in {precision} is {worst['tensor']} of {NAMES[worst['implementation']]}: "
            f"{units.percent(worst['share'])} of {worst['tolerance']:g}."
        )
    unlike = table[~table["same_bits"]].drop_duplicates(["implementation", "precision"])
    where = listed(f"{NAMES[row.implementation]} in {row.precision}" for row in unlike.itertuples())
    sentences.append(
        f"**A second run returns other bits**: {where}." if len(unlike) else "A second run returns the same bits."
    )
    return bullets(*sentences, small=fact(table, "small"))


def _growing(table: pd.DataFrame) -> str | None:
    """Say of the lengths that every implementation ran at whether its times grow as the work does."""
    ran = table.dropna(subset=["forward_ms", "backward_ms"])
    table = table[table["sequence"] <= ran.groupby("implementation")["sequence"].max().min()]
    grown = {
        (name, phase): _grown(group, f"{phase}_ms")
        for name, group in table.groupby("implementation", sort=False)
        for phase in ("forward", "backward")
    }
    grown = {key: group for key, group in grown.items() if group is not None}
    if not grown:
        return None
    longest = max(last for _, last, _ in grown.values())
    first = next(first for first, last, _ in grown.values() if last == longest)
    same = {key: time for key, (start, last, time) in grown.items() if (start, last) == (first, longest)}
    power = {key: math.log(time) / math.log(longest / first) for key, time in same.items()}
    slow = [f"{NAMES[name]} in {phase}" for name, phase in same if power[name, phase] < _FOLLOWS]
    sentence = (
        f"From {units.count(first)} to {units.count(longest)} tokens work grows {units.times((longest / first) ** 2)}, "
        f"and times that wait for the GPU grow {units.span(same.values())}"
    )
    return (
        f"{sentence}; **those of {listed(slow)} do not follow it.**" if slow else f"**Times follow work**: {sentence}."
    )


def _grown(group: pd.DataFrame, column: str) -> tuple[int, int, float] | None:
    """Return the last length of a time, the one at most a quarter of it, and how much the median over widths grew."""
    ms = group.groupby("sequence")[column].median().dropna()
    short = ms.index[ms.index <= ms.index.max() / 4]
    return (short.max(), ms.index.max(), ms.iloc[-1] / ms[short.max()]) if len(short) else None


def _waiting(table: pd.DataFrame) -> str | None:
    rows = table[table["unsynchronised_ms"].notna() & table["forward_ms"].notna()]
    if rows.empty:
        return None
    first, last = rows["sequence"].min(), rows["sequence"].max()
    ms, shown = (rows.loc[rows["sequence"] == last, f"{clock}_ms"] for clock in ("forward", "unsynchronised"))
    span_ms = units.span(rows["unsynchronised_ms"], units.number)
    shows = f"shows {span_ms} ms from {units.count(first)} to {units.count(last)} tokens"
    if shown.sum() < _SEEN * ms.sum():
        return (
            f"**A clock that does not wait times the launch.** It {shows}; forward takes "
            f"{units.span(ms, units.number)} ms at the longest."
        )
    share = units.percent(shown.sum() / ms.sum())
    return f"A clock that does not wait {shows}, at the end {share} of forward's time: it sees the work."


def _checked(table: pd.DataFrame) -> str:
    verdicts = {
        name: table.loc[table[f"{name}_ms"].notna(), f"{name}_verdict"]
        for name in ("forward", "backward", "unsynchronised")
    }
    if all((group == "no limit known").all() for group in verdicts.values()):
        return "No limit is known here that a time could beat."
    waited = pd.concat([verdicts["forward"], verdicts["backward"]]).eq("impossible")
    unsynchronised = verdicts["unsynchronised"].eq("impossible")
    of_waited = f"of the {len(waited)} times that wait for the GPU"
    waited_times = f"**{waited.sum()} {of_waited}**" if waited.any() else f"none {of_waited}"
    lengths = table["sequence"].reindex(unsynchronised.index[unsynchronised])
    from_ = f", from {units.count(lengths.min())} tokens on" if len(lengths) else ""
    return (
        f"The check of physics calls {unsynchronised.sum()} of this clock's {len(unsynchronised)} forward times "
        f"impossible{from_}, and {waited_times}."
    )


def _compiled(table: pd.DataFrame) -> str | None:
    keys = ["head_dim", "sequence"]
    eager, compiled = (table[table["implementation"] == name].set_index(keys) for name in ("plain", "compiled"))
    speeds = []
    for phase in ("forward", "backward"):
        gains = (eager[f"{phase}_ms"] / compiled[f"{phase}_ms"]).dropna()
        if len(gains):
            gain = gains.xs(gains.index.get_level_values("sequence").max(), level="sequence").iloc[0]
            how = (
                "as fast"
                if abs(gain - 1) <= _SAME
                else f"{units.times(max(gain, 1 / gain))} as " + ("fast" if gain > 1 else "slow")
            )
            speeds.append(f"{how} in {phase} at {units.count(gains.index.get_level_values('sequence').max())}")
    return f"Compiled, plain attention is {listed(speeds)}." if speeds else None


def _gone(table: pd.DataFrame) -> str:
    failed = table[table["status"] != "ok"].sort_values("sequence", kind="stable").drop_duplicates("implementation")
    if failed.empty:
        return f"No setting failed, up to {units.count(table['sequence'].max())} tokens."
    parts = [
        f"from {units.count(sequence)} tokens {listed(NAMES[name] for name in group['implementation'])} ({status})"
        for (sequence, status), group in failed.groupby(["sequence", "status"])
    ]
    return f"Not measured: {listed(parts)}."


def _kept(held: pd.DataFrame) -> str:
    parts = []
    for name, group in held.groupby("implementation", sort=False):
        column = "kept_squares" if group["kept_squares"].notna().any() else "held_squares"  # compiled tells no more
        for last in group[group[column].notna()].tail(1).to_dict("records"):
            part = f"{NAMES[name]} {units.number(round(last[column], 2))}"
            if abs(last[column] - last["due_squares"]) <= _WHOLE:
                part += f" ({_KEPT[name]})"
            elif pd.notna(last["due_squares"]):
                part += f" (**by formula {last['due_squares']:.0f}**)"
            parts.append(part)
    return f"**N×N matrices kept for backward**: {listed(parts)}."


def _exponents(held: pd.DataFrame) -> str | None:
    parts, not_linear = [], []
    for name, group in held[held["exponent"].notna()].groupby("implementation", sort=False):
        last = group.iloc[-1]
        parts.append(f"{NAMES[name]} as N^{units.number(last['exponent'])}")
        if name == "flash" and abs(last["exponent"] - 1) > _EXPONENT:
            not_linear.append(NAMES[name])
    if not parts:
        return None
    flash = any(part.startswith(NAMES["flash"]) for part in parts)
    end = (
        f". **{listed(not_linear)} is not linear.**"
        if not_linear
        else (f". **{capitalised(NAMES['flash'])} is linear.**" if flash else ".")
    )
    return f"Memory grows at the longest lengths: {listed(parts)}{end}"


def _formulas(held: pd.DataFrame) -> str:
    moments = ("kept", "forward", "held", "backward")
    errors = pd.concat({name: held[f"{name}_mib"] / held[f"{name}_formula_mib"] - 1 for name in moments}).dropna()
    cpu_note = "; on a CPU only the kept bytes are known" if held["backward_mib"].isna().all() else ""
    beyond = errors[errors.abs() > _EXACT]
    if beyond.empty:
        return f"All {len(errors)} measured sizes agree with the formulas within 1 %{cpu_note}."
    moment, at = beyond.abs().idxmax()
    worst = held.loc[at]
    return (
        f"Of {len(errors)} measured sizes {len(errors) - len(beyond)} agree with the formulas within 1 %{cpu_note}; "
        f"the largest difference is {moment} of {NAMES[worst['implementation']]} at {units.count(worst['sequence'])}: "
        f"{units.number(worst[f'{moment}_mib'])} MiB, by formula {units.number(worst[f'{moment}_formula_mib'])}."
    )


def _shortest(limit: pd.DataFrame) -> list:
    """Return, per implementation, the row of the shortest sequence that failed."""
    failed = limit[limit["failed"].notna()].sort_values("failed", kind="stable")
    return list(failed.drop_duplicates("implementation").itertuples())


def _limited(row) -> str:
    sentence = (
        f"{capitalised(NAMES[row.implementation])} fails at {units.count(row.sequence)}: one matrix is "
        f"{units.gib(row.square_gib)}, backward needs {row.backward_squares} ({_BACKWARD[row.implementation]}), "
        f"in all {units.gib(row.needed_gib)}; "
    )
    if row.needed_gib > row.memory_gib:
        return f"{sentence}the GPU has {units.gib(row.memory_gib)}, enough for {units.count(row.fits)}."
    sentence += f"**that would fit** in the GPU's {units.gib(row.memory_gib)}"
    if row.reserved_squares > row.backward_squares + _WHOLE:
        need = row.reserved_squares * row.square_gib
        sentence += (
            f", but at {units.count(row.ran)} torch had set aside {units.number(row.reserved_squares)} matrices' memory"
        )
        return f"{sentence}: here {units.gib(need)}{', too much' if need > row.memory_gib else ''}."
    return f"{sentence}: something else holds memory."


def _runs(limit: pd.DataFrame) -> str | None:
    rows = limit[limit["failed"].isna()].drop_duplicates("implementation")
    if rows.empty:
        return None
    parts = (
        f"{NAMES[row.implementation]} to {units.count(row.ran)} ({units.gib(row.needed_gib)})"
        for row in rows.itertuples()
    )
    return f"These did not fail (in brackets the memory by formula): {listed(parts)}."
