"""A number that the reader commits to before measuring; skipped or headless, nothing is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass
class Prediction:
    """What the reader expects: `value` in `unit`, None until one is given. Tables and charts take it as it is."""

    question: str
    unit: str
    value: float | None = None

    def _ipython_display_(self) -> None:
        """Show the question with a number field, which writes to `value`; where no widget can be shown, the text."""
        import ipywidgets
        from IPython.display import display

        field = ipywidgets.Text(placeholder="your number, or skip")
        if self.value is not None:
            field.value = f"{self.value:g}"
        note = ipywidgets.HTML()
        field.observe(lambda change: setattr(note, "value", self.take(change["new"])), names="value")
        question = ipywidgets.HTML(f"<b>Predict.</b> {self.question}")
        box = ipywidgets.VBox([question, ipywidgets.HBox([field, ipywidgets.Label(self.unit), note])])
        shown: Any = box._repr_mimebundle_()
        display({**shown, "text/plain": repr(self)}, raw=True)

    def take(self, text: str) -> str:
        """Take what the reader typed, a decimal comma or point in it, and give the answer to show beside the field."""
        self.value = None
        if not text.strip():
            return ""
        try:
            value = float(text.replace(",", "."))
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            return "that is no number"
        self.value = value
        return f"noted, {value:g} {self.unit}: it will stand on the charts below"

    def __repr__(self) -> str:
        return f"Predict. {self.question} [{self.unit}]: " + ("skipped" if self.value is None else f"{self.value:g}")


def predict(question: str, *, unit: str) -> Prediction:
    """Ask the reader for a number, in `unit`; give it to tables and charts whether or not it was answered."""
    return Prediction(question, unit)
