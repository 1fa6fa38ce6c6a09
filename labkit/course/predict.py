"""A number that the reader commits to before measuring; skipped or headless, nothing is missing."""

from __future__ import annotations

from dataclasses import dataclass


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

        field = ipywidgets.Text(value="" if self.value is None else f"{self.value:g}", placeholder="your number, or skip")
        note = ipywidgets.HTML()

        def take(change) -> None:
            try:
                self.value = float(change["new"].replace(",", ".")) if change["new"].strip() else None
                note.value = "" if self.value is None else "noted: it will stand on the charts below"
            except ValueError:
                self.value, note.value = None, "that is no number"

        field.observe(take, names="value")
        question = ipywidgets.HTML(f"<b>Predict.</b> {self.question}")
        box = ipywidgets.VBox([question, ipywidgets.HBox([field, ipywidgets.Label(self.unit), note])])
        display({**box._repr_mimebundle_(), "text/plain": repr(self)}, raw=True)

    def __repr__(self) -> str:
        return f"Predict. {self.question} [{self.unit}]: " + ("skipped" if self.value is None else f"{self.value:g}")


def predict(question: str, *, unit: str) -> Prediction:
    """Ask the reader for a number, in `unit`; give it to tables and charts whether or not it was answered."""
    return Prediction(question, unit)
