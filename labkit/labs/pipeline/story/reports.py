"""Published reports → sentences: what each figure can come from, and what the recorded runs reach."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.story import units

CLOSE = 0.1  # memory within 10 % is called the same


def doubt_reports(claims: pd.DataFrame, rates: pd.DataFrame, sums: pd.DataFrame) -> Markdown:
    """Say which mode each published ratio can come from, what does not follow, and what rates, memory, splits tell."""
    sentences = [_claim(row) for row in claims.to_dict("records")]
    if (claims["fits"] == "streaming").any():
        sentences.append(
            "In a stream the next batch fills the bubble, whatever the number of micro-batches: **that four of them "
            "mask the bubble does not follow.**"
        )
    sentences += [_rates(rates), _memory(rates)]
    for row in sums[~sums["is_bert_base"]].itertuples():
        equals = f"; its figure is that of the run on {row.same_figure_as}" if row.same_figure_as else ""
        sentences.append(f'"{row.split}" has {row.layers} layers and cannot be a split of BERT-base\'s 12{equals}.')
    return Markdown("\n".join(f"- {sentence}" for sentence in sentences if sentence))


def _claim(row: dict) -> str:
    limits = f"fenced {units.number(row['fenced_limit'])}×, streaming {units.number(row['streaming_limit'])}×"
    printed = f"{row['report']}, {row['claim']}: {units.number(row['printed'], 4)}×"
    if row["printed"] < 1 and " over " not in row["claim"]:
        return f"{printed}: more GPUs made it slower, which no pipeline's arithmetic gives."
    if row["fits"] == "none":
        return f"{printed} fits no mode ({limits})."
    if row["fits"] == "streaming":
        return f"{printed} **fits a stream of forward passes only** ({limits})."
    return f"{printed} fits {row['fits']} ({limits})."


def _rates(table: pd.DataFrame) -> str | None:
    known = table[table["times_ours"].notna()]
    if known.empty:
        return None
    worst = known.loc[known["times_ours"].idxmin()]
    if worst["times_ours"] >= 0.1:
        return "All published rates are within a factor of ten of the recorded ones."
    return (
        f"{worst['report']} prints {units.number(worst['samples_per_second'])} samples/s on {worst['gpus']} GPUs, "
        f"**{units.times(1 / worst['times_ours'])} below** the recorded stream: "
        f"{units.seconds(worst['missing_seconds'])} a step that no stage accounts for, as when "
        "start-up runs inside the clock."
    )


def _memory(table: pd.DataFrame) -> str | None:
    like = table[(table["memory_over_training"] - 1).abs() <= CLOSE]
    if like.empty or not (like["memory_over_streaming"] > 2).all():
        return None
    report, fewest = like["report"].iloc[0], units.times(like["memory_over_streaming"].min())
    return (
        f"{report}'s memory is that of our training, at least {fewest} that of our stream: **its forward passes seem "
        "to have kept every activation for a backward that never came** (as without `no_grad`)."
    )
