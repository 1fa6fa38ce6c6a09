"""Questions with choices: suspects by letter, the student's naming of each before the reveal, and why a thing is so."""

from __future__ import annotations

import html
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from html import escape
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from IPython.display import HTML, Markdown

from labkit.course import record
from labkit.course.verdict import Verdict
from labkit.story.words import capitalised

if TYPE_CHECKING:
    import pandas as pd

    from labkit.engine.run import Run

NOT_NAMED = "choose a bug"
_BOX = "border:1px solid var(--jp-border-color1,#888);padding:0.6em;overflow-x:auto;white-space:pre;margin:0 0 0.8em"


def neutral_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in an order that says nothing about them, the same every time."""
    return tuple(sorted(names, key=lambda name: zlib.crc32(name.encode())))


def with_bugs(text: str, edits: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, str]:
    """Return the code of each bug: `text`, the right program, with what the bug replaces, (old, new), once each.

    Raises ValueError where an old part is not in the text exactly once.
    """
    codes = {}
    for name, changes in edits.items():
        code = text.strip("\n")
        for old, new in changes:
            if code.count(old) != 1:
                raise ValueError(f"{name}: {old!r} is in the program {code.count(old)} times, not once")
            code = code.replace(old, new)
        codes[name] = code
    return codes


def one_below_another(codes: Sequence[str]) -> HTML:
    """Show the code of suspects A, B, … as wide as the page, so that no line is cut; nothing in it is marked."""
    boxes = [
        f'<div><b id="suspect-{letter}">Suspect {letter}</b>'
        f'<pre tabindex="0" role="region" aria-label="Code of suspect {letter}" style="{_BOX}">{html.escape(code)}'
        "</pre></div>"
        for letter, code in zip(ascii_uppercase, codes, strict=False)
    ]
    return HTML("".join(boxes))


def diagnosis_text(
    verdicts: Iterable[Verdict], symptoms: Mapping[str, str], named: Mapping[str, str] | None = None
) -> Markdown:
    """Say which bug each suspect has, in the words of `symptoms`, and what shows it, a letter a verdict.

    `named` are the student's bugs by letter: each is judged.
    """
    lines, right, named = [], 0, named or {}
    for letter, verdict in zip(ascii_uppercase, verdicts, strict=False):
        shown = f"{symptoms.get(verdict.exercise)}. {capitalised('; '.join(verdict.faults.values()))}"
        if not verdict.faults:
            shown = "nothing is wrong with it"
        guess = named.get(letter)
        right += guess == verdict.exercise
        sign = "" if guess is None else "✔ " if guess == verdict.exercise else f"✘ (you chose: {symptoms[guess]}) "
        lines.append(f"- {sign}**{letter}**: {shown}.")
    if named:
        lines.insert(0, f"You named {right} of {len(lines)} rightly.\n")
    return Markdown("\n".join(lines))


class Naming:
    """The student's naming of suspects: a list to choose from for each, and a button that reveals who is who.

    `verdicts` are made when they are revealed. What was named is kept in the record, and is there after a restart.
    """

    def __init__(self, lab: str, symptoms: Mapping[str, str], suspects: int, verdicts: Callable[[], Iterable[Verdict]]):
        self.lab, self.symptoms, self._verdicts = lab, dict(sorted(symptoms.items())), verdicts
        self.letters = ascii_uppercase[:suspects]
        kept = record.exercise_record(self._name)["named"]
        self.named = {letter: kept[letter] for letter in self.letters if kept.get(letter) in symptoms}

    @property
    def _name(self) -> str:
        return f"{self.lab}.bugs"

    def reveal(self, named: Mapping[str, str]) -> Markdown:
        """Keep what was named, and say who is who. Raises ValueError for a letter or a bug that is not there."""
        for letter, bug in named.items():
            if letter not in self.letters or bug not in self.symptoms:
                raise ValueError(f"{letter}={bug!r}: name {', '.join(self.letters)} by {', '.join(self.symptoms)}")
        if named:
            record.update_exercise_record(self._name, named=dict(named))
        return diagnosis_text(self._verdicts(), self.symptoms, named)

    def __repr__(self) -> str:
        example = ", ".join(f'"{letter}": "…"' for letter in self.letters)
        bugs = "; ".join(f"{name} ({symptom})" for name, symptom in self.symptoms.items())
        return f"Name the suspects: diagnose(…, {{{example}}}). The bugs: {bugs}."

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The list of bugs to choose from, by letter."""
        import ipywidgets

        options = [(NOT_NAMED, ""), *((symptom, name) for name, symptom in self.symptoms.items())]
        layout = ipywidgets.Layout(width="98%", max_width="60em")
        fields = {
            letter: ipywidgets.Dropdown(
                options=options, description=f"{letter}:", layout=layout, tooltip=f"Bug of suspect {letter}"
            )
            for letter in self.letters
        }
        for letter, field in fields.items():
            field.value = self.named.get(letter, "")
        return fields

    def _ipython_display_(self) -> None:
        """Show the lists and the button; where no widget can be shown, the text."""
        import ipywidgets
        from IPython.display import display

        from labkit.charts.knobs import with_keys

        button = ipywidgets.Button(description="Reveal who is who", layout=ipywidgets.Layout(width="14em"))
        revealed = ipywidgets.Output()

        def take(_change: Any = None) -> None:
            self.named = {letter: field.value for letter, field in self.fields.items() if field.value}
            button.disabled = len(self.named) < len(self.letters)

        def show(_button: Any) -> None:
            diagnosis = self.reveal(self.named)
            revealed.outputs = ()
            revealed.append_display_data(diagnosis)

        for field in self.fields.values():
            field.observe(take, names="value")
        button.on_click(show)
        take()
        shown: Any = with_keys(*self.fields.values(), button, revealed)._repr_mimebundle_()
        display({**shown, "text/plain": repr(self)}, raw=True)


