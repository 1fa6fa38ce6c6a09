"""One answer of one student: tried in a confined process with the student's own cases, judged here, in words."""

from __future__ import annotations

import ast
import functools
import json
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.course import answers
from labkit.course.answer_launch import GLOO_MISMATCH, MISMATCH, call_text, returned_values
from labkit.course.exercises import Cases, Exercise, cases_of, why_hung
from labkit.course.grading import confine
from labkit.course.grading.confine import ConfinedResult, Limits
from labkit.course.source import code_of, locate
from labkit.course.verdict import HUNG, NOT_JUDGED, RAISED, UNANSWERED, WRONG, Verdict

ALWAYS_PACKED = ("labkit.engine.called_function", "labkit.course.syntax")  # what reads the answer, and calls it
MOST_CODE = 200_000  # characters of an answer
MOST_PRINTED, MOST_DETAIL, MOST_FAULT = 2_000, 6_000, 2_000  # characters that a verdict shows
OUT_OF_REACH = "labkit is out of reach while an answer is judged, and so are its reference solutions"
OUR_IMPORT_ERROR = re.compile(r"(No module named|cannot import name '[^']*' from) '(labkit|lessons)\b")
_JUDGING = threading.Lock()  # answers may be tried side by side, but judges may launch and keep what they measured


def judge(
    exercise: Exercise, name: str, code: str, student: str, *, limits: Limits | None = None, secret: str = ""
) -> Verdict:
    """Return the verdict on a student's answer to `name`, such as "pipeline.balanced_split".

    Nothing of the answer runs in this process, and Python reads it in the confined one first: some code crashes
    it, or takes it more time or memory than there is.
    """
    function, limits = exercise.name, limits or Limits()
    if len(code) > MOST_CODE:
        sentence = f"it has {len(code):,} characters; an answer may have {MOST_CODE:,}"
        return Verdict(function, NOT_JUDGED, {"syntax": sentence})
    cases = cases_of(name)
    inputs = cases.arguments_for(name, student, secret)
    limits = replace(limits, seconds=limits.seconds + cases.start_s)
    result = _run_answer(name, code, inputs, cases, limits)
    if (verdict := _syntax_verdict(function, result, limits)) is not None:
        return verdict
    printed = result.printed[:MOST_PRINTED]
    try:
        given = _values_or_verdict(function, code, inputs, cases, result, limits)
        if isinstance(given, Verdict):
            return replace(exercise.on_failure(given), printed=printed)
        more = []
        if cases.reference:
            if not cases.on_ranks:
                given = _measured_again(name, given, inputs, limits)
            more = [_reference_rows(name, json.dumps(inputs), limits)]
        assert cases.judge is not None, f"{name} has no judge"
        with _JUDGING:
            verdict = cases.judge(given, inputs, *more)
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError, AttributeError) as error:
        sentence = f"what it returns is of a form that cannot be judged ({type(error).__name__})"
        return Verdict(function, WRONG, {"form": sentence}, printed=printed)
    faults = {kind: f"{sentence:.{MOST_FAULT}}" for kind, sentence in verdict.faults.items()}  # they may quote a result
    return replace(verdict, faults=faults, printed=printed)


def _run_answer(
    name: str, code: str, inputs: list, cases: Cases, limits: Limits, is_reference: bool = False
) -> ConfinedResult:
    """Run an answer in a confined process."""
    file = answers.file_of(name).name
    request = {
        "file": file,
        "functions": answers.functions_of(name),
        "inputs": inputs,
        "driver": cases.driver,
        "on_ranks": cases.on_ranks,
    }
    script = {
        "attempt.py": Path(__file__).with_name("confined_attempt.py").read_text(encoding="utf-8"),
        "request.json": json.dumps(request),
    }
    holes = cases.reference if cases.on_ranks and not is_reference else ()
    modules = files_of_modules((*ALWAYS_PACKED, *cases.may_import), holes)
    return confine.run({file: code} | script | modules, "attempt.py", replace(limits, loopback=cases.on_ranks))


def _syntax_verdict(function: str, result: ConfinedResult, limits: Limits) -> Verdict | None:
    """Return the verdict on an answer that its process did not call, as the first line of its results tells."""
    first = next(iter(_lines(result.results.partition("\n")[0])), {})
    if "syntax" not in first:
        most = f"{limits.seconds:.0f} s and {limits.memory_mib} MiB"
        sentence = f"Python cannot read it within {most}: it is nested too deeply, or one of its lines is too long"
        return Verdict(function, NOT_JUDGED, {"syntax": sentence}, detail=result.printed[-MOST_PRINTED:])
    if first["syntax"]:
        return Verdict(function, NOT_JUDGED, {"syntax": f"it is not valid Python: {first['syntax']}"})
    if lines := first["open"]:
        numbers = f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}"
        return Verdict(function, UNANSWERED, {}, (f"it still holds a bare `...` in {numbers}",))
    return None


def files_of_modules(names: Iterable[str], holes: Sequence[str] = ()) -> dict[str, str]:
    """Return the files under lib/ that hold the named modules and functions of labkit, and nothing else of it.

    `holes` names functions and methods in them that lose their bodies.
    """
    files: dict[str, str] = {}
    for name in names:
        module, inside = locate(name)
        parts = module.split(".")
        for cut in range(1, len(parts)):
            files.setdefault(f"lib/{'/'.join(parts[:cut])}/__init__.py", "")
        file = f"lib/{'/'.join(parts)}.py"
        files[file] = "\n\n".join(filter(None, [files.get(file, "") if inside else "", code_of(name)]))
    for hole in holes:
        module, inside = locate(hole)
        file = f"lib/{module.replace('.', '/')}.py"
        files[file] = _without_body(files[file], inside)
    return files


