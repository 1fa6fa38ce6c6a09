"""What a student's own record tells stands beside the grades, as text; a record that is none changes nothing."""

import json
from string import ascii_uppercase

import pytest

from labkit.course.course_map import course_map as course_map  # loads every lesson, as the command does
from labkit.course.grading.grade import Graded
from labkit.course.grading.grade_pages import Pages
from labkit.course.grading.submissions import submissions
from labkit.course.verdict import RIGHT, WRONG, Verdict
from lessons import ddp_fsdp

EXERCISE, OTHER = "ddp_fsdp.least_memory", "ddp_fsdp.other"
SCRIPT = "<script>alert('x')</script>"
ATTEMPT = {"number": 1, "saved": "2026-11-21 14:03:22", "outcome": "wrong"}
ENTRY = {"attempts": [ATTEMPT, ATTEMPT], "hints": 3, "right_at": "", "solution_at": "2026-11-21 15:00:00", "named": {}}
GUESS = {"question": "How much memory?", "unit": "GiB", "guessed": 0.8, "measured": 10.25}


def page_of(folder, grades):
    """Return the text of the only student's page, and all that the other files say."""
    (submission,) = submissions(folder)
    rows = [
        Graded("ada", EXERCISE, "core", 0, 2, Verdict("least_memory", WRONG, {"fault": "it is wrong"})),
        Graded("ada", OTHER, "core", 2, 2, Verdict("other", RIGHT, {})),
    ]
    pages = Pages(grades)
    pages.add(submission, rows)
    (page,) = grades.glob("001-*.html")
    return page.read_text(encoding="utf-8"), (grades / "grades.csv").read_text() + pages.index.read_text()


@pytest.fixture
def ada(tmp_path):
    folder = tmp_path / "submissions" / "ada" / "answers"
    folder.mkdir(parents=True)
    (folder / "accounting_devices_needed.py").write_text("x = 1")
    return folder


@pytest.fixture
def without(ada, tmp_path):
    """What the pages say without a record."""
    return page_of(tmp_path / "submissions", tmp_path / "without")


def test_the_record_stands_beside_the_grades_and_changes_none(ada, without, tmp_path):
    suspects = ddp_fsdp.suspects()
    named = dict(zip(ascii_uppercase, [suspects[0], *suspects[2:], suspects[1]], strict=False))
    entries = {EXERCISE: ENTRY, "ddp_fsdp.bugs": ENTRY | {"named": named}}
    (ada / "coursework.json").write_text(json.dumps(entries))
    (ada / "predictions.json").write_text(json.dumps([GUESS, GUESS | {"measured": None}, GUESS | {"guessed": None}]))
    page, others = page_of(tmp_path / "submissions", tmp_path / "grades")
    assert "attempts: 2; hints: 3; reference solution before a right answer: asked for at 2026-11-21 15:00:00" in page
    assert page.count("attempts:") == 1, "the other exercise has no entry"
    assert f"ddp_fsdp: 1 of {len(suspects)} rightly (A: {suspects[0]}, B: " in page
    assert page.count("<td>How much memory?</td><td>0.8 GiB</td>") == 2
    assert "<td>10.25 GiB</td>" in page and "<td>–</td>" in page
    assert "can be edited by hand" in page
    assert "record" not in without[0] and others == without[1]


RECORDS = {
    "empty": "",
    "no JSON": "{",
    "deep": "[" * 500_000,
    "deep objects": '{"a":' * 100_000,
    "huge": json.dumps({EXERCISE: ENTRY, "more": "x" * 2**20}),
    "a list": "[1, null]",
    "a number": "NaN",
    "digits": "9" * 5_000,
    "no UTF-8": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("text", RECORDS.values(), ids=RECORDS)
def test_a_record_that_is_none_gives_the_page_without_it(ada, without, tmp_path, text):
    for name in ("coursework.json", "predictions.json"):
        content = "{}" if text == "[1, null]" and name == "predictions.json" else text
        (ada / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    page, _ = page_of(tmp_path / "submissions", tmp_path / "grades")
    problems = page.split('<p class="why">')[1:]
    assert len(problems) == 2 and "coursework.json cannot be read" in problems[0]
    assert "attempts:" not in page and "record" not in page
    assert "0 of 2 points" in page and "2 of 4 points" in page


def test_a_record_that_is_a_link_or_a_folder_is_not_read(ada, without, tmp_path):
    (tmp_path / "secret.json").write_text(json.dumps({EXERCISE: ENTRY}))
    (ada / "coursework.json").symlink_to(tmp_path / "secret.json")
    (ada / "predictions.json").mkdir()
    assert page_of(tmp_path / "submissions", tmp_path / "grades") == without


ODD = [None, True, -1, 10**4000, float("nan"), float("inf"), "text", SCRIPT, [], {}, [[1]], {"A": 1}, {"A": SCRIPT}]


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
def test_values_of_any_type_and_markup_are_text(ada, tmp_path, value):
    entries = {EXERCISE: dict.fromkeys(ENTRY, value), OTHER: value, "ddp_fsdp.bugs": {"named": value}}
    entries[EXERCISE]["attempts"] = [dict.fromkeys(ATTEMPT, value), value]
    predictions = [value, dict.fromkeys(GUESS, value), GUESS | {"guessed": value}, GUESS | {"measured": value}]
    predictions.append(GUESS | {"question": value, "unit": value})
    (ada / "coursework.json").write_text(json.dumps(entries))
    (ada / "predictions.json").write_text(json.dumps(predictions))
    page, _ = page_of(tmp_path / "submissions", tmp_path / "grades")
    assert "attempts: 1" in page and "<td>0.8 GiB</td>" in page and "cannot be read" not in page
    assert "<script>" not in page and len(page) < 20_000


def test_a_long_record_is_shown_in_part(ada, tmp_path):
    (ada / "predictions.json").write_text(json.dumps([GUESS | {"question": "?" * 900}] * 1000))
    page, _ = page_of(tmp_path / "submissions", tmp_path / "grades")
    assert page.count(f"<td>{'?' * 200}</td>") == 100
