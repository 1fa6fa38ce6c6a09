"""Readings → the card of a node: one row per key figure with its verdict, the node, the conditions of its runs."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import median
from typing import Any

from labkit.card.criteria import Criteria
from labkit.card.readings import Reading, key_figures, known, references
from labkit.card.verdicts import (
    ALIKE,
    BELOW,
    IMPOSSIBLE,
    KINDS,
    NOT_COMPARABLE,
    ODD,
    SOUND,
    WRONG,
    FigureVerdict,
    judge,
)
from labkit.node import Node
from labkit.node.comparability import CONDITIONS, differences_between
from labkit.node.faults import FAULT, Finding
from labkit.stored import restored
from labkit.tables.measures import Measure, Part

VERSION = 1
FILE = "card.json"
MOST_NAMED = 3  # figures that the headline names


class CardError(ValueError):
    """A card that cannot be read; one sentence that says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Row(Reading):
    """One key figure on the card: what was measured here (NaN where nothing was), its verdict, and the reference.

    kind: one of labkit.card.verdicts.KINDS; verdict: its words. percent: by how much the node is worse than the
    reference, or than its peers; NaN where neither is known. references: all recorded runs of the same GPU model and
    setting, as {"value", "low", "high", "run"}.
    """

    better: str
    by_host: bool
    kind: str
    verdict: str
    percent: float = math.nan
    references: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def which(self) -> Part | None:
        """The GPU, or pair of GPUs, whose figure the row is; None where there are no others."""
        if len(self.parts) < 2:
            return None
        return min(self.parts, key=lambda part: abs(part.value - self.value))


@dataclass(frozen=True)
class Card:
    """A node's card: when it was made, which node, the conditions of its runs together, its rows, and problems.

    findings: what driver and kernel knew of the node; () in older cards.
    """

    date: str
    node: dict[str, Any]
    conditions: dict[str, Any] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    problems: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def faults(self) -> list[Finding]:
        """Return the findings that are faults for certain."""
        return [each for each in self.findings if each.kind == FAULT]

    def counts(self) -> dict[str, int]:
        """Return how many rows have each kind of verdict, the kinds in their order."""
        return {kind: sum(row.kind == kind for row in self.rows) for kind in KINDS}

    def to_json(self) -> str:
        rows = {"rows": [row.record() for row in self.rows]}
        return json.dumps({"version": VERSION} | asdict(self) | rows, indent=1, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, name: str = FILE) -> Card:
        """Read a card. Raises CardError, one sentence, for damaged text and for a card of another version."""
        try:
            stored = json.loads(text)
            version = stored.pop("version", None)
            if version != VERSION:
                again = "make a new one with `make card`"
                raise CardError(f"{name} is a card of version {version!r}, and this workbook reads {VERSION}: {again}")
            if unknown := {name for row in stored["rows"] for name in row} - {column.name for column in fields(Row)}:
                raise ValueError(f"a row with unknown fields {', '.join(sorted(unknown))}")
            return restored(cls, stored | {"rows": [known(row) for row in stored["rows"]]})
        except CardError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CardError(f"{name} is no card ({type(error).__name__}: {error}): make one with `make card`") from None

    @classmethod
    def load(cls, file: Path) -> Card:
        """Read a card from its file. Raises CardError where there is none."""
        try:
            return cls.from_json(file.read_text(encoding="utf-8"), str(file))
        except (OSError, UnicodeDecodeError) as error:
            raise CardError(f"{file} cannot be read ({error}): make a card with `make card`") from None


def host_name() -> str:
    """Return what pages call this node: the label in LABKIT_NODE, else the host's name. No recorded run holds it."""
    return os.environ.get("LABKIT_NODE") or platform.node()


