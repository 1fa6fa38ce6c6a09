"""The exercises of a lab, each with its cases, its judge, its grade, its hints in steps and its reference solution."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from labkit.course import answers, record
from labkit.course.answer_launch import call_answer, launch_answer, printed_in, unanswered_verdict
from labkit.course.judging import Mistake, judge_of
from labkit.course.source import source
from labkit.course.verdict import NOT_JUDGED, RIGHT, UNANSWERED, WRONG, Verdict
from labkit.engine.call import CallOnRanks
from labkit.launching import why_no_nodes_now
from labkit.story.words import say

if TYPE_CHECKING:
    from IPython.display import Code, Markdown

    from labkit.engine.plan import Plan
    from labkit.engine.run import Run

WAIT_FOR_EACH_OTHER = "ranks wait for each other, or it is too slow"
NEVER_ENDS = "a loop in it does not end, or is slow"
BESIDE = "reference solution"  # a merit that names it sets two times side by side
BY_CHANCE = (
    "these are times of CPU processes, which share cores: between two codes that do the same, a factor of two is chance"
)
WARM_UP, CORE, STRETCH = "warm-up", "core", "stretch"
POINTS = {WARM_UP: 1, CORE: 2, STRETCH: 3}


def why_hung(ranks: int) -> str:
    """Return why an answer that so many ranks run may not come back."""
    return WAIT_FOR_EACH_OTHER if ranks > 1 else NEVER_ENDS


@dataclass(frozen=True)
class Trial:
    """Launches in which the workers run the answer in its place in the lesson's mechanism.

    `plans` takes the answer's file and the options of the lab's `check`, `size` and `gpus`; `judge` takes each run in
    turn and returns the verdict, with what a right answer took beside the reference solution and beside the library's.
    Plans over several nodes are left out, and a note says why, where there are no nodes now.
    `also_after` are kinds of faults of the exercise's own judge: where it finds no others, the trial shows what they do
    in the mechanism.
    """

    plans: Callable[..., Sequence[Plan]]
    judge: Callable[[Run], Verdict]
    also_after: tuple[str, ...] = ()

    def follows(self, verdict: Verdict) -> bool:
        """Return whether this trial shows what the faults do that the exercise's judge found."""
        return verdict.outcome == WRONG and verdict.faults.keys() <= {*self.also_after}


@dataclass(frozen=True)
class Exercise:
    """What the student writes in a cell: its name, the cases that it is tried with, and its judge.

    `functions` are those that the cell defines: without them, it is the one of the exercise's name.
    `inputs` are the lists of arguments that the notebook's check calls it with: without them, those that `cases`, which
    also a grader asks, draws at seed 0. `judge` takes what the function returned for each list of arguments, in order,
    and these lists, and returns the verdict. `on_failure` may add to the verdict of a call that raised or did not come
    back. Where it has a `trial`, that is next, for an answer that is right so far. `check` takes the place of both: it
    takes the exercise's name and the options of the lab's `check`, and returns the verdict.
    `hints` come in steps: where to look, what the structure is, almost the code. `solution` names the code that
    `labkit.source` shows; without it, that is the function of the same name in the lab's solutions.py.
    """

    name: str
    inputs: Sequence[Sequence[Any]] = ()
    judge: Callable[..., Verdict] | None = None
    on_failure: Callable[[Verdict], Verdict] = lambda verdict: verdict
    hints: tuple[str, ...] = ()
    grade: str = CORE
    trial: Trial | None = None
    check: Callable[..., Verdict] | None = None
    solution: tuple[str, ...] = ()
    cases: Cases | None = None
    functions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "functions", self.functions or (self.name,))
        if self.cases is not None and not self.inputs and self.check is None:
            object.__setattr__(self, "inputs", tuple(self.cases.make(Random(0))))

    @property
    def points(self) -> int:
        """Return the points that a right answer earns."""
        return POINTS[self.grade]


