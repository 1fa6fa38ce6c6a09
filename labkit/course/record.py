"""The record of a student's work: versions of each answer with their verdicts, hints, and predictions.

It is kept beside the answers and survives restarts. Several notebooks write files in that folder, one at a time.
"""

from __future__ import annotations

import difflib
import fcntl
import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypedDict

from labkit.course.syntax import ANSWER
from labkit.engine.files import replace_file
from labkit.repository import REPOSITORY

FILE, VERSIONS, PREDICTIONS = "coursework.json", "attempts", "predictions"


class Attempt(TypedDict):
    """One version of an answer: its number from 1, when it was saved, and its last verdict's outcome ("" if none).

    `state`: a skeleton is "open", what is no valid Python "invalid"; an "answer" can be judged.
    """

    number: int
    saved: str
    state: str
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
def changing() -> Iterator[dict[str, Any]]:
    """Yield all entries, and keep what is changed in them; whoever else changes them waits.

    Raises OSError where they cannot be kept.
    """
    folder = answers_folder()
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), folder / FILE
    try:
        with suppress(OSError):  # a file system that knows no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if file.exists() and not isinstance(_stored(FILE), dict):
            file.rename(folder / f"unreadable {timestamp()} {FILE}")  # what somebody may mend is not overwritten
        yield (entries := all_entries())
        replace_file(file, json.dumps(entries, indent=1, ensure_ascii=False), mode=0o600)
    finally:
        os.close(descriptor)


def exercise_record(name: str) -> ExerciseRecord:
    """Return what is kept of an exercise, such as "broadcast.pipelined"; an empty entry where nothing is."""
    return entry_in(all_entries(), name)


def update_exercise_record(name: str, **changed: Any) -> None:
    """Keep changed fields of an exercise's entry; a folder that cannot be written keeps nothing, and nothing fails."""
    with suppress(OSError), changing() as entries:
        entries[name] = {**entry_in(entries, name), **changed}


def new_version(name: str, code: bytes, state: str) -> Attempt:
    """Write a version of an answer to a file of its own, and return its entry. Nothing that is there is overwritten."""
    number = next(number for number in itertools.count(1) if not _version_file(name, number).exists())
    _version_file(name, number).parent.mkdir(parents=True, exist_ok=True)
    _version_file(name, number).write_bytes(code)
    return {"number": number, "saved": timestamp(), "state": state, "outcome": ""}


def code_of(name: str, version: Attempt) -> bytes:
    """Return the text of one version of an answer; nothing where it cannot be read."""
    with suppress(OSError):
        return _version_file(name, version["number"]).read_bytes()
    return b""


def keep_outcome(name: str, outcome: str, right: bool) -> None:
    """Keep the verdict on the last version; `right_at` is the first time that one was right."""
    with suppress(OSError), changing() as entries:
        kept = entry_in(entries, name)
        for attempt in kept["attempts"][-1:]:
            attempt["outcome"] = outcome
        kept["right_at"] = kept["right_at"] or (timestamp() if right else "")


def answered(name: str) -> list[Attempt]:
    """Return the versions of an exercise that could be judged, oldest first."""
    return [attempt for attempt in exercise_record(name)["attempts"] if attempt["state"] == ANSWER]


def difference(name: str) -> str:
    """Return what the last answer changed in the one before it, as a unified diff; "" for one answer."""
    attempts = [*enumerate(answered(name), 1)][-2:]
    if len(attempts) < 2:
        return ""
    old, new = (code_of(name, version).decode("utf-8", "replace").splitlines() for _, version in attempts)
    return "\n".join(difflib.unified_diff(old, new, *(f"attempt {n}" for n, _ in attempts), lineterm="", n=2))


def timestamp() -> str:
    """Return the local time, such as "2026-11-21 14:03:22"."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def _version_file(name: str, number: int) -> Path:
    return answers_folder() / VERSIONS / name.replace(".", "_") / f"{number}.py"


def entry_in(entries: dict[str, Any], name: str) -> ExerciseRecord:
    """Return an exercise's entry among all; what was edited by hand to another type counts as empty.

    Earlier workbooks kept no state, and answers alone.
    """
    entry: ExerciseRecord = {"attempts": [], "hints": 0, "right_at": "", "named": {}}
    kept = entries.get(name)
    if isinstance(kept, dict):
        for field, value in entry.items():
            if type(kept.get(field)) is type(value):
                entry[field] = kept[field]  # type: ignore[literal-required]
    whole = [{"state": ANSWER, **attempt} for attempt in entry["attempts"] if isinstance(attempt, dict)]
    entry["attempts"] = [attempt for attempt in whole if {*attempt} == {*Attempt.__annotations__}]  # type: ignore[misc]
    entries[name] = entry
    return entry


def all_entries() -> dict[str, Any]:
    """Return all entries, those of exercises by name; a damaged file keeps none that can be read."""
    entries = _stored(FILE)
    entries = entries if isinstance(entries, dict) else {}
    entries[PREDICTIONS] = entries.get(PREDICTIONS) or _stored("predictions.json")  # of an earlier workbook
    return entries


def _stored(file: str) -> Any:
    with suppress(OSError, ValueError, RecursionError):
        return json.loads((answers_folder() / file).read_text(encoding="utf-8"))
    return None
