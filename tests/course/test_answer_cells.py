"""A cell of `%%answer` is read as IPython reads it, by the notebook and by the grader alike."""

import pytest

from labkit.course import answers
from labkit.course.syntax import answer_cell, refused_answer

CODE = "def place(rank, gpus_per_node):\n    return divmod(rank, gpus_per_node)\n"
CELL = f"%%answer start.place\n{CODE}"
READ = {
    "plain": CELL,
    "a blank line before": f"\n{CELL}",
    "blank lines with spaces before": f" \t\n\n   \r\n{CELL}",
    "a comment behind": CELL.replace("place\n", "place  # done: 1 point\n", 1),
    "spaces around the name": CELL.replace(" start.place", "   start.place  "),
    "indented as a whole": "".join(f"    {line}" for line in CELL.splitlines(keepends=True)),
    "prompts of Python": "".join(f"{'... ' if line[0] == ' ' else '>>> '}{line}" for line in CELL.splitlines(True)),
    "prompts of IPython": f"In [12]: {CELL}".replace("\n    ", "\n   ...:     "),
    "lines of Windows": CELL.replace("\n", "\r\n"),
    "timed": f"%%time\n{CELL}",
    "captured, with a blank line": f"%%capture printed\n\n{CELL}",
    "timed and captured": f"%%capture\n%%time\n{CELL}",
}
REFUSED = {
    "a comment before": f"# mine\n{CELL}",
    "code before": f"import math\n{CELL}",
    "commented out": f"# {CELL}",
    "a line's magic": CELL[1:],
    "a space within": CELL.replace("%%", "%% "),
    "another's name": CELL.replace("answer", "Answers"),
    "a mark of byte order": f"\ufeff{CELL}",
    "below a shell's": f"%%bash\n{CELL}",
}


@pytest.mark.parametrize("source", READ.values(), ids=READ)
def test_what_ipython_runs_is_read(source, shell, monkeypatch):
    taken = []
    monkeypatch.setattr(answers, "save", lambda name, text: taken.append((name, text)) or "saved")
    assert shell.run_cell(source).success and refused_answer(source) == ""
    taken += [answer_cell(source)]
    assert [(name, text.replace("\r\n", "\n").strip()) for name, text in taken] == [("start.place", CODE.strip())] * 2


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED)
def test_what_ipython_refuses_is_no_answer_and_its_line_is_told(source, shell, monkeypatch):
    monkeypatch.setattr(answers, "save", lambda *_: pytest.fail("it was saved"))
    shell.run_cell(source)
    assert answer_cell(source) is None
    assert "start.place" in refused_answer(source)


@pytest.mark.parametrize("source", ["", "\n", "x = 1", "print(answer)", "# the answer is 42", "100 % answers"])
def test_other_cells_are_neither(source):
    assert answer_cell(source) is None and (refused_answer(source) == "" or "%" in source)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["%", "% ", ">>> ", "'''", "%%time\n", " \n", "\n", "#", "..."])
def test_no_text_takes_long(piece):
    for begin in ("", "%%answer a.b\n", "%%capture\n>>> %%answer "):
        answer_cell(begin + piece * 300_000)
        refused_answer(begin + piece * 300_000)