class Exercises:
    """All exercises of a lab; calling it checks one: `check = Exercises("collectives", Exercise("ring_step", …))`.

    `imported_as` is the lab's name in its notebook, where that is another one.
    """

    def __init__(self, lab: str, *exercises: Exercise, imported_as: str = ""):
        self.lab, self.by_name = lab, {exercise.name: exercise for exercise in exercises}
        self.names, self._imported_as = tuple(self.by_name), imported_as or lab

    def __call__(self, exercise: str, *, patience_s: float = 20.0, **options: Any) -> Verdict:
        """Have a worker call the student's answer to `exercise`, judge what it returns, and say which version it was.

        `size` and `gpus` are options of the exercises that launch a run of their own; where a page shows recorded runs,
        an answer still runs, small. Raises ValueError, listing the exercises, for an unknown one.
        """
        if options.get("size") == "recorded":
            options["size"] = "small"
        asked = self._exercise(exercise)
        return self._kept_verdict(asked, self._verdict(asked, patience_s, options))

    def _verdict(self, exercise: Exercise, patience_s: float, options: dict[str, Any]) -> Verdict:
        if exercise.check is not None:
            return exercise.check(exercise.name, patience_s=patience_s, **options)
        if options and exercise.trial is None:
            raise TypeError(f"the check of `{exercise.name}` takes no {', '.join(options)}")
        verdict = self._verdict_on_values(exercise, patience_s) if exercise.judge else None
        if exercise.trial is None or (verdict and verdict.outcome != RIGHT and not exercise.trial.follows(verdict)):
            assert verdict is not None, f"{exercise.name} has neither a judge nor a trial nor a check"
            return verdict
        tried = self._verdict_of_trial(exercise.trial, exercise.name, patience_s, options)
        merits = (*(verdict.merits if verdict else ()), *tried.merits)
        if verdict and verdict.outcome != RIGHT:
            is_judged = tried.outcome in (RIGHT, WRONG)
            return replace(verdict, faults=verdict.faults | tried.faults, merits=merits) if is_judged else verdict
        return replace(tried, merits=merits) if tried.outcome == RIGHT else tried

    def _verdict_on_values(self, exercise: Exercise, patience_s: float) -> Verdict:
        assert exercise.judge is not None
        name, inputs = f"{self.lab}.{exercise.name}", [list(arguments) for arguments in exercise.inputs]
        if exercise.cases is not None and exercise.cases.on_ranks:
            return self._verdict_on_ranks(exercise, name, inputs, patience_s)
        given = call_answer(name, inputs, patience_s)
        if isinstance(given, Verdict):
            return exercise.on_failure(given)
        return replace(exercise.judge(given, exercise.inputs), printed=given.printed)

    def _verdict_on_ranks(self, exercise: Exercise, name: str, inputs: list, patience_s: float) -> Verdict:
        """Have ranks that communicate run the answer, and the reference solution beside it."""
        if (verdict := unanswered_verdict(name)) is not None:
            return verdict
        assert exercise.judge is not None and exercise.cases is not None
        plan = CallOnRanks(
            gpus=max(arguments[0] for arguments in inputs),
            file=str(answers.file_of(name)),
            functions=exercise.functions,
            references=exercise.cases.reference,
            driver=exercise.cases.driver,
            inputs=json.dumps(inputs),
        )
        run = launch_answer(exercise.name, plan, patience_s, why_hung(plan.gpus))
        if isinstance(run, Verdict):
            return exercise.on_failure(run)
        given, due = (
            [
                [json.loads(text) for text in rows["given"]]
                for _, rows in run.rows[run.rows["who"] == who].groupby("point")
            ]
            for who in ("yours", "reference")
        )
        return replace(exercise.judge(given, inputs, due), printed=printed_in(run.rows))

    def _verdict_of_trial(self, trial: Trial, exercise: str, patience_s: float, options: dict[str, Any]) -> Verdict:
        """Launch the answer; give the first verdict that is not "right", or what is right in all of its runs."""
        name = f"{self.lab}.{exercise}"
        if (verdict := unanswered_verdict(name)) is not None:
            return verdict
        merits, printed = [], ""
        for plan in trial.plans(str(answers.file_of(name)), **options):
            if plan.several_nodes and (why := why_no_nodes_now()):
                return Verdict(exercise, RIGHT, {}, tuple(merits), notes=(f"Not tried over several nodes: {why}.",))
            run = launch_answer(exercise, plan, patience_s, why_hung(plan.gpus))
            if isinstance(run, Verdict):
                return run
            verdict, printed = trial.judge(run), printed or printed_in(run.rows)
            if verdict.outcome != RIGHT:
                return replace(verdict, printed=printed)
            merits += verdict.merits
            beside = not plan.several_nodes and any(BESIDE in merit for merit in verdict.merits)
            if run.plan.device == "cpu" and beside:  # between nodes the link decides, not the cores
                merits.append(BY_CHANCE)
        return Verdict(exercise, RIGHT, {}, tuple(merits), printed=printed)

    def yours(self, exercise: str) -> str:
        """Return the file of the student's answer, which a plan takes as `yours`; "" unless its check says "right".

        Raises ValueError, listing the exercises, for an unknown one.
        """
        name = f"{self.lab}.{self._exercise(exercise).name}"
        newest = answers.newest_version(name)
        return str(answers.file_of(name)) if newest and newest[0]["outcome"] == RIGHT else ""

    def _kept_verdict(self, exercise: Exercise, verdict: Verdict) -> Verdict:
        """Keep the outcome, and return the verdict with the version that it judged and what may be done next."""
        name = f"{self.lab}.{exercise.name}"
        newest = answers.newest_version(name)
        if verdict.outcome in (UNANSWERED, NOT_JUDGED) or newest is None:
            return replace(verdict, notes=self._next_steps(exercise, verdict))
        record.keep_outcome(name, verdict.outcome, right=verdict.outcome == RIGHT)
        judged = f"Judged: `{answers.file_of(name).name}`, saved {newest[0]['saved']}."
        return replace(verdict, judged=judged, notes=(*verdict.notes, *self._next_steps(exercise, verdict)))

    def _next_steps(self, exercise: Exercise, verdict: Verdict) -> tuple[str, ...]:
        name = f"{self.lab}.{exercise.name}"
        worth = f"{exercise.points} point{'s' if exercise.points > 1 else ''} ({exercise.grade})"
        if verdict.outcome == RIGHT:
            compare = f"Compare with the reference solution: {self._call_text('solution', exercise)}."
            return (f"This earns {worth}. {compare if _has_solutions() else ''}".rstrip(),)
        lines, number = [], len(record.answered(name))
        if verdict.outcome != UNANSWERED and number > 1:
            lines.append(
                f"This is attempt {number}; {self._call_text('attempts', exercise)} shows what changed since the last."
            )
        given = record.exercise_record(name)["hints"]
        if given < len(exercise.hints):
            step = f"hint {given + 1} of {len(exercise.hints)}"
            lines.append(f"This exercise is worth {worth}. {self._call_text('hint', exercise)} gives {step}.")
        return tuple(lines)

    def _call_text(self, function: str, exercise: Exercise, more: str = "") -> str:
        return f'`{self._imported_as}.{function}("{exercise.name}"{more})`'

    def hint(self, exercise: str, step: int = 0) -> Markdown:
        """Return the next hint of an exercise, and the last one again once all are given; or an earlier `step` again.

        How many were given is kept beside the answers. Raises ValueError, listing the exercises, for an unknown one.
        """
        asked = self._exercise(exercise)
        if not asked.hints:
            return say(f"There are no hints for `{exercise}`.")
        given = record.exercise_record(f"{self.lab}.{exercise}")["hints"]
        step = min(step if 0 < step <= given else given + 1, len(asked.hints))
        record.update_exercise_record(f"{self.lab}.{exercise}", hints=max(step, given))
        return say(f"Hint {step} of {len(asked.hints)} for `{exercise}`: {asked.hints[step - 1]}")

    def solution(self, exercise: str, anyway: bool = False) -> Code | Markdown:
        """Return the reference solution once an answer was right, or `anyway`.

        In the student's package it is a sentence: the teacher has the solution. Raises ValueError, listing the
        exercises, for an unknown one.
        """
        wanted_exercise, name = self._exercise(exercise), f"{self.lab}.{exercise}"
        if not _has_solutions():
            return say(
                f"Your teacher has the reference solution of `{exercise}`; this copy of the workbook shows none."
            )
        if not record.exercise_record(name)["right_at"] and not anyway:
            ask = self._call_text("solution", wanted_exercise, ", anyway=True")
            return say(
                f"The reference solution of `{exercise}` is shown after a right answer. {ask} shows it before that."
            )
        return source(*(wanted_exercise.solution or (f"lessons.{self.lab}.solutions.{exercise}",)))

    def attempts(self, exercise: str) -> Markdown:
        """Return the versions of the answer with their verdicts, and what the last one changed in the one before it.

        Raises ValueError, listing the exercises, for an unknown one.
        """
        name = f"{self.lab}.{self._exercise(exercise).name}"
        rows = [
            f"| {number} | {attempt['saved']} | {attempt['outcome'] or 'not checked'} |"
            for number, attempt in enumerate(record.answered(name), 1)
        ]
        if not rows:
            return say(f"There is no answer to `{exercise}` yet.")
        table = "\n".join(["| attempt | saved | verdict |", "| --- | --- | --- |", *rows])
        difference = record.difference(name)
        return say(f"{table}\n\n`````diff\n{difference}\n`````" if difference else table)

    def _exercise(self, exercise: str) -> Exercise:
        if exercise not in self.by_name:
            raise answers.UnknownExercise(f"{exercise!r} is no exercise; there are {', '.join(self.names)}")
        return self.by_name[exercise]


