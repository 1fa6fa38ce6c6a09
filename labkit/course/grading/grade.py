"""Grades all submissions of a course: a row per student and exercise, judged with cases of each student's own."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tqdm import tqdm

from labkit.course import answers
from labkit.course.exercises import exercise_of
from labkit.course.grading.confine import Limits, Unconfined
from labkit.course.grading.confined_judge import judge
from labkit.course.grading.submissions import OPEN_STEP, Submission, answers_in, without_comments
from labkit.course.verdict import NOT_JUDGED, RIGHT, UNANSWERED, Verdict
from labkit.repository import chosen_notebooks

NOT_HANDED_IN = "it is not in the submission"
EMPTY = "its cell is empty"
SKELETON = "it is the skeleton that was handed out"


@dataclass(frozen=True)
class Graded:
    """One student's exercise: its name, its grade, points reached, points possible, and the verdict."""

    student: str
    exercise: str
    grade: str
    points: int
    most: int
    verdict: Verdict


def exercises_to_grade(submissions: Iterable[Submission], labs: Sequence[str] = ()) -> list[str]:
    """Return the exercises to grade: those of the given labs, or of all labs that somebody has answered."""
    chosen = {*labs} or {name.partition(".")[0] for submission in submissions for name in submission.code}
    return [name for name in answers.exercises() if name.partition(".")[0] in chosen]


def grade(
    submissions: Sequence[Submission],
    exercises: Sequence[str],
    *,
    limits: Limits | None = None,
    secret: str = "",
    jobs: int = 1,
) -> Iterator[list[Graded]]:
    """Grade every exercise of every student, `jobs` at the same time; give each student's as soon as they are there.

    Raises `Unconfined` where no answer may run.
    """
    pairs = [(submission, name) for submission in submissions for name in exercises]

    def graded(pair: tuple[Submission, str]) -> Graded:
        return _graded(*pair, limits or Limits(), secret)

    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        bar = tqdm(pool.map(graded, pairs), total=len(pairs), desc="grading", leave=False, disable=None)
        rows = iter(bar)
        try:
            for _ in submissions:
                yield [next(rows) for _ in exercises]
        finally:  # whoever has no use for more waits for those answers alone that are just tried
            pool.shutdown(wait=False, cancel_futures=True)


def why_unanswered(name: str, submission: Submission) -> str:
    """Return why there is nothing to try of a student's exercise; "" where there is an answer, which nothing parses."""
    if name not in submission.code:
        return NOT_HANDED_IN
    if not (steps := without_comments(submission.code[name])):
        return EMPTY
    return SKELETON if steps == skeletons().get(name) else ""


@functools.cache
def skeletons() -> dict[str, list[str]]:
    """Return the lines of the skeletons that the notebooks hand out, by exercise."""
    pages = (json.loads(page.read_bytes()) for page in chosen_notebooks())
    every = {name: code for page in pages for name, code in answers_in(page).items()}
    return {name: without_comments(code) for name, code in every.items() if OPEN_STEP.search(code)}


def _graded(submission: Submission, name: str, limits: Limits, secret: str) -> Graded:
    exercise = exercise_of(name)
    code = submission.code.get(name, "")
    if why := why_unanswered(name, submission):
        verdict = Verdict(exercise.name, UNANSWERED, {}, (why,))
    else:
        try:
            verdict = judge(exercise, name, code, submission.student, limits=limits, secret=secret)
        except Unconfined:
            raise
        except Exception as error:  # whatever one answer does to its judge, the others are graded
            why = f"the grader failed on it ({type(error).__name__}: {error}): read it yourself"
            verdict = Verdict(exercise.name, NOT_JUDGED, {"grader": why})
    points = exercise.points if verdict.outcome == RIGHT else 0
    return Graded(submission.student, name, exercise.grade, points, exercise.points, verdict)