def line_up(
    lab: str,
    symptoms: Mapping[str, str],
    table_of: Callable[[Any], pd.DataFrame],
    verdict_of: Callable[[dict], Verdict],
    codes: Mapping[str, str],
) -> tuple[Callable[[], tuple[str, ...]], Callable[..., Naming | Markdown], Callable[[], HTML]]:
    """Return a lab's `suspects()`, `diagnose(run, named)` and `show_suspects()`.

    `symptoms` has what each broken variant shows, `table_of(run)` a row a variant of a Trial run, and
    `verdict_of(row)` gives the verdict on a variant, from its row alone; `codes` has the code of each variant.
    """

    def suspects() -> tuple[str, ...]:
        """Return the names of the broken variants, in an order that gives nothing away."""
        return neutral_order(symptoms)

    def diagnose(run: Run, named: Mapping[str, str] | None = None) -> Naming | Markdown:
        """Ask which bug each suspect of a Trial run has, and then say it; of a dict by letter, say it immediately."""
        naming = Naming(lab, symptoms, len(symptoms), lambda: map(verdict_of, table_of(run).to_dict("records")))
        return naming if named is None else naming.reveal(named)

    def show_suspects() -> HTML:
        """Show the code of the suspects, shortened, in the order of their letters."""
        return one_below_another([codes[name] for name in suspects()])

    return suspects, diagnose, show_suspects


CHOICE, ANSWER = "margin:0.3em 0 0.3em 1em", "margin:0.2em 0 0.4em 1.2em"


def why(question: str, right: tuple[str, str], *others: tuple[str, str]) -> HTML:
    """Show a question with its choices, each with the answer that it opens to: (choice, answer).

    The order of the choices tells nothing about which one is right.
    """
    answers = dict([right, *others])
    choices = [
        f'<details style="{CHOICE}"><summary>{escape(choice)}</summary>'
        f'<p style="{ANSWER}">{"✔" if choice == right[0] else "✘"} {escape(answers[choice])}</p></details>'
        for choice in neutral_order(answers)
    ]
    return HTML(f"<p><b>Why?</b> {escape(question)} Choose, then open your choice.</p>{''.join(choices)}")