def _has_solutions() -> bool:
    """Return whether this is a full checkout: the student's package has neither solutions nor the grading room."""
    return importlib.util.find_spec("labkit.course.grading") is not None


@dataclass(frozen=True)
class Cases:
    """The hidden cases of one exercise.

    They begin with the exercise's `inputs`, so that no student gets points for what the notebook's check refuses; one
    with a `check` of its own may have none. `make` draws the others, lists of arguments, from a student's own random
    numbers; `judge` takes what the answer gave for each list, and these: without it, the exercise's own judge does.
    Where calling the function is not enough, `driver` names a module whose `drive(function, *arguments)` tries it and
    returns what the judge takes. With `reference`, the code of a reference solution, that is tried in the same way, and
    what it gave comes to the judge as a third argument. Then the answer is believed its `calls` alone: the driver makes
    them again in a process without the answer, and the judge takes what that gives.
    With `on_ranks`, the first of the arguments says how many ranks try the function together: on each one the driver
    gets the function, a `world` (`rank`, `ranks`, `group`) and the arguments. The judge takes a list of what the ranks
    gave for each list of arguments. `reference` is one function or method; where the answer runs, it has no body.
    `may_import` names the modules and functions of labkit that the answer and the driver may import; nothing else of
    labkit is within their reach.
    `start_s`: seconds that the driver's own imports may take, on top of the answer's.
    """

    make: Callable[[Random], list]
    judge: Callable[..., Verdict] | None = None
    driver: str = ""
    on_ranks: bool = False
    reference: tuple[str, ...] = ()
    may_import: tuple[str, ...] = ()
    start_s: float = 0.0

    def arguments_for(self, exercise: str, student: str, secret: str = "") -> list[list[Any]]:
        """Return the lists of arguments for one student, each once: the same every time, for the same `secret`."""
        seed = hashlib.sha256(json.dumps([exercise, student, secret]).encode()).hexdigest()
        every = [list(arguments) for arguments in (*_shown_arguments(exercise), *self.make(Random(seed)))]
        return [*{json.dumps(arguments): arguments for arguments in every}.values()]


