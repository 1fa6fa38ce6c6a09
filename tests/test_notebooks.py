"""Every notebook keeps every rule, and every rule catches a notebook that breaks it."""

import re
from itertools import combinations

import nbformat
import notebook_rules
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_rules import COURSE, MOST_PICTURE_BYTES, PARAMETERS, ROOT, RULES, SHORT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CHARTS, EXPLORERS = notebook_rules.CHARTS or {"chart"}, notebook_rules.EXPLORERS or {"explore"}


def test_there_are_notebooks():
    assert NOTEBOOKS, "no notebooks in notebooks/"
    assert notebook_rules.CHARTS, "no charts in notebooks/lessons/*/charts.py"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_every_rule(path):
    broken = {name: list(rule(nbformat.read(path, as_version=4))) for name, rule in RULES.items()}
    assert {name: problems for name, problems in broken.items() if problems} == {}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_stored_chart_draws_a_panel_twice(path):
    cells = notebook_rules.code(nbformat.read(path, as_version=4))
    words = {cell.id: twins(chart) for cell in cells for chart in charts_in_words(cell)}
    assert {cell: panels for cell, panels in words.items() if panels} == {}


def charts_in_words(cell):
    metadata = [output.get("metadata", {}).get("image/png", {}) for output in cell.outputs]
    return [picture["alt"] for picture in metadata if "alt" in picture]


def twins(chart):
    """Return the panels that a chart names twice: of panels with one scale, not each has both axes' words."""
    named = chart.removeprefix("Chart. ").rpartition(". Source: ")[0].split("; ")
    panels = sorted(re.sub(r"[^,]* against ", " ", panel) for panel in named)
    return [one for one, other in combinations(panels, 2) if f"{other},".startswith(f"{one},")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_name_is_a_number_and_a_noun(path):
    assert re.fullmatch(r"\d\d_[a-z]+(_[a-z]+)*\.ipynb", path.name)


@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem < "15"], ids=lambda path: path.stem)
def test_a_lesson_of_this_workbook_is_not_short(path):
    assert notebook_rules.kind(nbformat.read(path, as_version=4)) == ""


def good():
    """Return a notebook that keeps every rule."""
    chart = f"lab.{min(CHARTS)}(table)"
    sources = ["from labkit import launch, predict\nfrom lessons import start as lab", "size = 'auto'"]
    sources += ["guess = predict('How long?', unit='s')", "run = launch(lab.Plan(size=size))", *[chart] * 5, "2 + 3"]
    sources += [
        "%%answer start.mine\nimport torch\n\ndef mine():\n    print(torch.ones(1))",
        "guess.compare(3)",
        "table",
        "table",
    ]
    notebook = new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    for number, source in enumerate(sources):
        notebook.cells += [new_markdown_cell(f"{'# ' * (not number)}A text"), new_code_cell(source)]
    notebook.cells[3].metadata["tags"] = [PARAMETERS]
    notebook.cells[19].outputs = [new_output("execute_result", {"text/plain": "5"}, execution_count=10)]
    return numbered(notebook)


def numbered(notebook):
    """Counts the code cells."""
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1):
        cell.execution_count = number
    return notebook


def stored(notebook, **output):
    """Stores another output in a cell."""
    notebook.cells[19].outputs = [new_output(**output)]


def compared_too_early(notebook):
    """Compare the prediction before it is asked for."""
    notebook.cells[5].source = f"guess.compare(3)\n{notebook.cells[5].source}"
    notebook.cells[23].source = "table"


def source(text, at=21):
    """Return a change that puts another source into one cell."""
    return lambda notebook: notebook.cells[at].update(source=text)


def around(text):
    """Return a text cell that belongs to the course around the lesson."""
    return new_markdown_cell(text, metadata={"tags": [COURSE]})


