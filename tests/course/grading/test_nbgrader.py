"""nbgrader's whole cycle, with the real nbgrader, on three made submissions of a lab; skipped where it is missing."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from labkit.course.grading import confine
from labkit.course.grading.handout import set_up_nbgrader
from labkit.course.source import code_of
from labkit.repository import REPOSITORY

pytest.importorskip("nbgrader", reason="nbgrader is not installed (make COURSE=1 installs it)")

ASSIGNMENT = "12_accounting"
DEVICES, BATCH = "accounting.devices_needed", "accounting.compute_bound_batch"
SOLUTIONS = {name: code_of(f"lessons.accounting.solutions.{name.partition('.')[2]}") for name in (DEVICES, BATCH)}
SETTINGS = """
c = get_config()
c.JudgeAnswers.seconds = 12.0
c.Exchange.root = {exchange!r}
c.ExchangeCollect.check_owner = False
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # nbgrader starts eight times, slowly under load


def environment_of(course: Path) -> dict[str, str]:
    """Return the environment of a shell with this Python's virtual environment active: nbgrader calls alembic."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return os.environ | {"PATH": path, "PYTHONPATH": str(REPOSITORY), "HOME": str(course.parent)}


def nbgrader(course: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "nbgrader", *arguments]
    done = subprocess.run(command, cwd=course, capture_output=True, text=True, env=environment_of(course))
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def answered(notebook, **code: str):
    """Put code into the answers' cells, by the exercise's name with _ for its dot."""
    for cell in notebook.cells:
        words = cell.source.partition("\n")[0].split()
        if words[:1] == ["%%answer"] and words[1].replace(".", "_") in code:
            cell.source = f"%%answer {words[1]}\n{code[words[1].replace('.', '_')]}"
    return notebook


def made(student: str, release: Path):
    """Return the notebook that a student hands in."""
    notebook = nbformat.read(release, as_version=4)
    right = {name.replace(".", "_"): text for name, text in SOLUTIONS.items()}
    devices, batch = right
    if student == "right":
        return answered(notebook, **right)
    if student == "endless":
        return answered(notebook, **right | {devices: "def devices_needed(a, b):\n    while True:\n        pass\n"})
    stolen = "from lessons.accounting.solutions import "
    answered(notebook, **{devices: f"{stolen}devices_needed\n", batch: f"{stolen}compute_bound_batch\n"})
    patch = "from lessons import accounting\naccounting.check = lambda *a, **k: 2\nopen('ran', 'w').write('x')"
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            cell.source, cell.metadata["nbgrader"]["points"] = "100.0", 100
    notebook.cells.insert(1, new_code_cell(patch))
    return notebook


STUDENTS = ("right", "endless", "cheat")


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """Return a course whose assignment was handed out, collected and graded, with feedback."""
    root = tmp_path_factory.mktemp("course")
    course, exchange = root / "course", root / "exchange"
    exchange.mkdir()
    exchange.chmod(0o777)
    assert set_up_nbgrader(course, ["12"]) == [ASSIGNMENT]
    with (course / "nbgrader_config.py").open("a") as config:
        config.write(SETTINGS.format(exchange=str(exchange)))
    nbgrader(course, "generate_assignment", ASSIGNMENT)
    release = course / "release" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"
    nbgrader(course, "release_assignment", ASSIGNMENT)
    for student in STUDENTS[1:]:
        folder = course / "submitted" / student / ASSIGNMENT
        folder.mkdir(parents=True)
        nbformat.write(made(student, release), folder / release.name)
    _hand_in(course, root / "home", release)
    nbgrader(course, "autograde", ASSIGNMENT)
    nbgrader(course, "generate_feedback", ASSIGNMENT)
    return course


def _hand_in(course: Path, home: Path, release: Path) -> None:
    """Have the first student fetch, answer and submit, and collect it."""
    home.mkdir()
    (home / "nbgrader_config.py").write_text((course / "nbgrader_config.py").read_text())
    nbgrader(home, "fetch_assignment", ASSIGNMENT)
    fetched = home / ASSIGNMENT / release.name
    nbformat.write(made(STUDENTS[0], fetched), fetched)
    nbgrader(home, "submit", ASSIGNMENT)
    nbgrader(course, "collect", ASSIGNMENT)
    (collected,) = [one for one in (course / "submitted").iterdir() if one.name not in STUDENTS]
    collected.rename(course / "submitted" / STUDENTS[0])


def test_what_is_handed_out_holds_the_skeletons_and_no_solution(course):
    release = nbformat.read(course / "release" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb", as_version=4)
    skeletons = [cell.source for cell in release.cells if cell.source.startswith("%%answer")]
    assert len(skeletons) == 2 and all("..." in text and "YOUR CODE" not in text for text in skeletons)
    locked = [cell for cell in release.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert len(locked) == 2 and not any(cell.metadata["editable"] for cell in locked)


@pytest.mark.parametrize(
    ("student", "points"),
    [
        ("right", {DEVICES: 1, BATCH: 3}),
        ("endless", {DEVICES: 0, BATCH: 3}),
        ("cheat", {DEVICES: 0, BATCH: 0}),
    ],
)
def test_every_submission_has_its_points(course, student, points):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:
        notebook = gradebook.find_submission_notebook(ASSIGNMENT, ASSIGNMENT, student)
        reached = {grade.name: (grade.auto_score, grade.max_score) for grade in notebook.grades}
        assert not any(grade.needs_manual_grade for grade in notebook.grades)
    most = {DEVICES: 1, BATCH: 3}
    assert reached == {f"check_{name.replace('.', '_')}": (points[name], most[name]) for name in points}


def test_autograde_runs_nothing_where_nothing_confines_answers_unless_it_is_asked_for(course, monkeypatch):
    from nbgrader.converters.base import NbGraderException

    from labkit.course.grading.nbgrader_steps import JudgeAnswers

    monkeypatch.setattr(confine, "confinement_fault", lambda kind: "not here")
    confine.confinement.cache_clear()
    notebook = nbformat.read(course / "submitted" / "right" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb", as_version=4)
    student = {"nbgrader": {"student": "right"}}
    with pytest.raises(NbGraderException, match=r"no answer was run.*set c\.JudgeAnswers\.unconfined"):
        JudgeAnswers().preprocess(notebook, student)
    assert "Unconfined" not in nbformat.writes(notebook)
    JudgeAnswers(unconfined=True, seconds=12).preprocess(notebook, student)
    assert nbformat.writes(notebook).count("<b>Unconfined: each answer ran with the grader's own rights") == 2
    confine.confinement.cache_clear()


def test_nothing_of_a_submission_ran_beside_the_grader(course):
    assert [*course.rglob("ran")] == []


def test_feedback_says_what_is_wrong(course):
    def feedback(student: str) -> str:
        return (course / "feedback" / student / ASSIGNMENT / f"{ASSIGNMENT}.html").read_text()

    assert "did not come back within 12 s" in feedback("endless")
    assert "out of reach" in feedback("cheat")
