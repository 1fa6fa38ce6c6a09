"""Verdict: what a check found, in words a student can act on."""

from __future__ import annotations

from dataclasses import dataclass

RIGHT, WRONG, RAISED, HUNG, UNANSWERED = "right", "wrong", "raised", "hung", "not answered yet"
NOT_JUDGED = "not judged"
SIGNS = {RIGHT: "✔", WRONG: "✘", RAISED: "✘", HUNG: "✘", UNANSWERED: "○", NOT_JUDGED: "✘"}


@dataclass(frozen=True)
class Verdict:
    """The outcome (one of the words above), the exercise, what is wrong (each with a `kind`), and what is right.

    `faults` maps a fault's kind, such as "early_forward", to the sentence that explains it. `judged` names the version
    of the answer that the verdict is about: its file, and when it was saved. `printed` is what the answer printed, and
    `notes` say what the student may do next.
    """

    exercise: str
    outcome: str
    faults: dict[str, str]
    merits: tuple[str, ...] = ()
    detail: str = ""
    judged: str = ""
    printed: str = ""
    notes: tuple[str, ...] = ()

    def _repr_markdown_(self) -> str:
        lines = [f"{SIGNS[self.outcome]} **`{self.exercise}`: {self.outcome}**", ""]
        lines += [f"- ✘ {sentence}" for sentence in self.faults.values()]
        lines += [f"- {'' if self.outcome == UNANSWERED else '✔ '}{sentence}" for sentence in self.merits]
        for paragraph in filter(None, (self.judged, *self.notes)):
            lines += ["", paragraph]
        for heading, text in (("It printed:", self.printed), ("", self.detail)):
            if text.strip():
                fence = "`````" if "```" in text else "```"
                lines += ["", *filter(None, [heading]), f"{fence}text", text.strip(), fence]
        return "\n".join(lines)

    @classmethod
    def of_faults(cls, exercise: str, faults: dict[str, str], *merits: str) -> Verdict:
        """Return WRONG with these faults; without any, RIGHT with these merits."""
        return cls(exercise, WRONG, faults) if faults else cls(exercise, RIGHT, {}, merits)

    def __repr__(self) -> str:
        lines = [f"{self.exercise}: {self.outcome}", *self.faults.values(), *self.merits, self.judged, *self.notes]
        printed = f"It printed:\n{self.printed}" if self.printed.strip() else ""
        return "\n".join(filter(None, [*lines, printed, self.detail])).rstrip()
