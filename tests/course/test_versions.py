"""One store of a student's work: what is judged hangs on no file's time, and nothing that was written is lost."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import labkit
from labkit.course import answers, record
from labkit.engine.errors import NowhereToWrite

NAME = "sharding.held_bytes"
pytestmark = pytest.mark.usefixtures("answers_folder")


def text(value: object) -> str:
    return f"def held_bytes(parameters, ranks, stage):\n    return {value}\n"


OPEN, INVALID = "def held_bytes(parameters, ranks, stage):\n    ...\n", "def held_bytes(:\n"


def cell(code: str) -> None:
    with suppress(SyntaxError):
        answers.save(NAME, code)


def kept() -> set[str]:
    """Return all texts that the folder holds of this answer."""
    return {file.read_text() for file in (answers.folder() / "attempts").rglob("*.py")}


def judged() -> tuple[str, str]:
    """Return the state and the text of the version that a check takes."""
    version, code = answers.newest_version(NAME)
    return version["state"], code.decode()


@pytest.mark.parametrize(("newest", "state"), [(OPEN, "open"), (INVALID, "invalid"), (text(2), "answer")])
def test_a_copy_of_the_folder_is_judged_as_the_folder_was(answers_folder, newest, state):
    cell(text(1))
    cell(newest)
    for times in ((1e9, 2e9), (2e9, 1e9)):
        for file, time in zip([*answers_folder.glob("*.py"), *answers_folder.rglob("[0-9].py")], times, strict=False):
            os.utime(file, (time, time))
        assert judged() == (state, newest)
    assert answers.file_of(NAME).read_text() == (newest if state == "answer" else text(1)), "this one is handed in"


@pytest.mark.parametrize("before", [(), (text(1),), (text(1), INVALID), (OPEN,)])
@pytest.mark.parametrize(("edited", "state"), [(text(3), "answer"), (OPEN + "#", "open"), (INVALID + "#", "invalid")])
def test_what_was_edited_in_the_file_is_judged_and_kept(answers_folder, before, edited, state):
    answers_folder.mkdir()
    for code in before:
        cell(code)
    answers.file_of(NAME).write_text(edited)
    assert judged() == judged() == (state, edited)
    cell(OPEN + "# later")
    assert judged() == ("open", OPEN + "# later")
    cell(text(4))
    assert judged() == ("answer", text(4)) and kept() == {*before, edited, OPEN + "# later", text(4)}


def test_an_edit_that_nobody_checked_is_kept_when_the_cell_runs_again():
    cell(text(1))
    answers.file_of(NAME).write_text(text("edited"))
    cell(text(1))
    assert judged() == ("answer", text(1)) and text("edited") in kept()


def earlier_folder(folder, draft: str = "", recorded: bool = True) -> None:
    """Write a folder as workbooks did that kept drafts, and predictions in a file of their own."""
    versions = folder / "attempts" / "sharding_held_bytes"
    versions.mkdir(parents=True)
    (folder / "sharding_held_bytes.py").write_text(text(2))
    if draft:
        (folder / "sharding_held_bytes.draft.py").write_text(draft)
    if recorded:
        for number in (1, 2):
            (versions / f"{number}.py").write_text(text(number))
        attempts = [{"number": n, "saved": f"2026-11-0{n} 10:00:00", "outcome": "wrong"} for n in (1, 2)]
        entry = {"attempts": attempts, "hints": 2, "right_at": "", "named": {"A": "late"}}
        (folder / "coursework.json").write_text(json.dumps({NAME: entry}))
    guess = {"question": "How long?", "unit": "s", "guessed": 3, "measured": 4}
    (folder / "predictions.json").write_text(json.dumps([guess]))


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize(("draft", "state"), [("", "answer"), (OPEN, "open"), (INVALID, "invalid")])
def test_a_folder_of_an_earlier_workbook_is_taken_over(answers_folder, draft, state, recorded):
    earlier_folder(answers_folder, draft, recorded)
    for _ in range(2):
        assert judged() == (state, draft or text(2))
    assert kept() == {text(2)} | ({text(1)} if recorded else set()) | ({draft} if draft else set())
    assert [one["outcome"] for one in record.answered(NAME)] == (["wrong"] * 2 if recorded else [""])
    assert record.exercise_record(NAME)["hints"] == (2 if recorded else 0)
    labkit.predict("How many?", unit="GPUs").take("8")
    assert labkit.predictions()["guessed"].tolist() == [3, 8] and labkit.predictions()["measured"][0] == 4
    cell(text(5))
    assert judged() == ("answer", text(5)) and not [*answers_folder.glob("*.draft.py")]


@pytest.mark.parametrize("step", ["new_version", "replace_file"])
def test_a_full_disk_or_a_kernel_that_ends_between_two_writes_loses_nothing(monkeypatch, step):
    cell(text(1))

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(record if step == "new_version" else answers, step, fail)
        with pytest.raises(NowhereToWrite):
            answers.save(NAME, text(2))
    assert judged() == ("answer", text(1)) == ("answer", answers.file_of(NAME).read_text())
    with monkeypatch.context() as patch:
        patch.setattr(record, "replace_file", fail)  # all but the record is written
        with pytest.raises(NowhereToWrite):
            answers.save(NAME, text(3))
    assert judged() == ("answer", text(3)) == ("answer", answers.file_of(NAME).read_text())
    cell(text(4))
    assert {text(1), text(3), text(4)} <= kept()


def test_what_was_edited_is_judged_where_nothing_can_be_written(monkeypatch):
    cell(text(1))
    answers.file_of(NAME).write_text(text(2))
    monkeypatch.setattr(record.os, "open", lambda *_: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
    assert judged() == ("answer", text(2))


def test_many_kernels_keep_all_versions_and_predictions():
    def work(number: int) -> None:
        cell(text(number))
        labkit.predict(f"Question {number}?", unit="s").take(str(number))

    with ThreadPoolExecutor(8) as pool:
        [*pool.map(work, range(24))]
    assert kept() == {*map(text, range(24))} and len(record.answered(NAME)) == 24
    assert sorted(labkit.predictions()["guessed"]) == [*range(24)]
    assert judged()[1] == answers.file_of(NAME).read_text()


def test_a_record_that_cannot_be_read_is_put_aside_and_no_version_is_overwritten(answers_folder):
    cell(text(1))
    (answers_folder / record.FILE).write_text("{damaged")
    cell(text(2))
    assert kept() == {text(1), text(2)}
    assert "{damaged" in [file.read_text() for file in answers_folder.glob(f"*{record.FILE}")]