def node_facts(node: Node) -> dict[str, Any]:
    """Return what a card says of its node. `id` tells nodes apart that share a folder: from the GPUs, else the host."""
    names = sorted(filter(None, (gpu.uuid for gpu in node.gpus))) or [platform.node()]
    return {
        "label": node.label,
        "host": host_name(),
        "id": hashlib.sha256(" ".join(names).encode()).hexdigest()[:12],
        "model": (node.gpus[0].name or "") if node.gpus else "",
        "gpus": len(node.gpus),
        "cores": node.cores,
        "driver": node.driver,
        "versions": dict(node.versions),
    }


def make_card(
    readings: Sequence[Reading],
    facts: dict[str, Any],
    date: str,
    *,
    recorded: Callable[[str], tuple[list[Reading], list[str]]] = references,
    why_not: dict[str, str] | None = None,
    otherwise: str = "",
    problems: Iterable[str] = (),
    criteria: Criteria | None = None,
    findings: Iterable[Finding] = (),
) -> Card:
    """Return the card of a node, by its `node_facts`, from what its runs showed.

    Of several readings of a figure, one with a reference counts before others, then one of full size, then the latest.
    `why_not`: by lab, why its figures were not measured; `otherwise`: why all others were not. `criteria`: of the site.
    Figures that need a GPU are left out on a node without one, on a node with GPUs processes that stand in for them.
    """
    if facts["gpus"]:
        readings = [reading for reading in readings if reading.model]
    criteria = criteria or Criteria()
    recorded_readings, damaged = recorded(facts["model"]) if facts["model"] else ([], [])
    rows = []
    for lab, figures in key_figures().items():
        for figure in figures:
            if figure.name in criteria.left_out or (figure.least_gpus and not facts["gpus"]):
                continue
            here, beside = (
                [reading for reading in several if reading.key == (lab, figure.name)]
                for several in (readings, recorded_readings)
            )
            why = (why_not or {}).get(lab, otherwise)
            counting = _counting_reading(here, beside)
            verdict = criteria.applied(figure, counting, judge(figure, counting, beside, facts["gpus"], why))
            rows.append(_row(lab, figure, counting, beside, verdict))
    return Card(date, facts, conditions_of_all(readings), tuple(rows), (*problems, *damaged), tuple(findings))


def _counting_reading(here: Sequence[Reading], recorded: Sequence[Reading]) -> Reading | None:
    """Return the reading of a figure that counts, of those made here, beside those that were recorded."""
    settings = {reading.setting for reading in recorded}
    ordered = sorted(here, key=lambda reading: (reading.setting in settings, not reading.small, reading.date))
    return ordered[-1] if ordered else None


def _row(lab: str, figure: Measure, here: Reading | None, recorded: Sequence[Reading], verdict: FigureVerdict) -> Row:
    about: dict[str, Any] = {"better": figure.better, "by_host": figure.by_host}
    about |= {"kind": verdict.kind, "verdict": verdict.text, "percent": round(verdict.percent, 3)}
    if here is None:
        return Row(lab=lab, figure=figure.name, unit=figure.unit, **about)
    if verdict.kind in (BELOW, ODD, NOT_COMPARABLE) and verdict.reference is not None:
        about["notes"] = tuple(_condition_notes(figure, here, verdict.reference))
    same = [reading for reading in recorded if reading.setting == here.setting]
    ticks = ({name: getattr(reading, name) for name in ("value", "low", "high", "run")} for reading in same)
    return Row(**vars(here), **about, references=tuple(ticks))


def _condition_notes(figure: Measure, here: Reading, reference: Reading) -> list[str]:
    """Return which conditions differ from the reference's, in words, as far as they can change the figure."""
    differences = differences_between(here.conditions, reference.conditions)
    return [each.sentence("this run", "the reference") for each in differences if figure.by_host or not each.host_only]