def compared(
    name: str,
    reference: Callable[..., Any],
    mistakes: Sequence[Mistake],
    *,
    result_form: str,
    rule: str,
    merit: str,
    cases: Cases,
    inputs: Sequence[Sequence[Any]] = (),
    **more: Any,
) -> Exercise:
    """Return an exercise whose function returns what `reference` does; `judge_of` says what its words are for.

    `more` is of `Exercise`.
    """
    judge = judge_of(name, reference, mistakes, result_form=result_form, rule=rule, merit=merit)
    return Exercise(name, inputs, judge, cases=cases, **more)


def _shown_arguments(exercise: str) -> Sequence[Sequence[Any]]:
    """Return the lists of arguments that the notebook's check calls an answer with."""
    return exercise_of(exercise).inputs


def cases_of(exercise: str) -> Cases:
    """Return the hidden cases of an exercise, such as "broadcast.pipelined"."""
    asked = exercise_of(exercise)
    assert asked.cases is not None, f"{exercise} has no cases"
    return asked.cases if asked.cases.judge else replace(asked.cases, judge=asked.judge)


def exercise_of(name: str) -> Exercise:
    """Return an exercise by its full name, such as "broadcast.pipelined"."""
    lab, _, function = name.partition(".")
    return importlib.import_module(f"lessons.{lab}").check.by_name[function]
