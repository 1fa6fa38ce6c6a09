"""What a site asks of its nodes, as card.toml says: which figures count, what is a failure, and goals of its own."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

from labkit.card.readings import Reading, key_figures
from labkit.card.verdicts import BELOW, IMPOSSIBLE, NOT_COMPARABLE, SOUND, FigureVerdict, percent_text
from labkit.repository import REPOSITORY
from labkit.stored import restored, unknown_key
from labkit.story.units import number
from labkit.tables.measures import LOWER, Measure

FILE = "card.toml"


class CriteriaError(ValueError):
    """A card.toml that cannot be used; one sentence that names the file and the key."""


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """The keys of card.toml; figures go by their names on the card. Without the file, each figure's fence decides."""

    below_percent: float = 0.0  # by so much a figure may be worse than the reference
    left_out: tuple[str, ...] = ()  # figures that are not judged
    goals: dict[str, float] = field(default_factory=dict)  # in the figure's unit; a goal stands before the reference

    @classmethod
    def read(cls, file: Path | None = None) -> Criteria:
        """Return the criteria of $LABKIT_CARD_FILE, else of card.toml at the top of the checkout, else of none.

        Raises CriteriaError for a file that is missing where it was named, damaged, or has a wrong key or figure.
        """
        named = os.environ.get("LABKIT_CARD_FILE")
        file = file or Path(named or REPOSITORY / FILE)
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
            if wrong := unknown_key(values, cls.__dataclass_fields__):
                raise ValueError(wrong)
            criteria = restored(cls, values)
            names = [figure.name for figures in key_figures().values() for figure in figures]
            for name in [*criteria.left_out, *criteria.goals]:
                if wrong := unknown_key([name], names):
                    raise ValueError(wrong)
        except FileNotFoundError as error:
            if named or file.name != FILE:
                raise CriteriaError(f"{file} is named as the card's criteria, and does not exist") from error
            return cls()
        except (OSError, ValueError) as error:
            raise CriteriaError(f"{file}: {error}") from None
        return criteria

    def applied(self, figure: Measure, here: Reading | None, verdict: FigureVerdict) -> FigureVerdict:
        """Return a figure's verdict by these criteria; what is impossible or not measured stays."""
        if here is None or verdict.kind == IMPOSSIBLE:
            return verdict
        if (goal := self.goals.get(figure.name)) is not None:
            missed = 100 * (here.value / goal - 1) * (1 if figure.better == LOWER else -1)
            words = f"the goal of {number(goal)} {figure.unit}"
            if missed > 0:
                return replace(verdict, kind=BELOW, text=f"below {words} by {percent_text(missed)} %", percent=missed)
            if verdict.kind in (BELOW, NOT_COMPARABLE):
                return replace(verdict, kind=SOUND, text=f"{SOUND}: it reaches {words}")
        if verdict.kind == BELOW and verdict.percent <= self.below_percent:
            allowed = f"{percent_text(verdict.percent)} % worse, of {self.below_percent:g} % that {FILE} allows"
            return replace(verdict, kind=SOUND, text=f"{SOUND}: {allowed}")
        return verdict
