"""All-reduces over two nodes → sentences: the lines against the rate that was set, one ring against two levels."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import fact
from labkit.story import units
from labkit.story.words import about_tables, listed, say

NEAR = 0.1  # of the rate that was set: the goal for the line between nodes
_SAME = 0.02  # bytes that agree this well with theory, beside their packets' headers
_HEADERS = 0.06  # of a packet: 66 of 1514 bytes, and the acknowledgements


def rate(link_mbit: float) -> str:
    """Return how a rate of the link is said."""
    return f"{units.count(link_mbit)} Mbit/s" if link_mbit else "the link as it is"


@about_tables
def explain_lines(lines: pd.DataFrame) -> Markdown:
    """Say whether the fitted bandwidths between nodes are the rates that were set, and compare with inside a node."""
    between, inside = (lines[lines["place"] == place] for place in ("between", "inside"))
    shaped = between[between["link_mbit"] > 0]
    return say(*_rates(shaped), _inside(inside, between), _latency(inside, between), small=fact(lines, "small"))


def _rates(shaped: pd.DataFrame) -> list[str]:
    if shaped.empty:
        return ["The link was not shaped, so there is no rate to compare with."]
    near = (shaped["share_of_rate"] - 1).abs() <= NEAR
    shares = listed(f"{units.percent(row.share_of_rate)} of {rate(row.link_mbit)}" for row in shaped.itertuples())
    sentences = [f"**The lines between nodes** carry {shares}."]
    if near.all():
        sentences.append(
            "Each is within 10 % of the rate that was set: packet headers take 4 %, the link sets the pace."
        )
    else:
        far = listed(rate(value) for value in shaped.loc[~near, "link_mbit"])
        sentences.append(f"Not within 10 % of its rate: {far}. There the processes, not only the link, set the pace.")
    return sentences


def _inside(inside: pd.DataFrame, between: pd.DataFrame) -> str | None:
    if inside.empty or between.empty:
        return None
    own, slowest = float(inside["beta_gb_per_s"].iloc[0]), between.loc[between["beta_gb_per_s"].idxmin()]
    ratio = own / float(slowest["beta_gb_per_s"])
    if ratio <= 1:
        return "Inside a node, an all-reduce is no faster than between nodes."
    other = f"that between nodes at {rate(slowest['link_mbit'])}"
    return f"Inside a node β is {units.rate(own)}, {units.times(ratio)} {other}."


def _latency(inside: pd.DataFrame, between: pd.DataFrame) -> str | None:
    if inside.empty or between.empty:
        return None
    alphas = units.span(between["alpha_us"] / 1e6, units.seconds)
    own = units.seconds(float(inside["alpha_us"].iloc[0]) / 1e6)
    return f"α is {own} inside and {alphas} between nodes: a shaped link takes away bandwidth and adds no distance."


@about_tables
def explain_gain(gain: pd.DataFrame) -> Markdown:
    """Say by how much two levels send less, and at which settings they are also faster than one ring beyond noise."""
    expected = float(gain["expected_gain"].iloc[0])
    largest = gain[gain["kib"] == gain["kib"].max()]
    apart = (largest["bytes_gain"] / expected - 1).abs().max()
    counted = units.span(largest["bytes_gain"], lambda value: units.times(value))
    agree = "as theory says" if apart <= _SAME + _HEADERS else f"where theory says {units.times(expected)}"
    sentences = [f"**Over the link, one ring of all ranks sends {counted} the bytes of two levels**, {agree}."]
    faster = largest[largest["gain"] - largest["spread_gain"] > 1]
    slower = largest[largest["gain"] + largest["spread_gain"] < 1]
    size = units.size(1024 * float(largest["kib"].iloc[0]))
    if len(faster):
        times = listed(f"{units.times(row.gain)} at {rate(row.link_mbit)}" for row in faster.itertuples())
        sentences.append(f"At {size}, two levels are faster beyond noise: {times}.")
    if len(slower):
        sentences.append(f"They are slower beyond noise at {listed(rate(value) for value in slower['link_mbit'])}.")
    if unclear := len(largest) - len(faster) - len(slower):
        sentences.append(f"At {unclear} of {len(largest)} rates the two differ by no more than noise.")
    return say(*sentences, small=fact(gain, "small"))
