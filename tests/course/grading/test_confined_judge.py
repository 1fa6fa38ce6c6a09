"""A student's answer, tried in a real confined process and judged outside of it: right, wrong, and hostile ones."""

import importlib

import pytest

from labkit.course.exercises import cases_of, exercise_of
from labkit.course.grading import confine
from labkit.course.grading import confined_judge as judged_module
from labkit.course.grading.confine import Limits
from labkit.course.grading.confined_judge import files_of_modules, judge
from labkit.course.source import code_of
from labkit.course.verdict import HUNG, NOT_JUDGED, RAISED, RIGHT, UNANSWERED, WRONG

NAME = "accounting.devices_needed"
RIGHT_CODE = "from math import ceil\ndef devices_needed(gib, gb):\n    return ceil(gib * 2**30 / (gb * 10**9))\n"
pytestmark = pytest.mark.usefixtures("confined")


def judged(code: str, name: str = NAME, **options):
    return judge(exercise_of(name), name, code, "ada", **{"limits": Limits(20.0)} | options)


def reference(name: str) -> str:
    lab, _, function = name.partition(".")
    names = exercise_of(name).solution or (f"lessons.{lab}.solutions.{function}",)
    return "\n\n".join(map(code_of, names))


@pytest.mark.parametrize(
    "name",
    [
        "benchmarking.timed",
        pytest.param("precision_memory.peak_bytes", marks=pytest.mark.slow),  # its judge launches, to measure the peaks
    ],
)
def test_what_is_measured_of_a_reference_solution_is_right(name, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path))
    verdict = judged(reference(name), name)
    assert verdict.outcome == RIGHT, verdict


@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [
        (NAME, RIGHT_CODE.replace("ceil", "floor"), "rounded_down"),
        (NAME, "def devices_needed(gib, gb):\n    return {1}", "form"),
        ("benchmarking.timed", "def timed(step, synchronize, clock):\n    return 1.0, 0.0, 5", "own_clock"),
    ],
)
def test_wrong_answers_are_told_in_the_exercises_own_words(name, code, kind):
    verdict = judged(code, name)
    assert verdict.outcome == WRONG and kind in verdict.faults, verdict


@pytest.mark.parametrize(
    ("code", "outcome", "word"),
    [
        ("def devices_needed(gib, gb):\n    return (\n", NOT_JUDGED, "line 2"),
        ("def devices_needed(gib, gb):\n    ...\n    return 0", UNANSWERED, "line 2"),
        ("def devices_needed(gib, gb):\n    return 1 / 0", RAISED, "ZeroDivisionError in line 2"),
        ("def devices(gib, gb):\n    return 1", RAISED, "defines no function `devices_needed`"),
        ("import sys\ndef devices_needed(gib, gb):\n    sys.exit(0)", RAISED, "SystemExit"),
        ("import os\ndef devices_needed(gib, gb):\n    os._exit(3)", RAISED, "ended its process (exit status 3)"),
        ("def devices_needed(gib, gb):\n    return devices_needed(gib, gb)", RAISED, "RecursionError"),
        ("def devices_needed(gib, gb):\n    return [0] * 10**10", RAISED, "4096 MiB"),
        ("def devices_needed(gib, gb):\n    return float('1e400')", WRONG, "devices"),
    ],
)
def test_answers_that_end_badly_are_told_in_words(code, outcome, word):
    verdict = judged(code)
    assert (verdict.outcome, word in str(verdict)) == (outcome, True), str(verdict)[:600]


@pytest.mark.parametrize(
    "code",
    [
        "x = " + "+".join("1" * 90_000),
        "if a: pass\n" + "elif a: pass\n" * 15_000,
        "x = " + "(" * 90_000 + ")" * 90_000,
        "x = '\ud800'",
        "x = 1\0",
    ],
    ids=["sum", "elifs", "brackets", "half a pair", "null"],
)
def test_code_that_python_does_not_read_is_told_in_a_sentence(code):
    verdict = judged(code)
    assert verdict.outcome == NOT_JUDGED and verdict.faults["syntax"], str(verdict)[:600]


@pytest.mark.parametrize("most", [judged_module.MOST_CODE, 10**7])
def test_code_that_crashes_python_is_told_in_a_sentence(most, monkeypatch):
    monkeypatch.setattr(judged_module, "MOST_CODE", most)
    verdict = judged("x = [1 " + "for a in b " * 100_000 + "]")
    assert verdict.outcome == NOT_JUDGED and verdict.faults["syntax"], str(verdict)[:600]


