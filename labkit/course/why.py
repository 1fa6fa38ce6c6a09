"""A question after a prediction was revealed: why is it so? Each choice opens to its answer, also in a static page."""

from __future__ import annotations

from html import escape

from IPython.display import HTML

from labkit.course.lineup import lined_up

CHOICE, ANSWER = "margin:0.3em 0 0.3em 1em", "margin:0.2em 0 0.4em 1.2em"


def why(question: str, right: tuple[str, str], *others: tuple[str, str]) -> HTML:
    """Show a question with its choices, each with the answer that it opens to: (choice, answer).

    The order of the choices tells nothing about which one is right.
    """
    answers = dict([right, *others])
    choices = [
        f'<details style="{CHOICE}"><summary>{escape(choice)}</summary>'
        f'<p style="{ANSWER}">{"✔" if choice == right[0] else "✘"} {escape(answers[choice])}</p></details>'
        for choice in lined_up(answers)
    ]
    return HTML(f"<p><b>Why?</b> {escape(question)} Choose, then open your choice.</p>{''.join(choices)}")
