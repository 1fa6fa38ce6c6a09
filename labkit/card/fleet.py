"""The cards of several nodes together: each figure beside those of the nodes of its kind; one line, CSV, JUnit XML."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from labkit.card.cards import FILE, Card, CardError, Row, disturbed_rows, to_look_at
from labkit.card.formats import COLUMNS, csv_rows, csv_text, junit_suite, xml_text
from labkit.card.options import status_of
from labkit.card.verdicts import (
    ALIKE,
    BELOW,
    IMPOSSIBLE,
    NOT_COMPARABLE,
    NOT_MEASURED,
    ODD,
    ODD_PERCENT,
    SOUND,
    WRONG,
    is_shared,
    least_reach,
    odd_ones,
    percent_text,
)
from labkit.repository import source_digest
from labkit.tables.measures import HIGHER, Part

NODES = "nodes"  # the folder of the report that holds a folder per node
FLEET = "fleet"  # stands for a lab where a row is about the nodes
MOST_NODES_NAMED = 8


@dataclass(frozen=True)
class FleetNode:
    """A node by its name in the cluster: its card, or why there is none."""

    name: str
    card: Card | None = None
    why_not: str = ""

    @property
    def to_look_at(self) -> list[str]:
        """What to look at, in words: why there is no card, else faults and figures, the worst first."""
        return to_look_at(self.card) if self.card else [f"{NOT_MEASURED}: {self.why_not}"]

    @property
    def has_gpus(self) -> bool:
        return bool(self.card and self.card.node["gpus"])


def read_node(name: str, report: Path, ending: str = "") -> FleetNode:
    """Return a node from the card in its folder; `ending`: how its process ended, for a node that left none."""
    file = report / NODES / name / FILE
    if not file.exists():
        return FleetNode(name, why_not=ending or "it left no card")
    try:
        card = Card.load(file)
    except CardError as error:
        return FleetNode(name, why_not=str(error))
    if card.node.get("code") != source_digest():
        return FleetNode(name, why_not="it ran another version of the workbook: let all nodes share one checkout")
    if card.node["gpus"] and not any(row.measured for row in card.rows):
        return FleetNode(name, why_not=next(iter(card.problems), "no launch showed a figure"))
    return FleetNode(name, card)


def beside_each_other(nodes: Sequence[FleetNode]) -> list[FleetNode]:
    """Return the nodes with each row judged beside those of the nodes with the same GPUs and the same setting.

    A row that is worse than the others is the odd one out, so is one that this node alone did not measure, and a number
    of GPUs that other nodes exceed; one without a reference is alike.
    """
    cards = {node.name: node.card for node in nodes if node.card is not None}
    parts: dict[tuple, list[Part]] = defaultdict(list)
    for name, card in cards.items():
        for row in filter(_can_be_a_peer, card.rows):
            parts[_group(card, row)].append(Part(name, row.value, row.low, row.high))
    measured = {(row.key, *_gpus(card)) for card in cards.values() for row in card.rows if row.measured}

    def judged(name: str, card: Card) -> Card:
        rows = [_beside(row, name, parts.get(_group(card, row), [])) for row in card.rows]
        if card.node["gpus"]:
            lacks = [not row.measured and (row.key, *_gpus(card)) in measured for row in rows]
            rows = [
                replace(row, kind=ODD, percent=100.0) if lack else row for row, lack in zip(rows, lacks, strict=True)
            ]
        return replace(card, rows=(*rows, *_missing_gpus(card, cards.values())))

    return [replace(node, card=judged(node.name, node.card)) if node.card else node for node in nodes]


def _group(card: Card, row: Row) -> tuple:
    return row.key, row.setting, row.unit, row.small, row.model, card.node["gpus"]


def _gpus(card: Card) -> tuple[str, int]:
    return card.node["model"], card.node["gpus"]


def _can_be_a_peer(row: Row) -> bool:
    disturbed = row.kind == NOT_COMPARABLE and not math.isnan(row.percent)  # worse than the reference, for a reason
    return row.measured and bool(row.model) and not (disturbed or row.kind == IMPOSSIBLE or is_shared(row))


def _beside(row: Row, name: str, parts: Sequence[Part]) -> Row:
    if len(parts) < 2 or not _can_be_a_peer(row):
        return row
    least = max(ODD_PERCENT, 100 * least_reach(row.by_host, row.better))
    odd = odd_ones(parts, row.better, least).get(name)
    if odd is None:
        alike = f"{ALIKE}: {len(parts)} nodes"
        return replace(row, kind=ALIKE, verdict=alike) if row.kind == NOT_COMPARABLE else row
    text = f"{percent_text(odd)} % worse than the other nodes"
    if row.kind in WRONG:
        return replace(row, verdict=f"{row.verdict}, and {text}")
    return replace(row, kind=ODD, verdict=text, percent=odd)


def _missing_gpus(card: Card, cards: Iterable[Card]) -> list[Row]:
    """Return a row for the number of GPUs where other nodes have more of them; a lost GPU does not name its model."""
    here, model = card.node["gpus"], card.node["model"]
    most = max((each.node["gpus"] for each in cards if model in ("", each.node["model"])), default=here)
    if here == most:
        return []
    about: dict[str, Any] = {"better": HIGHER, "by_host": False, "kind": ODD, "percent": 100 * (1 - here / most)}
    verdict = f"{here} visible, {most} on other nodes"
    return [Row(lab=FLEET, figure="GPUs", unit="GPUs", value=here, low=here, high=here, verdict=verdict, **about)]


def fleet_headline(nodes: Sequence[FleetNode]) -> str:
    """Return the fleet in one line: how many nodes are sound, then which to look at, and at what."""
    wrong = [node for node in nodes if node.to_look_at]
    fine = [(node.name, node.card) for node in nodes if node.card and not node.to_look_at]
    kinds = {name: {row.kind for row in card.rows} for name, card in fine}
    again = [name for name, card in fine if disturbed_rows(card)]
    good = [name for name, _ in fine if name not in again and kinds[name] & {SOUND, ALIKE}]
    others = [name for name, _ in fine if name not in again and name not in good]
    word = "Sound" if not good or any(SOUND in kinds[name] for name in good) else "Alike"
    lines = [f"{word}: {len(good)} of {len(nodes)} nodes"]
    if not any(node.has_gpus for node in nodes):
        without = ", ".join(node.name for node in nodes if node.card)
        lines = [f"No GPU on {without}: a card compares GPUs, and has nothing to say of CPUs"] if without else lines
        others = []
    named = [f"{node.name}: {_first_of(node.to_look_at)}" for node in wrong]
    more = [f"and {len(named) - MOST_NODES_NAMED} more"] if len(named) > MOST_NODES_NAMED else []
    lines += [f"Look at: {'; '.join([*named[:MOST_NODES_NAMED], *more])}"] if named else []
    lines += [f"Measure again, disturbed: {', '.join(again)}"] if again else []
    lines += [f"Not judged, without a reference or another node with these GPUs: {', '.join(others)}"] if others else []
    return ". ".join(lines)


def _first_of(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{texts[0]}, and {len(texts) - 1} more"


def fleet_csv(nodes: Iterable[FleetNode]) -> str:
    """Return the lines of all cards, each with its node; a node without a card has one line that says why."""
    rows = []
    for node in nodes:
        lines = csv_rows(node.card) if node.card else [{"kind": NOT_MEASURED, "verdict": node.to_look_at[0]}]
        rows += [{"node": node.name} | line for line in lines]
    return csv_text(rows, ("node", *COLUMNS))


def fleet_junit(nodes: Iterable[FleetNode]) -> str:
    """Return a suite per node, by its name; a node without a card is an error."""
    root = ElementTree.Element("testsuites")
    for node in nodes:
        if node.card:
            suite = junit_suite(node.card)
        else:
            suite = ElementTree.Element("testsuite", {"tests": "1", "failures": "0", "skipped": "0", "errors": "1"})
            case = ElementTree.SubElement(suite, "testcase", {"classname": FLEET, "name": "card", "time": "0.000"})
            ElementTree.SubElement(case, "error", {"message": node.why_not, "type": NOT_MEASURED})
        suite.attrib |= {"name": node.name, "hostname": node.name}
        root.append(suite)
    return xml_text(root)


def fleet_status(nodes: Iterable[FleetNode], wanted: str | None) -> int:
    """Return 3 where a node fails at this level, and print why; from "below" on, one without a card does."""
    status = 0
    for node in nodes:
        if node.card:
            status = max(status, status_of(node.card, wanted, node.name))
        elif wanted and wanted.startswith(BELOW):
            print(f"{node.name}: fails on {wanted}: {node.to_look_at[0]}", file=sys.stderr)
            status = 3
    return status