def test_code_that_python_takes_too_much_time_or_memory_to_read_is_told_in_a_sentence(monkeypatch):
    monkeypatch.setattr(judged_module, "MOST_CODE", 10**7)
    for limits in (Limits(1), Limits(30, memory_mib=256)):
        verdict = judged("x = [" + "[a, b]," * 700_000 + "]", limits=limits)
        assert verdict.outcome == NOT_JUDGED and "too" in verdict.faults["syntax"], str(verdict)[:600]


def test_deep_code_that_python_reads_is_judged():
    assert judged(f"{RIGHT_CODE}x = {'-' * 2000}1\n").outcome == RIGHT


@pytest.mark.parametrize(
    ("code", "what"),
    [("def devices_needed(gib, gb):\n    while True: pass", "`devices_needed("), ("while True: pass", "the cell")],
)
def test_an_endless_loop_is_ended(code, what):
    verdict = judged(code, limits=Limits(2.0))
    assert verdict.outcome == HUNG and verdict.faults["hung"].startswith(what)
    assert "did not come back within 2 s" in verdict.faults["hung"]


def test_a_fault_that_quotes_a_long_result_is_cut():
    code = "def balanced_split(*_):\n    return [1] * 5_000\n"
    verdict = judged(code, "pipeline.balanced_split")
    assert verdict.outcome == WRONG and max(map(len, verdict.faults.values())) <= judged_module.MOST_FAULT, verdict


def test_what_an_answer_prints_is_kept_and_no_result():
    verdict = judged(RIGHT_CODE.replace("    return", '    print("thinking", \'{"row": 1}\')\n    return'))
    assert verdict.outcome == RIGHT and "thinking" in verdict.printed


@pytest.mark.parametrize(
    "code",
    [
        "from lessons.accounting.solutions import devices_needed",
        "import labkit.course.grading.confined_judge\ndef devices_needed(gib, gb):\n    return 1",
        f"""
import glob, importlib.util, os, sys
def devices_needed(gib, gb):
    for place in (*sys.path, os.getcwd(), '/tmp', os.path.dirname(sys.prefix), {str(confine.REPOSITORY)!r}):
        for file in glob.glob(place + '/notebooks/lessons/**/solutions.py', recursive=True):
            spec = importlib.util.spec_from_file_location('found', file)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            if hasattr(module, 'devices_needed'):
                return module.devices_needed(gib, gb)
    return -1
""",
    ],
)
def test_the_reference_solution_is_out_of_reach(code):
    verdict = judged(code)
    assert verdict.outcome in (RAISED, WRONG), verdict
    if verdict.outcome == RAISED:
        assert "out of reach" in str(verdict)


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("from labkit.theory.transformer import activations", True),
        ("import lessons", True),
        ("from labkit import theory", True),
        ("from math import ciel", False),
        ("import nump", False),
        ("from numpy import lessons", False),
    ],
)
def test_what_is_out_of_reach_is_told_of_the_workbooks_modules_alone(line, ours):
    verdict = judged(f"{line}\n{RIGHT_CODE}")
    assert verdict.outcome == RAISED and ("out of reach" in str(verdict)) == ours, str(verdict)


@pytest.mark.parametrize(
    "code",
    [
        # It writes lines of its own where results go, and ends before the checker can write any.
        "import json, os, sys\nos.write(int(sys.argv[1]), (json.dumps({'row': {'given': '1', 'again': '1'}}) + '\\n')"
        ".encode() * 99)\nos._exit(0)",
        "import os, sys\nos.write(int(sys.argv[1]), b'[' * 10**6 + b'\\n{\"row\": 5}\\n')\nos._exit(0)",
        # It changes the code around it.
        'import json\njson.dumps = lambda *a, **k: \'{"row": {"given": "true", "again": "true"}}\'\n'
        "def devices_needed(gib, gb):\n    return 1",
        "class Always:\n    def tolist(self): return True\ndef devices_needed(gib, gb):\n    return Always()",
    ],
)
def test_a_checker_is_not_changed_from_inside(code):
    assert judged(code).outcome in (WRONG, RAISED)


