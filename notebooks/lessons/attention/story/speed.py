"""Times → sentences: who is fastest and why not, what precision costs, and where the floor is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.names import ATTENTION_NAMES
from labkit.story.units import span
from labkit.story.words import about_tables, bullets, capitalised, listed

_OURS, _FROM = "flash", 1024  # from this length on our FlashAttention is to be no slower than its rival
_NAME = ATTENTION_NAMES[_OURS]
_CLOCKS = ("captured", "launched")
_SETTING = ["precision", "head_dim", "sequence"]
_TARGET = {"clock": "launched", "precision": "bfloat16", "head_dim": 64, "sequence": 16384, "phase": "both"}
_TARGET_MS, _TF32_PRODUCTS = 4.0, 3
_LITTLE, _SAME = 0.05, 0.1
_INTERPRETED = (
    "Triton's interpreter runs our kernel in Python, one program after another. **Its times say nothing about the "
    "kernel on a GPU.**"
)


@about_tables
def explain_race(table: pd.DataFrame) -> Markdown:
    """Say who is fastest, whether and why our FlashAttention is slower than its rival, and if it meets the target."""
    return _sentences(table, _winners, *(partial(_slower, clock=clock) for clock in _CLOCKS), _why, _target, _limit)


@about_tables
def explain_sweep(table: pd.DataFrame, floors: pd.DataFrame) -> Markdown:
    """Say the largest speed-up, who runs out of memory, where our FlashAttention is slower, and what float32 costs.

    And of the same run's `floors`, how far the shortest time reaches while the work grows: what of it is launching.
    """
    sentences = _sentences(table, _largest, _memory, _lost, _precisions, lambda _: _bound(floors))
    # Not a bullet: a table inside a list is not drawn as one.
    return sentences if fact(table, "interpreted") else Markdown(f"{sentences.data}\n\n{_floors(floors)}")


def _sentences(table: pd.DataFrame, *tellers: Callable[[pd.DataFrame], str | None]) -> Markdown:
    sentences = [_INTERPRETED] if fact(table, "interpreted") else [tell(table) for tell in tellers]
    return bullets(*sentences, small=fact(table, "small"))


def _winners(table: pd.DataFrame) -> str:
    sentences = []
    for clock, rows in table[table["phase"] == "both"].dropna(subset=["ms"]).groupby("clock", sort=False):
        best = rows.loc[rows.groupby(_SETTING)["ms"].idxmin()]
        (first, wins), *others = best["implementation"].value_counts().items()
        names = [f"{ATTENTION_NAMES[first]} in {wins} of {len(best)} settings"]
        names += [
            f"{ATTENTION_NAMES[name]} in {n} ({_where(best[best['implementation'] == name])})" for name, n in others
        ]
        sentences.append(f"**Fastest in forward and backward ({clock} clock)**: {listed(names)}.")
    return " ".join(sentences)


def _slower(table: pd.DataFrame, clock: str) -> str:
    rows, rival = _beside(table, clock), ATTENTION_NAMES[fact(table, "rival")]
    slower, by = rows[rows["versus"] > 1], f"On the **{clock}** clock {_NAME}"
    if rows.empty:
        return f"{by} was not measured beside {rival} from {units.count(_FROM)} tokens on."
    if slower.empty:
        return (
            f"{by} is **never slower than {rival}** from {units.count(_FROM)} tokens on: it takes "
            f"{span(rows['versus'], units.number)} of {rival}'s time in {len(rows)} measurements."
        )
    where, most = _where(slower), _most(slower, "versus")
    return f"{by} **is slower than {rival}** in {len(slower)} of {len(rows)} measurements, at most {most}: {where}."


def _why(table: pd.DataFrame) -> str:
    """Say of the launched times that are slower what the GPU alone takes: is it the host or the kernel?"""
    launched, captured = (_beside(table, clock) for clock in ("launched", "captured"))
    both = launched.merge(captured, on=[*_SETTING, "phase"], suffixes=("", "_alone"))
    slow = both[both["versus"] > 1]
    host, sentences, rival = slow[slow["versus_alone"] <= 1], [], ATTENTION_NAMES[fact(table, "rival")]
    for worst in host.nlargest(1, "versus").to_dict("records"):
        longest = both[both["sequence"] == both["sequence"].max()]
        middle_half = f"{units.number(worst['low_ms'])} to {units.number(worst['high_ms'])}"
        difference = (longest["ms"] / longest["ms_alone"] - 1).abs().max()
        sentences.append(
            f"**In {len(host)} of these the host is slow, not the kernel**: the GPU alone is no slower than "
            f"{rival}'s. At {_cell(worst)} ({worst['phase']}) the GPU works {units.number(worst['ms_alone'])} of "
            f"{units.number(worst['ms'])} ms (middle half of the repetitions: {middle_half} ms); the host takes "
            f"the rest to launch. At {units.count(longest['sequence'].iloc[0])} tokens the clocks differ by at most "
            f"{units.percent(difference)}."
        )
    if len(kernel := slow.drop(host.index)):
        sentences.append(
            f"**In {len(kernel)} the kernel is slow**: {_where(kernel)}. There the GPU alone is slower, too."
        )
    if untold := (launched["versus"] > 1).sum() - len(slow):
        sentences.append(f"For {untold} of these there is no captured clock, so the host or the kernel may be slow.")
    return " ".join(sentences)


def _target(table: pd.DataFrame) -> str:
    rows = table[(table[[*_TARGET]] == pd.Series(_TARGET)).all(axis=1)].set_index("implementation")["ms"].dropna()
    if _OURS not in rows:
        return "The target's setting was not measured."
    flash_ms, difference = rows[_OURS], units.percent(abs(rows[_OURS] / _TARGET_MS - 1))
    met = f"met, {difference} below" if flash_ms <= _TARGET_MS else f"missed by {difference}"
    others = [
        f"{ATTENTION_NAMES[name]} {units.number(ms)} ms ({units.times(ms / flash_ms)})"
        for name, ms in rows.drop(_OURS).items()
    ]
    return (
        f"**The target of {_TARGET_MS} ms is {met}**: forward and backward of {units.count(_TARGET['sequence'])} "
        f"tokens at d = {_TARGET['head_dim']} take {_NAME} {units.number(flash_ms)} ms. Others there: {listed(others)}."
    )


def _limit(table: pd.DataFrame) -> str:
    flash_rows = table[table["implementation"] == _OURS].dropna(subset=["share_of_peak"])
    if wrong := (table["verdict"] == "impossible").sum():
        return f"**{wrong} times are shorter than this GPU allows: their clock is wrong.**"
    if flash_rows.empty:
        return "No limit of this GPU is known."
    most = flash_rows.loc[flash_rows["share_of_peak"].idxmax()]
    best = f"{units.number(most['tflops'])} TFLOP/s, {units.percent(most['share_of_peak'])} of the peak"
    return f"No time is shorter than the GPU allows; our best rate is {best} ({most['phase']}, {_cell(most)})."


def _floors(table: pd.DataFrame) -> str:
    rows = _both_floors(table).query("clock == 'launched'")
    verb = "do not follow" if (rows["until"] > rows["first"]).any() else "follow"
    shortest = units.count(table["first"].min())
    lines = [
        f"**The shortest times of forward and backward {verb} the work** ({shortest} tokens or more):",
        "",
        "| | least time | at most 1.5 times that up to | scores there, relative to the shortest |",
        "| --- | --- | --- | --- |",
    ]
    for row in rows.itertuples():
        reach = [f"{units.count(row.until)} tokens", units.times(row.work)] if row.until > row.first else ["–", "–"]
        cells = [f"{ATTENTION_NAMES[row.implementation]}, {row.precision}", f"{units.number(row.floor_ms)} ms", *reach]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _bound(table: pd.DataFrame) -> str | None:
    flat = _both_floors(table).query("clock == 'launched' and until > first")
    if flat.empty:
        return None
    share = flat["share_of_limit"].max()
    if pd.isna(share):
        return "No limit of this GPU is known."
    sentence = (
        f"At {units.count(flat['first'].iloc[0])} tokens the GPU needs at most {units.percent(share)} of the least time"
    )
    return f"{sentence}. **The rest is launching: launch-bound.**" if share < _LITTLE else f"{sentence}."


def _both_floors(table: pd.DataFrame) -> pd.DataFrame:
    return table[(table["phase"] == "both") & table["implementation"].isin([_OURS, "plain"])]


def _largest(table: pd.DataFrame) -> str:
    rows = table.dropna(subset=["speed_up"])
    if rows.empty:
        return f"{capitalised(_NAME)} was not measured beside plain attention."
    wins = "at most" if rows["speed_up"].max() > 1 else "nowhere faster, at best"
    return f"**Compared with plain attention {_NAME} is {wins} {_most(rows, 'speed_up')} as fast.**"


def _memory(table: pd.DataFrame) -> str:
    sentences = []
    for name in ("plain", _OURS):
        failed = table[table[f"{name}_status"].notna() & (table[f"{name}_status"] != "ok")]
        if len(failed):
            sentences.append(f"{capitalised(ATTENTION_NAMES[name])} runs out of memory: {_where(failed)}.")
    return " ".join(sentences) or f"Neither runs out of memory up to {units.count(table['sequence'].max())} tokens."


def _lost(table: pd.DataFrame) -> str:
    rows = table[table["phase"] == "both"].dropna(subset=["speed_up"])
    lost = rows[rows["speed_up"] < 1 / (1 + _SAME)].assign(loss=lambda found: 1 / found["speed_up"])
    sentence = (
        f"In forward and backward {_NAME} is more than {units.percent(_SAME)} **slower in {len(lost) or 'none'} of "
        f"{len(rows)} settings**"
    )
    return f"{sentence}: {_where(lost)}; at most {_most(lost, 'loss')}." if len(lost) else f"{sentence}."


def _precisions(table: pd.DataFrame) -> str | None:
    rows = table[(table["phase"] == "both") & (table["sequence"] == table["sequence"].max())]
    wide = rows.pivot_table(index="head_dim", columns="precision", values=["flash_ms", "peak_tflops"])
    if not {("flash_ms", "float32"), ("flash_ms", "bfloat16")} <= set(wide):
        return None
    ratios = wide["flash_ms", "float32"] / wide["flash_ms", "bfloat16"]
    times = span(ratios, units.number)
    sentence = f"At {units.count(rows['sequence'].iloc[0])} tokens float32 takes {_NAME} {times} times bfloat16's time"
    if rows["peak_tflops"].isna().any():
        return f"{sentence}. It multiplies float32 numbers as three TF32 products."
    products = _TF32_PRODUCTS * (wide["peak_tflops", "bfloat16"] / wide["peak_tflops", "float32"]).max()
    verdict = "that explains it" if ratios.max() <= (1 + _SAME) * products else "that does not explain all of it"
    return f"{sentence}. Three TF32 products in place of one cost {units.times(products)} by datasheet: **{verdict}.**"


def _beside(table: pd.DataFrame, clock: str) -> pd.DataFrame:
    rows = table[(table["implementation"] == _OURS) & (table["clock"] == clock) & (table["sequence"] >= _FROM)]
    return rows.dropna(subset=["versus"])


def _where(rows: pd.DataFrame) -> str:
    """Say where rows stand: "bfloat16, d = 64 at 1 024 and 2 048; float32, d = 64 at 1 024"."""
    places = []
    for (precision, width), group in rows.groupby(["precision", "head_dim"], sort=False):
        places.append(
            f"{precision}, d = {width} at {listed(units.count(length) for length in sorted(set(group['sequence'])))}"
        )
    return "; ".join(places)


def _most(rows: pd.DataFrame, column: str) -> str:
    worst = rows.loc[rows[column].idxmax()]
    what = worst.get("kernel", worst.get("phase"))
    return f"{units.times(worst[column])} ({what}, {worst['precision']}, {_cell(worst)})"


def _cell(row) -> str:
    return f"d = {row['head_dim']} at {units.count(row['sequence'])}"