def conditions_of_all(measured: Iterable[Reading | Row]) -> dict[str, Any]:
    """Return the conditions of all runs: the median of a number, or each text once; the most of what disturbs."""
    of_runs = {figure.run: figure.conditions for figure in measured}.values()
    result = {}
    for name in dict.fromkeys(name for conditions in of_runs for name in conditions):
        values = [conditions[name] for conditions in of_runs if name in conditions]
        if all(isinstance(value, int | float) for value in values):
            result[name] = max(values) if name in CONDITIONS and CONDITIONS[name].worst else median(values)
        else:
            result[name] = ", ".join(dict.fromkeys(map(str, filter(None, values))))
    return result


def failing_rows(card: Card, level: str) -> list[Row]:
    """Return the rows that fail a run at this level: "impossible", "below", or "below=5" for more than 5 percent."""
    kind, _, percent = level.partition("=")
    least = float(percent) if percent else -math.inf
    below = [row for row in card.rows if row.kind in (BELOW, ODD) and row.percent > least]
    impossible = [row for row in card.rows if row.kind == IMPOSSIBLE]
    return [*impossible, *(below if kind == BELOW else [])]


def reference_value(row: Row) -> float | None:
    """Return the reference's median that is nearest to the figure; None where there is none."""
    medians = [float(reference["value"]) for reference in row.references]
    return min(medians, key=lambda median: abs(median - row.value)) if row.measured and medians else None


def wrong_rows(card: Card) -> list[Row]:
    """Return what to look at, the worst first: impossible figures, then those below the reference or their peers."""
    wrong = [row for row in card.rows if row.kind in WRONG]
    return sorted(wrong, key=lambda row: (row.kind != IMPOSSIBLE, -row.percent))


def disturbed_rows(card: Card) -> list[Row]:
    """Return the figures that are worse than their reference, and were disturbed: without a reference nothing is."""
    return [row for row in card.rows if row.kind == NOT_COMPARABLE and not math.isnan(row.percent)]


def headline(card: Card) -> str:
    """Return the card in one line: whether the node is sound, else what to look at: faults, then the worst figures."""
    counts, wrong, model = card.counts(), wrong_rows(card), card.node["model"]
    if not card.node["gpus"] and not card.faults:
        return "No GPU here: a card compares GPUs with recorded ones of their model, and has nothing to say of CPUs"
    judged = counts[SOUND] + len(wrong)
    reached = f"{counts[SOUND]} of {judged} figures reach the reference" if counts[SOUND] or wrong else ""
    alike = f"{counts[ALIKE]} figures agree among the {card.node['gpus']} GPUs" if counts[ALIKE] else ""
    found = "; ".join(filter(None, (reached, alike)))
    again = _measure_again(disturbed_rows(card))
    if wrong or card.faults:
        named = to_look_at(card)
        more = f"; and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        return ". ".join(filter(None, (f"Look at: {'; '.join(named[:MOST_NAMED])}{more}", again, found)))
    if again:
        return f"{again}. {found}".removesuffix(". ")
    if counts[SOUND]:
        return f"Sound: {found}"
    if alike:
        return f"Alike: {alike}, and none is impossible; nothing is recorded on {model}"
    return f"Not judged: {counts[NOT_COMPARABLE]} figures measured on {model}, and none has a comparable reference"


def to_look_at(card: Card) -> list[str]:
    """Return the faults, then the figures to look at, the worst first, in words."""
    return [*map(str, card.faults), *(f"{_named(row)}, {row.verdict}" for row in wrong_rows(card))]


def _measure_again(disturbed: list[Row]) -> str:
    """Return that the disturbed figures are to be measured again, and what disturbed them; "" without any."""
    why = ", ".join(dict.fromkeys(row.verdict.removeprefix(f"{NOT_COMPARABLE}: ") for row in disturbed))
    what = "1 figure is" if len(disturbed) == 1 else f"{len(disturbed)} figures are"
    return f"Measure again: {what} worse than the reference and disturbed ({why})" if disturbed else ""


def _named(row: Row) -> str:
    return row.figure if row.which is None or row.kind == ODD else f"{row.figure} ({row.which.name})"
