"""`make compare`: two runs or reports side by side: what changed beyond noise, and which conditions changed with it."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from labkit.card.cards import FILE, Card, CardError, Row, conditions_of_all
from labkit.card.history import find_card, history
from labkit.card.verdicts import fences, least_reach, percent_text
from labkit.engine.run_folder import runs_folder
from labkit.node.comparability import CONDITIONS
from labkit.story.units import number
from labkit.tables.measures import LOWER


@dataclass(frozen=True)
class Change:
    """One figure in both: `percent` by which the second is better (negative: worse), and the noise, in percent, too."""

    first: Row
    second: Row
    percent: float
    noise: float

    @property
    def kind(self) -> str:
        """Return "better" or "worse" where the change is beyond noise, else "within noise"."""
        if abs(self.percent) <= self.noise:
            return "within noise"
        return "better" if self.percent > 0 else "worse"


def changes(first: Card, second: Card) -> list[Change]:
    """Return the figures that both cards show with the same setting and of two runs, in the first one's order.

    The noise reaches from the first median to the fence around its repeats (see verdicts.py), and half of the second's
    own spread farther.
    """
    return [_change(a, b) for a, b in _pairs(first, second) if a.run != b.run]


def not_measured_again(first: Card, second: Card) -> list[Row]:
    """Return the figures that both cards show of the same run: a report keeps what is not run again."""
    return [a for a, b in _pairs(first, second) if a.run == b.run]


def _pairs(first: Card, second: Card) -> list[tuple[Row, Row]]:
    others = {row.key: row for row in second.rows if row.measured}
    pairs = [(row, others[row.key]) for row in first.rows if row.measured and row.key in others]
    return [(a, b) for a, b in pairs if a.setting == b.setting and a.value and b.measured]


def _change(a: Row, b: Row) -> Change:
    (low, middle, high), (low_now, now, high_now) = ((row.low, row.value, row.high) for row in (a, b))
    lowest, highest = fences(low, middle, high, least_reach(a.by_host, a.better))
    edge = highest - middle if now >= middle else middle - lowest
    percent = 100 * (now / middle - 1) * (-1 if a.better == LOWER else 1)
    return Change(a, b, percent, 100 * (edge + (high_now - low_now) / 2) / middle)


def changed_conditions(first: Card, second: Card) -> list[str]:
    """Return what changed between the cards besides the figures, a sentence each."""
    facts = [("the node", "label"), ("the usable cores", "cores")]
    facts += [("the host", "host")] if first.node.get("host") and second.node.get("host") else []  # not in old cards
    sentences = [
        f"{what}: {first.node.get(key)} → {second.node.get(key)}"
        for what, key in facts
        if first.node.get(key) != second.node.get(key)
    ]
    versions = [{"driver": card.node.get("driver"), **card.node.get("versions", {})} for card in (first, second)]
    for name in dict.fromkeys([*versions[0], *versions[1]]):
        was, now = versions[0].get(name), versions[1].get(name)
        if was != now:
            sentences.append(f"{name}: {was or 'none'} → {now or 'none'}")
    # of the runs that are compared: another lab's run heats the GPUs, and says nothing of these figures
    compared = changes(first, second)
    a, b = (
        conditions_of_all(change.first for change in compared),
        conditions_of_all(change.second for change in compared),
    )
    for name, condition in CONDITIONS.items():
        if name in a and name in b and condition.differs(a[name], b[name]):
            was, now = (condition.form.format(values[name]) for values in (a, b))
            sentences.append(f"{condition.words}: {was} → {now}")
    return sentences


def comparison_text(first: Card, second: Card, names: tuple[str, str]) -> str:
    """Return the comparison for a terminal: what changed beyond noise, then what did not, then the conditions."""
    compared = changes(first, second)
    lines = [f"{names[0]} ({first.date.replace('T', ' ')}) → {names[1]} ({second.date.replace('T', ' ')})", ""]
    beyond = sorted((change for change in compared if change.kind != "within noise"), key=lambda change: change.percent)
    for change in beyond:
        numbers = f"{number(change.first.value)} → {number(change.second.value)} {change.first.unit}"
        size = f"{percent_text(abs(change.percent))} % {change.kind}, noise ± {percent_text(change.noise)} %"
        lines.append(f"{change.first.lab:<18}  {change.first.figure:<48}  {numbers:<28}  {size}")
    lines.append(_summary(compared, beyond, same_run := not_measured_again(first, second)))
    lines += [f"  {lab}: {', '.join(row.figure for row in rows)}" for lab, rows in _by_lab(same_run)]
    conditions = changed_conditions(first, second)
    return "\n".join(
        [*lines, *(["", "changed conditions:", *(f"  {condition}" for condition in conditions)] if conditions else [])]
    )


def _summary(compared: list[Change], beyond: list[Change], same_run: list[Row]) -> str:
    if not compared and not same_run:
        return "no key figure was measured in both with the same setting"
    parts = [f"{len(beyond)} changed beyond noise, {len(compared) - len(beyond)} within noise"] if compared else []
    parts += [f"{len(same_run)} not measured again (both show the same run)"] if same_run else []
    return f"{len(compared) + len(same_run)} key figures in both: {', '.join(parts)}"


def _by_lab(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    return [(lab, list(group)) for lab, group in groupby(rows, key=lambda row: row.lab)]


def chosen_cards(names: list[str], report: Path) -> tuple[tuple[str, Card], tuple[str, Card]]:
    """Return the two cards that are named; of one name, that and the present report; of none, this node's last two.

    A card without any measured figure, of a run that was interrupted at once, is passed over.
    """
    if len(names) == 2:
        first, second = (find_card(name, report) for name in names)
        return first, second
    if names:
        return find_card(names[0], report), (report.name, Card.load(report / FILE))
    measured = [(path, card) for path, card in history(report).cards if any(row.measured for row in card.rows)]
    if not measured:
        raise CardError(f"no card in {report.parent} yet: `make card` makes one")
    node = measured[-1][1].node.get("id")
    last = [(path.name, card) for path, card in measured if card.node.get("id") == node][-2:]
    if len(last) < 2:
        raise CardError("this node has one card so far: `make card` makes another, or name two with A= and B=")
    return last[0], last[1]


def main(arguments: list[str] | None = None) -> int:
    """Print the comparison; give 2 where there is nothing to compare."""
    parser = argparse.ArgumentParser(prog="make compare", description=__doc__)
    parser.add_argument("names", nargs="*", help="two runs, reports or cards: paths, or names in runs/")
    parser.add_argument("--report", type=Path, default=runs_folder() / "report", help="the present report's folder")
    chosen = parser.parse_args(arguments)
    if len(chosen.names) > 2:
        parser.error("give two at most")
    report = chosen.report.resolve()
    try:
        (first, a), (second, b) = chosen_cards(chosen.names, report)
    except CardError as error:
        print(error, file=sys.stderr)
        return 2
    print(comparison_text(a, b, (first, second)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
