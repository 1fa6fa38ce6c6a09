"""Find the bug: the code of the suspects is shown, the student names each, and only then is it told who is who."""

from __future__ import annotations

import html
import importlib
import re

import pytest

from labkit.course import record
from labkit.course.lineup import Naming, one_below_another, with_bugs
from labkit.course.source import code_of
from labkit.course.verdict import WRONG, Verdict
from labkit.repository import LESSONS, lesson_names

LABS = [lab for lab in lesson_names() if hasattr(importlib.import_module(f"lessons.{lab}"), "suspects")]
CONVERTED = [lab for lab in LABS if (LESSONS / lab / "exercises.py").exists()]
MOST_CHARACTERS = 60  # of a line in a converted lesson: a window of 1366 pixels shows it whole
SYMPTOMS = {"late": "it comes too late", "twice": "it comes twice"}


pytestmark = pytest.mark.usefixtures("answers_folder")


def naming() -> Naming:
    """Return the naming of two suspects: A comes twice, B too late."""
    verdicts = [Verdict(name, WRONG, {name: f"{name} here"}) for name in ("twice", "late")]
    return Naming("lab", SYMPTOMS, 2, lambda: verdicts)


@pytest.mark.parametrize("lab", LABS)
def test_the_code_of_every_suspect_is_shown_and_tells_no_name(lab):
    room = importlib.import_module(f"lessons.{lab}")
    names = [name.removeprefix("bugs.") for name in room.suspects()]
    shown = room.show_suspects().data
    codes = [html.unescape(code) for code in re.findall(r"<pre.*?>(.*?)</pre>", shown, re.S)]
    assert len({*codes}) == len(names), "each suspect has its own code"
    assert [name for name in names if name in shown] == []
    for code in codes:
        compile(code, lab, "exec")
        assert max(map(len, code.splitlines())) <= (MOST_CHARACTERS if lab in CONVERTED else 90)


@pytest.mark.parametrize("lab", CONVERTED)
def test_no_suspect_holds_what_an_exercise_asks_for(lab):
    room = importlib.import_module(f"lessons.{lab}")
    suspects = html.unescape(room.show_suspects().data)
    for exercise in room.check.by_name.values():
        code = "\n".join(map(code_of, exercise.solution))
        lines = {line.strip() for line in code.splitlines()}
        steps = {line for line in lines if "(" in line and not line.startswith('"') and not line.endswith(":")}
        assert [step for step in steps if step in suspects] == [], exercise.name


def test_an_edit_that_does_not_fit_is_an_error():
    assert with_bugs("a = 1\nb = 2\n", {"one": [("b = 2", "b = 3")]}) == {"one": "a = 1\nb = 3"}
    for old in ("c", "="):
        with pytest.raises(ValueError, match="one"):
            with_bugs("a = 1\nb = 2\n", {"one": [(old, "")]})


def test_code_is_text_and_each_box_has_a_label_and_takes_the_keyboard():
    shown = one_below_another(["a < b", "c & d"]).data
    assert "a &lt; b" in shown and "c &amp; d" in shown
    assert shown.count('tabindex="0"') == 2 and 'aria-label="Code of suspect B"' in shown


def test_nothing_is_told_before_the_student_has_named_them():
    one = naming()
    assert "here" not in repr(one) and "late" in repr(one)
    said = one.reveal({"A": "twice", "B": "twice"}).data
    assert "1 of 2" in said and "it comes too late. Late here" in said and "you chose: it comes twice" in said
    again = naming()  # as after a restart
    assert record.exercise_record("lab.bugs")["named"] == again.named == {"A": "twice", "B": "twice"}
    assert [field.value for field in again.fields.values()] == ["twice", "twice"]


def test_an_empty_dict_tells_who_is_who_and_keeps_nothing():
    said = naming().reveal({}).data
    assert "named" not in said and "**A**: it comes twice. Twice here." in said
    assert record.exercise_record("lab.bugs")["named"] == {}


@pytest.mark.parametrize("named", [{"C": "late"}, {"A": "early"}])
def test_a_letter_or_a_bug_that_is_not_there_is_refused(named):
    with pytest.raises(ValueError, match=r"name A, B by late, twice"):
        naming().reveal(named)


def test_the_order_of_the_choices_says_nothing_about_the_suspects():
    (first, second) = naming().fields.values()
    assert first.options == second.options
    assert [name for _, name in first.options[1:]] == sorted(SYMPTOMS)
