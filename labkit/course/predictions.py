"""A number that the reader commits to before measuring, kept beside the answers; skipped, nothing is missing.

Run All and a restart of the kernel find it again, and `compare` says by how much, and in which direction, it was wrong.
"""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.course import record
from labkit.provenance import of_source
from labkit.story import units
from labkit.story.words import say

if TYPE_CHECKING:
    import pandas as pd
    from IPython.display import Markdown

TIME_UNITS = ("s", "ms", "µs", "ns")  # a guess that is too high is too slow
RIGHT_WITHIN = 1.05  # a guess and a measurement of this ratio, or less, agree
_TWO_MEANINGS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")  # "65,536": thousands, or a decimal comma
OTHER_UNIT = 100  # a guess that is wrong by more than this factor may be one in another unit


@dataclass
class Prediction:
    """What the reader expects: `value` in `unit`, None until one is given. Tables and charts take it as it is.

    A plain number has the unit "".
    """

    question: str
    unit: str
    value: float | None = None

    def _ipython_display_(self) -> None:
        """Show the question with a number field, which writes to `value`; where no widget can be shown, the text."""
        import ipywidgets
        from IPython.display import display

        field = ipywidgets.Text(placeholder="your number, or skip")
        if self.value is not None:
            field.value = _typed(self.value)
        note = ipywidgets.HTML()
        field.observe(lambda change: setattr(note, "value", self.take(change["new"])), names="value")
        question = ipywidgets.HTML(f"<b>Predict.</b> {self.question}")
        box = ipywidgets.VBox([question, ipywidgets.HBox([field, ipywidgets.Label(self.unit), note])])
        shown: Any = box._repr_mimebundle_()
        display({**shown, "text/plain": repr(self)}, raw=True)

    def take(self, text: str) -> str:
        """Take what the reader typed, with a decimal comma or point, and return the answer to show beside the field."""
        digits = "".join(text.split())  # "65 536", as the workbook's own pages write it
        if not digits:
            self.value = None
            self._keep()
            return ""
        kept = f"; {_typed(self.value)} stays noted" if self.value is not None else ""
        if _TWO_MEANINGS.fullmatch(digits):
            return f"{digits} can be read in two ways: write {digits.replace(',', '')} or a decimal point{kept}"
        try:
            value = float(digits.replace(",", "."))
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            return f"that is no number such as 1589.5{kept}"
        self.value = value
        noted = f"noted, {_typed(value)}{self.unit and f' {self.unit}'}"
        return f"{noted}: it comes back beside the result{self._keep()}"

    def _keep(self) -> str:
        """Keep the value; return a remark where that is not possible."""
        if self.value is None and (self.question, self.unit) not in kept_predictions():
            return ""
        try:
            keep_prediction(self.question, self.unit, guessed=self.value)
        except OSError as error:
            return f" (until this kernel ends: {record.answers_folder()} cannot be written, {error.strerror})"
        return ""

    def compare(self, measured: float | None, *, how: str = "measured") -> Markdown:
        """Say how far the prediction was from `measured`, in the same unit, and in which direction; keep both.

        `how` is the word for a value that was not measured, such as "computed". Without a prediction it says what was
        measured, and without a measurement (None or NaN) that there is none.
        """
        if measured is None or not math.isfinite(measured):
            return say(f"Nothing was {how} to compare your prediction with.")
        measured = float(measured)
        if self.value is None:
            return say(
                f"{how.capitalize()}: {_with_unit(measured, self.unit)}. There is no prediction to compare it with."
            )
        with contextlib.suppress(OSError):
            keep_prediction(self.question, self.unit, guessed=self.value, measured=measured)
        guessed = f"You guessed {_with_unit(self.value, self.unit)}, {how} {_with_unit(measured, self.unit)}"
        far = self.value * measured > 0 and max(self.value / measured, measured / self.value) > OTHER_UNIT
        hint = f"Was your number one in {self.unit}?" if far and self.unit in TIME_UNITS else None
        return say(f"{guessed}: {error_of(self.value, measured, self.unit)}.", hint)

    def __repr__(self) -> str:
        unit = f" [{self.unit}]" if self.unit else ""
        return f"Predict. {self.question}{unit}: " + ("skipped" if self.value is None else _typed(self.value))


def _typed(value: float) -> str:
    """Return a number as somebody may have typed it, all digits of it."""
    return f"{value:.12g}"


def _with_unit(value: float, unit: str) -> str:
    return f"{_short(value, 3)} {unit}".rstrip()


def _short(value: float, digits: int) -> str:
    """Return a number without the zeros that its last digits may be: somebody typed 3, and not 3.00."""
    return units.trimmed(units.number(value, digits))


def error_of(guessed: float, measured: float, unit: str) -> str:
    """Return in words how far a guess is from what was measured, such as "too slow by a factor of 2.3"."""
    if guessed == measured or (guessed * measured > 0 and max(guessed / measured, measured / guessed) <= RIGHT_WITHIN):
        return "right within 5 %"
    high, low = ("too slow", "too fast") if unit in TIME_UNITS else ("too high", "too low")
    direction = high if guessed > measured else low
    if guessed > 0 and measured > 0 and unit != "%":
        return f"{direction} by a factor of {_short(max(guessed / measured, measured / guessed), 2)}"
    return f"{direction} by {_with_unit(abs(guessed - measured), 'percentage points' if unit == '%' else unit)}"


def kept_predictions(entries: dict[str, Any] | None = None) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what is kept of each prediction by question and unit, oldest first: these, guessed, measured.

    What is not known is None; what was edited by hand may be of any type.
    """
    stored = (record.all_entries() if entries is None else entries)[record.PREDICTIONS]
    kept = [entry for entry in stored if isinstance(entry, dict)] if isinstance(stored, list) else []
    return {(str(entry["question"]), str(entry["unit"])): entry for entry in kept if {"question", "unit"} <= {*entry}}


def keep_prediction(question: str, unit: str, **changed: float | None) -> None:
    """Keep what was guessed or measured. Raises OSError where the folder cannot be written."""
    with record.changing() as entries:
        kept = kept_predictions(entries)
        entry = {"question": question, "unit": unit, "guessed": None, "measured": None}
        kept.setdefault((question, unit), entry).update(changed)
        entries[record.PREDICTIONS] = [*kept.values()]


def predict(question: str, *, unit: str) -> Prediction:
    """Ask the reader for a number, in `unit`; give it to tables and charts whether or not it was answered.

    What the reader answered earlier to the same question is there again.
    """
    guessed = kept_predictions().get((question, unit), {}).get("guessed")
    if isinstance(guessed, int | float) and math.isfinite(guessed):
        return Prediction(question, unit, float(guessed))
    return Prediction(question, unit)


def predictions() -> pd.DataFrame:
    """Return the reader's predictions: question, unit, guessed, measured, guessed_per_measured, error (in words)."""
    import pandas as pd

    columns = ["question", "unit", "guessed", "measured"]
    rows = [guess for guess in kept_predictions().values() if guess.get("guessed") is not None]
    table = pd.DataFrame(rows, columns=columns)
    for column in ("guessed", "measured"):
        table[column] = pd.to_numeric(table[column], errors="coerce").astype(float)
    both = (table["guessed"] > 0) & (table["measured"] > 0)
    table["guessed_per_measured"] = (table["guessed"] / table["measured"]).where(both)
    triples = zip(table["guessed"], table["measured"], table["unit"], strict=True)
    table["error"] = ["not measured yet" if math.isnan(triple[1]) else error_of(*triple) for triple in triples]
    return of_source(table, f"your predictions, kept in {record.FILE} beside your answers")
