"""The record of a student's work: versions of each answer with their verdicts, and the hints that were asked for.

It is kept beside the answers and survives restarts. A folder that cannot be written keeps nothing, and nothing fails.
Several notebooks write files in that folder, one at a time.
"""

from __future__ import annotations

import difflib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypedDict

from labkit.engine.files import replace_file
from labkit.repository import REPOSITORY

FILE, VERSIONS = "coursework.json", "attempts"


class Attempt(TypedDict):
    """One version of an answer: its number from 1, when it was saved, and its last verdict's outcome ("" if none)."""

    number: int
    saved: str
    outcome: str


class ExerciseRecord(TypedDict):
    """What is kept of one exercise. `right_at`: a time, "" where it never was right; `hints`: how many.

    `named` says which bug the student named for each suspect.
    """

    attempts: list[Attempt]
    hints: int
    right_at: str
    named: dict[str, str]


def answers_folder() -> Path:
    """Return the folder of all answers: $LABKIT_ANSWERS, or notebooks/answers/, which git ignores."""
    return Path(os.environ.get("LABKIT_ANSWERS") or REPOSITORY / "notebooks" / "answers")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder, and hold its lock: whoever else asks for it waits. Raises OSError where it cannot be made."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system that knows no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def exercise_record(name: str) -> ExerciseRecord:
    """Return what is kept of an exercise, such as "broadcast.pipelined"; an empty entry where nothing is."""
    return _record_in(_read(), name)


def update_exercise_record(name: str, **changed: Any) -> None:
    """Keep changed fields of an exercise's entry."""
    with suppress(OSError), locked(answers_folder()):
        entries = _read()
        entries[name] = {**_record_in(entries, name), **changed}
        _write(entries)


def version_file(name: str, number: int) -> Path:
    """Return the file that keeps one version of an answer."""
    return answers_folder() / VERSIONS / name.replace(".", "_") / f"{number}.py"


def keep_version(name: str, text: str) -> None:
    """Keep a new version of an answer, unless it is the last one's text."""
    with suppress(OSError), locked(answers_folder()):
        entries = _read()
        kept = _record_in(entries, name)
        if kept["attempts"] and _text(name, kept["attempts"][-1]["number"]) == text:
            return
        number = kept["attempts"][-1]["number"] + 1 if kept["attempts"] else 1
        file = version_file(name, number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        kept["attempts"].append({"number": number, "saved": timestamp(), "outcome": ""})
        entries[name] = kept
        _write(entries)


def keep_outcome(name: str, outcome: str, right: bool) -> None:
    """Keep the verdict on the last version; `right_at` is the first time that one was right."""
    with suppress(OSError), locked(answers_folder()):
        entries = _read()
        kept = _record_in(entries, name)
        if kept["attempts"]:
            kept["attempts"][-1]["outcome"] = outcome
        kept["right_at"] = kept["right_at"] or (timestamp() if right else "")
        entries[name] = kept
        _write(entries)


def difference(name: str) -> str:
    """Return what the last version of an answer changed in the one before it, as a unified diff; "" for one version."""
    numbers = [attempt["number"] for attempt in exercise_record(name)["attempts"][-2:]]
    if len(numbers) < 2:
        return ""
    old, new = (_text(name, number).splitlines() for number in numbers)
    return "\n".join(difflib.unified_diff(old, new, *(f"attempt {number}" for number in numbers), lineterm="", n=2))


def timestamp() -> str:
    """Return the local time, such as "2026-11-21 14:03:22"."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def _text(name: str, number: int) -> str:
    try:
        return version_file(name, number).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _record_in(entries: dict[str, Any], name: str) -> ExerciseRecord:
    """Return an exercise's entry among those of a record; what was edited by hand to another type counts as empty."""
    empty: ExerciseRecord = {"attempts": [], "hints": 0, "right_at": "", "named": {}}
    kept = entries.get(name)
    if isinstance(kept, dict):
        for field, value in empty.items():
            if type(kept.get(field)) is type(value):
                empty[field] = kept[field]  # type: ignore[literal-required]
    empty["attempts"] = [
        attempt
        for attempt in empty["attempts"]
        if isinstance(attempt, dict) and {*attempt} == {*Attempt.__annotations__}
    ]
    return empty


def _read() -> dict[str, Any]:
    """Return all entries; a damaged file keeps none that can be read."""
    try:
        entries = json.loads((answers_folder() / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _write(entries: dict[str, Any]) -> None:
    replace_file(answers_folder() / FILE, json.dumps(entries, indent=1, ensure_ascii=False), mode=0o600)
