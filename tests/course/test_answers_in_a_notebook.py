"""What a student sees below a cell: the next one can call an answer, and an error shows the student's own line."""

from __future__ import annotations

import re

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from notebook_rules import is_answer

from labkit.course import answers
from labkit.repository import chosen_notebooks

PLACE = "%%answer start.place\ndef place(rank, gpus_per_node):\n"
ANSWER = PLACE + "    return list(divmod(rank, gpus_per_node))"
SAVED = "`start.place`: saved (`start_place.py`)."
OURS = re.compile(r"site-packages|labkit/|lessons/|get_ipython|run_cell_magic|skipping hidden")

pytestmark = pytest.mark.usefixtures("answers_folder")


def seen(*sources: str) -> list[str]:
    """Return what a notebook shows below each cell: texts, values and tracebacks, without their colours."""
    cells = [new_code_cell(source) for source in ("import labkit\nfrom lessons import collectives, start", *sources)]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    NotebookClient(notebook, allow_errors=True, timeout=120).execute()
    assert not cells[0].outputs, cells[0].outputs
    return ["\n".join(map(_text, cell.outputs)) for cell in cells[1:]]


def _text(output) -> str:
    data = output.get("data", {})
    shown = data.get("text/markdown", data.get("text/plain", output.get("text", "")))
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.get("traceback", [shown])).strip())


def test_the_next_cell_calls_an_answer_and_a_later_one_its_next_version():
    better = ANSWER.replace("list(divmod(rank, gpus_per_node))", "[rank // gpus_per_node, rank % gpus_per_node, 'new']")
    assert seen(ANSWER, "place(9, 8)", better, "place(9, 8)") == [SAVED, "[1, 1]", SAVED, "[1, 1, 'new']"]


def test_a_skeleton_brings_nothing_into_the_notebook_and_keeps_the_function_before_it():
    skeleton = PLACE.replace("def", "import statistics\ndef") + "    ...\n    return [node, gpu]"
    open_step, name, saved, kept, result = seen(skeleton, "statistics", ANSWER, skeleton, "place(9, 8)")
    assert open_step.endswith("replace each `...` by your own steps (`start_place.py`).")
    assert name.endswith("NameError: name 'statistics' is not defined")
    assert (saved, result) == (SAVED, "[1, 1]") and "is kept" in kept


def test_a_cell_that_raises_shows_the_students_traceback_and_stays_saved(answers_folder):
    shown, call = seen(ANSWER + "\nplace(9, 0)", "place(9, 8)")
    saved, _, traceback = shown.partition("\n")
    assert saved == SAVED and "\nplace(9, 0)" in (answers_folder / "start_place.py").read_text()
    assert traceback.count("ZeroDivisionError") == 2, "its first line and its last: it is shown once"
    assert traceback.count("File ") == 2 and not OURS.search(traceback), traceback
    assert "start_place.py:3" in traceback and "----> 3 place(9, 0)" in traceback
    assert call == "[1, 1]"


def test_a_call_that_raises_names_the_line_of_the_answer():
    _, shown = seen(ANSWER, "place(9, 0)")
    assert "----> 1 place(9, 0)" in shown and "----> 2     return list(divmod" in shown and not OURS.search(shown)


def test_a_cell_that_is_no_python_shows_its_line_alone():
    _, shown = seen(ANSWER, PLACE + "    return rank +")
    where, code, caret, message = shown.splitlines()
    assert (where, code) == ('File "below %%answer start.place", line 2', "    return rank +")
    assert (caret.strip(), message) == ("^", "SyntaxError: invalid syntax")


SLIPS = {
    "%%answer start.place\ny = 1\nstart.Hello(gpus=99)": r"(?s).*saved.*\n----> 2 start.Hello\(gpus=99\)\nNotEnough.*",
    "%%answer start.place\nz = 1\n\nstart.Hello(gpus=99)": r"(?s).*saved.*\n----> 3 start.Hello\(gpus=99\)\nNotEno.*",
    "x = 1\nstart.Hello(gpus=99)": r"----> 2 start.Hello\(gpus=99\)\nNotEnoughGpus: gpus=99: this node .*",
    'start.Hello.sized("smal")': "----> 1 .*\nPlanError: size='smal' is not known; it is one of auto, small, .*",
    **{
        f'collectives.{way}("plce")': "----> 1 .*\nUnknownExercise: 'plce' is no exercise; there are bus_bandwidth, .*"
        for way in ("check", "hint", "solution", "attempts")
    },
    "%%answer start.plce\nx = 1": "UnknownExercise: %%answer start.plce: .* did you mean %%answer start.place.*",
}


def test_a_warning_of_the_syntax_is_shown_once():
    (shown,) = seen(ANSWER.replace("    return", "    if rank is 5:\n        return []\n    return"))
    assert shown.count("SyntaxWarning") == 1 and "start_place.py:2" in shown


def test_a_slip_ends_in_one_sentence_below_the_students_line():
    for wanted, shown in zip(SLIPS.values(), seen(*SLIPS), strict=True):
        assert re.fullmatch(wanted, shown), shown


def test_an_answer_that_needs_torch_is_defined_where_the_kernel_has_it():
    answer = ANSWER.replace("def", "import torch\ndef")
    without = "import sys, types\nassert 'torch' not in sys.modules\nsys.modules['torch'] = None"
    having = "sys.modules['torch'] = types.ModuleType('torch')"
    in_workers = f"{SAVED}\nThe function is defined in the workers only: this kernel has no torch."
    assert seen(without, answer, having, answer, "place(9, 8)") == ["", in_workers, "", SAVED, "[1, 1]"]


def test_every_answer_can_be_defined_in_its_notebook(shell):
    cells = [cell.source for path in chosen_notebooks() for cell in nbformat.read(path, 4).cells if is_answer(cell)]
    assert len(cells) >= len(answers.exercises())
    for cell in cells:
        functions = answers.functions_of(cell.split()[1])
        assert shell.run_cell(re.sub(r"(?m)^( *)\.\.\.", r"\1pass", cell)).success
        assert all(callable(shell.user_ns[name]) for name in functions)


def test_an_answer_is_run_as_a_worker_imports_it(shell):
    """An annotation is evaluated (from Python 3.14 on, when it is read): a worker would not know the name, either."""
    annotated = ANSWER.replace("place(rank,", "place(rank: Unknown,") + "\nplace.__annotations__"
    assert isinstance(shell.run_cell(annotated).error_in_exec, NameError)
    assert shell.run_cell(annotated.replace("def", "from __future__ import annotations\ndef")).success