@pytest.mark.parametrize(
    "row",
    [
        '{"given": "[1.0, 0.0, 10]", "took": [1.0, 1.0], "reads": 20, "busy_starts": 0, "busy_stops": 0, "failed": 0}',
        '{"given": "[1.0, 0.0, 10]", "calls": "sss' + "wcswc" * 10 + '"}',
        '{"given": "[1.0, 0.0, 10]", "calls": "' + "x" * 30 + '"}',
    ],
)
def test_what_an_answer_says_it_measured_is_not_believed(row):
    line = f'{{"row": {row}}}\n'.encode()
    code = f"import os, sys\nos.write(int(sys.argv[1]), {line!r} * 6)\nos._exit(0)\n"
    assert judged(code, "benchmarking.timed").outcome == WRONG


BROADCAST = """
import json, os, sys
from pathlib import Path
for elements, gpus, chunks, _ in json.loads(Path(__file__).with_name("request.json").read_text())["inputs"]:
    size, spans, calls = elements // chunks, [], {}
    def copy(origin, target, first, after):
        what = {"lane": f"{origin} → {target}", "origin": origin, "target": target, "first": first, "elements": size}
        spans.append(what | {"index": len(spans), "after": after, "waited": []})
    for first in range(0, elements, size):
        pull = len(spans)
        copy("host", "0", first, [])
        for gpu in range(1, gpus):
            copy("0", str(gpu), first, [pull])
    fewer = next(count for count in range(chunks - 1, 0, -1) if chunks % count == 0)
    for count in (chunks, fewer):
        pulls = [["host → 0", ["0", at, elements // count], ["host", at, elements // count], [], []]
                 for at in range(0, elements, elements // count)]
        calls[str(count)] = {"copies": pulls, "over": [], "spoilt": [], "claimed": None}
    measured = {"status": "ok", "seconds": 1e-3, "in_flight": 0, "source_in_use": False}
    row = measured | {"warm_up": False, "fewer_chunks": fewer, "fewer_pulls": fewer}
    line = {"row": {"rows": [row], "spans": spans, "calls": CALLS}}
    os.write(int(sys.argv[1]), (json.dumps(line) + "\\n").encode())
os._exit(0)
"""


@pytest.mark.parametrize("calls", ["calls", pytest.param("None", marks=pytest.mark.slow)])
def test_what_a_broadcast_says_it_copied_is_not_believed(calls):
    """Its rows and spans are those of a right answer; its calls leave out the forwards, or are none."""
    verdict = judged(BROADCAST.replace("CALLS", calls), "broadcast.pipelined")
    assert verdict.outcome == WRONG and ("wrong_copy" if calls == "calls" else "form") in verdict.faults, verdict


@pytest.mark.slow
def test_a_broadcast_that_has_waited_may_change_the_source():
    code = f"{reference('broadcast.pipelined')}\n    lanes.wait()\n    source.zero_()\n"
    assert judged(code, "broadcast.pipelined").outcome == RIGHT


@pytest.mark.slow
def test_a_broadcast_that_changes_the_source_before_is_wrong():
    verdict = judged(f"{reference('broadcast.pipelined')}\n    source.zero_()\n", "broadcast.pipelined")
    assert verdict.outcome == WRONG and [*verdict.faults] == ["source_reused"], verdict


def test_only_what_an_answer_may_import_is_packed():
    files = files_of_modules(("labkit.engine.called_function", *cases_of("precision_memory.peak_bytes").may_import))
    with_code = [name for name, text in files.items() if text]
    assert sorted(with_code) == ["lib/labkit/engine/called_function.py", "lib/labkit/theory/transformer.py"]
    assert "def activations" in files["lib/labkit/theory/transformer.py"]
    assert "def forward_flop" not in files["lib/labkit/theory/transformer.py"]


@pytest.mark.parametrize("lab", ["broadcast", "benchmarking"])
def test_what_tries_an_answer_brings_no_reference_solution(lab):
    for name in importlib.import_module(f"lessons.{lab}").check.names:
        code = "\n".join(files_of_modules(cases_of(f"{lab}.{name}").may_import).values())
        assert f"def {name}(" not in code


def test_results_that_are_too_large_are_called_so():
    verdict = judged("def devices_needed(gib, gb):\n    return 'x' * 2**21\n", limits=Limits(20.0, output_mib=1))
    assert verdict.outcome == RAISED
    assert "gave too much: all results together may take 1 MiB as text" in verdict.faults["ended"]