BROKEN = [
    ("length", lambda nb: nb.cells.pop() and [nb.cells.pop() for _ in range(8)]),
    ("length", lambda nb: nb.cells[0].metadata.update(tags=[SHORT])),
    ("length", lambda nb: [cell.metadata.update(tags=[COURSE]) for cell in nb.cells[2:]]),
    ("length", lambda nb: nb.cells.extend(new_markdown_cell("More") for _ in range(31))),
    ("length", lambda nb: nb.cells.extend(around("More") for _ in range(25))),
    ("figures", lambda nb: nb.cells[0].metadata.update(tags=[SHORT])),
    ("title", source("No mark", 0)),
    ("title", lambda nb: nb.cells.clear()),
    ("code_size", source("a = 1\n" * 13)),
    ("code_size", lambda nb: [cell.update(source="a = 1\n" * 5) for cell in nb.cells if cell.cell_type == "code"]),
    ("text_first", lambda nb: [nb.cells.insert(3, new_code_cell("a = 1")) for _ in range(4)]),
    ("text_size", source("word " * 111, 4)),
    ("boxes", source('<div class="alert alert-info"><b>Rule.</b> Look first.</div>', 4)),
    ("plain_python", source("!nvidia-smi")),
    ("plain_python", source("%matplotlib inline")),
    ("plain_python", source("%%bash\nls")),
    ("plain_python", source("files = !ls")),
    ("plain_python", source("%%answer start.mine\ndef mine(:")),
    ("imports", source("import torch")),
    ("imports", source("from matplotlib import pyplot")),
    ("imports", source("import subprocess")),
    ("imports", source("from labkit.engine import launch")),
    ("imports", source("from lessons.start.worker import main")),
    ("imports", source("def later():\n    import torch")),
    ("answer_names", source("mine = table", 25)),
    ("answer_names", source("torch.ones(1)", 25)),
    ("no_printing", source("print(1)")),
    ("no_printing", source("plt.show()")),
    ("no_printing", source("sys.path.append('..')")),
    ("last_expression", source("table\ntable")),
    ("parameters", lambda nb: nb.cells[3].metadata.update(tags=[])),
    ("parameters", lambda nb: nb.cells[5].metadata.update(tags=[PARAMETERS])),
    ("outputs", lambda nb: nb.cells[19].metadata.update(tags=["nbval-skip"])),
    ("outputs_are_results", lambda nb: stored(nb, output_type="error", ename="E", evalue="", traceback=[])),
    ("outputs_are_results", lambda nb: stored(nb, output_type="stream", name="stderr", text="warning")),
    (
        "outputs_are_results",
        lambda nb: stored(nb, output_type="display_data", data={"image/png": "A" * (MOST_PICTURE_BYTES + 1)}),
    ),
    ("outputs_are_results", lambda nb: stored(nb, output_type="stream", name="stdout", text="in /home/ann/labkit")),
    ("outputs_are_results", lambda nb: stored(nb, output_type="stream", name="stdout", text="<Axes at 0x7f12ab34cd>")),
    ("no_traces", lambda nb: nb.cells[5].update(execution_count=30)),
    ("no_traces", lambda nb: nb.cells[19].outputs[0].update(execution_count=3)),
    ("no_traces", lambda nb: nb.cells[5].metadata.update(collapsed=True)),
    ("no_traces", lambda nb: nb.metadata.update(language_info={"name": "python", "version": "3.11.7"})),
    ("no_traces", lambda nb: nb.metadata.update(papermill={"duration": 3})),
    ("no_traces", lambda nb: nb.metadata.pop("kernelspec")),
    ("figures", lambda nb: [nb.cells[at].update(source="table") for at in (9, 11)]),
    ("figures", lambda nb: [nb.cells[at].metadata.update(tags=[COURSE]) for at in (9, 11)]),
    ("chart_last", lambda nb: nb.cells[9].update(source=f"figure = {nb.cells[9].source}\nfigure")),
    ("figure_before_widget", source(f"lab.{min(EXPLORERS)}()", 5)),
    ("predict_first", source("prediction = 3", 5)),
    ("predict_first", source("run = launch_or_replay(lab.Plan(), 'recorded')", 5)),
    ("predict_first", source("predict('How long?')", 5)),
    ("predictions_come_back", source("table", 23)),
    ("predictions_come_back", lambda nb: compared_too_early(nb)),
    ("predictions_come_back", source("predict('How long?', unit='s')", 5)),
    ("predictions_come_back", source("guess = other = predict('How long?', unit='s')\npredict('Why?', unit='s')", 5)),
    ("valid", lambda nb: nb.cells[5].update(id="not valid!")),
]


@pytest.fixture
def some_names(monkeypatch):
    """Lets the rules be tried before any lab has charts and sliders."""
    monkeypatch.setattr(notebook_rules, "CHARTS", CHARTS)
    monkeypatch.setattr(notebook_rules, "EXPLORERS", EXPLORERS)


def test_a_good_notebook_keeps_every_rule(some_names):
    assert {name: list(rule(good())) for name, rule in RULES.items()} == {name: [] for name in RULES}


def test_a_good_short_notebook_keeps_every_rule(some_names):
    notebook = good()
    notebook.cells[0].metadata["tags"] = [SHORT]
    del notebook.cells[12:18]  # three of its five charts
    numbered(notebook).cells[13].outputs[0].execution_count = 7
    assert {name: list(rule(notebook)) for name, rule in RULES.items()} == {name: [] for name in RULES}


def test_what_stands_around_a_lesson_is_not_counted(some_names):
    notebook = good()
    notebook.cells += [new_markdown_cell("More") for _ in range(55 - len(notebook.cells))]
    notebook.cells += [around("What to know first"), around("Reading")]
    assert not list(RULES["length"](notebook))


@pytest.mark.parametrize(("name", "harm"), BROKEN, ids=[f"{at}-{name}" for at, (name, _) in enumerate(BROKEN)])
def test_a_broken_notebook_is_caught(some_names, name, harm):
    notebook = good()
    harm(notebook)
    assert list(RULES[name](notebook))


def test_every_rule_is_shown_to_catch_something():
    assert set(RULES) == {name for name, _ in BROKEN}