def _without_body(code: str, inside: list[str]) -> str:
    """Return code in which one function, or the method of a class, does nothing but raise."""
    node: Any = ast.parse(code)
    for name in inside:
        (node,) = (each for each in node.body if getattr(each, "name", "") == name)
    lines, first = code.splitlines(), node.body[0]
    lines[first.lineno - 1 : node.end_lineno] = [f"{' ' * first.col_offset}raise NotImplementedError"]
    return "\n".join(lines) + "\n"


def _values_or_verdict(
    function: str, code: str, inputs: list, cases: Cases, result: ConfinedResult, limits: Limits
) -> Sequence[Any] | Verdict:
    """Return what the answer gave for each list of arguments, or the verdict where it did not give all of them."""
    lines = _lines(result.results)
    rows = [line["row"] for line in lines if isinstance(line.get("row"), list if cases.on_ranks else dict)][
        : len(inputs)
    ]
    raised = next((line for line in lines if "raised" in line), None)
    if result.took_more:
        sentence = f"its processes took more {result.took_more} together"
        return Verdict(function, RAISED, {"limits": sentence}, detail=result.printed[-MOST_PRINTED:])
    if raised is not None:
        detail = str(raised.get("traceback", ""))[:MOST_DETAIL]
        faults = {"raised": str(raised["raised"])[:MOST_PRINTED]}
        if OUR_IMPORT_ERROR.search(detail):
            faults["reference"] = OUT_OF_REACH
        if "MemoryError" in detail:
            faults["memory"] = f"it may take {limits.memory_mib} MiB"
        return Verdict(function, RAISED, faults, detail=detail)
    if len(rows) < len(inputs):
        call = call_text(function, inputs[len(rows)]) if not cases.driver else f"`{function}`"
        what = call if cases.on_ranks or any("loaded" in line for line in lines) else "the cell"
        if result.status is None:
            why = why_hung(max(arguments[0] for arguments in inputs) if cases.on_ranks else 1)
            sentence = f"{what} did not come back within {limits.seconds:.0f} s: {why}"
            return Verdict(function, HUNG, {"hung": sentence})
        if GLOO_MISMATCH in result.printed:
            return Verdict(function, RAISED, {"mismatch": MISMATCH})
        sentence = (
            f"{what} ended its process (exit status {result.status}): out of memory, killed, or an exit of its own"
        )
        if len(result.results.encode()) >= limits.output_mib * 2**20:  # the system lets no file grow beyond
            sentence = f"{what} gave too much: all results together may take {limits.output_mib} MiB as text"
        return Verdict(function, RAISED, {"ended": sentence}, detail=result.printed[-MOST_PRINTED:])
    return rows if cases.driver else returned_values(function, code.encode(errors="replace"), inputs, rows, "")


def _lines(results: str) -> list[dict[str, Any]]:
    """Return the lines of results that can be read: the answer may have written anything there."""
    readable = []
    for line in results.splitlines():
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(content, dict):
            readable.append(content)
    return readable


@functools.lru_cache(maxsize=256)
def _reference_rows(name: str, inputs: str, limits: Limits) -> list[Any]:
    """Return what the reference solution gives in the same kind of process."""
    cases = cases_of(name)
    code = "\n\n\n".join(map(code_of, cases.reference)) if not cases.on_ranks else _imported(name, cases.reference)
    result, rows = _rows(name, code, json.loads(inputs), limits)
    if rows is None:
        raise RuntimeError(f"the reference solution of {name} did not end well:\n{result.printed}\n{result.results}")
    return rows


def _imported(name: str, references: Sequence[str]) -> str:
    """Return the code of an answer whose functions are functions or methods of a module that is packed."""
    located = [locate(reference) for reference in references]
    lines = [f"import {module}" for module in dict.fromkeys(module for module, _ in located)]
    for function, (module, inside) in zip(answers.functions_of(name), located, strict=True):
        lines.append(f"{function} = {'.'.join([module, *inside])}")
    return "\n".join(lines) + "\n"


def _measured_again(name: str, given: Sequence[Any], inputs: list, limits: Limits) -> list[Any]:
    """Return what is measured of an answer's calls where the answer is not: it may have written any measurement."""
    code = f"def {name.partition('.')[2]}(*_):\n    raise ValueError\n"  # is called where there are no calls
    _, rows = _rows(name, code, [[*each, row["calls"]] for each, row in zip(inputs, given, strict=True)], limits)
    if rows is None:
        raise ValueError("the calls cannot be made again")
    return rows


def _rows(name: str, code: str, inputs: list, limits: Limits) -> tuple[ConfinedResult, list[Any] | None]:
    """Return how trusted code ended in a process of its own, and what it gave; None where that is not all."""
    result = _run_answer(name, code, inputs, cases_of(name), limits, is_reference=True)
    rows = [line["row"] for line in _lines(result.results) if "row" in line]
    return result, rows if len(rows) == len(inputs) else None
