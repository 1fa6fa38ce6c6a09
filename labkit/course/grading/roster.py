"""The class as a list: who is enrolled, with the id that a learning platform knows; and who handed in nothing."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from labkit.course.grading.submissions import Submission

NOTHING = "nothing handed in"
NOT_LISTED = "not on the roster"


def with_roster(handed_in: Sequence[Submission], roster: Path) -> list[Submission]:
    """Return the submissions with the ids of a roster, and an empty one for each of its students without any.

    The roster is CSV with the columns `name`, `id` or both; a submission is named like one of the two. Raises
    ValueError for a file without them.
    """
    with open(roster, newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        if not {"name", "id"} & {*(rows.fieldnames or ())}:
            raise ValueError(f"{roster} has neither a column `name` nor a column `id`")
        listed = [((row.get("name") or "").strip(), (row.get("id") or "").strip()) for row in rows]
    found = {submission.student: submission for submission in handed_in}
    enrolled = []
    for name, number in filter(any, listed):
        key = next((key for key in (name, number) if key in found), None)
        absent = Submission(name or number, problems=[NOTHING])
        enrolled.append(replace(found.pop(key) if key is not None else absent, number=number))
    return enrolled + [replace(one, problems=[*one.problems, NOT_LISTED]) for one in found.values()]
