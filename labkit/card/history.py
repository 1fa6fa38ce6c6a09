"""The cards of a runs folder by date: those of the kept reports and of the present one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from labkit.card.cards import FILE, Card, CardError, make_card, node_facts
from labkit.card.readings import readings
from labkit.engine.run import Run
from labkit.engine.run_folder import RunFolder
from labkit.report.kept_reports import all_reports

_SLACK = timedelta(minutes=1)


@dataclass(frozen=True)
class History:
    """Cards in the order of their dates, each with the folder of its report, and sentences about what is left out."""

    cards: tuple[tuple[Path, Card], ...]
    problems: tuple[str, ...] = ()

    def of_node(self, node_id: str) -> History:
        """Return the cards of one node: several may share a runs folder."""
        return History(
            tuple((path, card) for path, card in self.cards if card.node.get("id") == node_id), self.problems
        )


def history(report: Path) -> History:
    """Return the cards of the kept reports and of the present one; a damaged card is a sentence."""
    cards, problems = [], []
    for folder in all_reports(report):
        if not (folder / FILE).exists():
            continue
        try:
            cards.append((folder, Card.load(folder / FILE)))
        except CardError as error:
            problems.append(str(error))
    cards.sort(key=lambda pair: pair[1].date)
    problems += [_future_date_warning(path, card) for path, card in cards if _is_in_the_future(card)]
    return History(tuple(cards), tuple(problems))


def _is_in_the_future(card: Card) -> bool:
    try:
        return datetime.fromisoformat(card.date) > datetime.now() + _SLACK
    except (ValueError, TypeError):
        return False


def _future_date_warning(path: Path, card: Card) -> str:
    return f"{path.name} is dated {card.date}, in the future: the node's clock was set back since, and dates mislead"


def find_card(name: str, report: Path) -> tuple[str, Card]:
    """Return a label and the card of a run's folder, a report's folder or a card.json, by path or by name.

    Names are looked for among the runs and the kept reports. Raises CardError, one sentence, where there is none.
    """
    candidates = [Path(name), report.parent / name, *(folder for folder in all_reports(report) if folder.name == name)]
    for path in candidates:
        if path.is_file():
            return path.parent.name or path.name, Card.load(path)
        if RunFolder(path).plan_file.exists():
            return path.name, card_of_run(Run(path))
        if (path / FILE).exists():
            return path.name, Card.load(path / FILE)
    raise CardError(f"{name!r} is no run, no report and no card; there are: {', '.join(_names(report)) or 'none yet'}")


def _names(report: Path) -> Sequence[str]:
    return [path.name for path in all_reports(report) if (path / FILE).exists()]


def card_of_run(run: Run) -> Card:
    """Return the card of one run. Raises CardError where the run shows no key figure, or cannot be read."""
    try:
        shown = readings(run)
        facts = node_facts(run.node)
    except Exception as error:
        raise CardError(f"{run.folder} cannot be read: {(str(error).splitlines() or [''])[0]}") from None
    if not shown:
        raise CardError(f"{run.folder.name} shows no key figure: compare runs of the plans that `make card` launches")
    return make_card(shown, facts, shown[0].date)
