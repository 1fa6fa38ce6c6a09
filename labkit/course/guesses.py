"""The file of all predictions, beside the answers: what was guessed and what was measured, kept over restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from labkit.course import answers
from labkit.course.keeping import alone
from labkit.engine.run_folder import replace_file

FILE = "predictions.json"


def file_of_predictions() -> Path:
    """Return the file of all predictions."""
    return answers.folder() / FILE


def kept() -> list[dict[str, Any]]:
    """Return what is kept of each prediction, oldest first: question, unit, guessed, measured (None where unknown).

    A damaged file keeps nothing that can be read.
    """
    try:
        stored = json.loads(file_of_predictions().read_text(encoding="utf-8"))
        return [entry for entry in stored if is_readable(entry)]
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def is_readable(entry: Any) -> bool:
    """Whether an entry of the file has a question and a unit; its other values may be of any type."""
    return isinstance(entry, dict) and {"question", "unit"} <= {*entry}


def find(question: str, unit: str) -> dict[str, Any]:
    """Return what is kept of one prediction; {} where nothing is."""
    return next((entry for entry in kept() if (entry["question"], entry["unit"]) == (question, unit)), {})


def keep(question: str, unit: str, **changed: float | None) -> None:
    """Keep what was guessed or measured. Raises OSError where the folder cannot be written.

    The file is replaced in one step, and two notebooks that write it follow each other.
    """
    with alone(answers.folder()):
        entries = kept()
        entry = next((entry for entry in entries if (entry["question"], entry["unit"]) == (question, unit)), None)
        if entry is None:
            entries.append(entry := {"question": question, "unit": unit, "guessed": None, "measured": None})
        entry.update(changed)
        replace_file(file_of_predictions(), json.dumps(entries, indent=1, ensure_ascii=False), mode=0o600)
