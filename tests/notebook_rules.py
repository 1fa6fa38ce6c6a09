"""The rules for notebooks: each is a function from a notebook to what is wrong with it."""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median

import nbformat

ROOT = Path(__file__).parents[1]
SHORT = "short"  # the tag of the title of a lesson that has one idea
COURSE = "course"  # the tag of cells around the lesson: what to know first, the map, predictions come back, reading
CELLS = {"": range(25, 56), SHORT: range(8, 25)}
MOST_COURSE_CELLS = 24
FIGURES = {"": range(4, 9), SHORT: range(1, 4)}
# A boxed rule brings its colours: in the letters of JupyterLab's dark theme it has a contrast of 2.7.
BOX = '<div class="alert alert-info" style="color: #00363a; background-color: #d9f3f7">'
MOST_CODE_IN_A_ROW = 3
MOST_LINES, MEDIAN_LINES, MOST_WORDS = 12, 4, 110
PARAMETERS, ANSWER, PICTURE = "parameters", "%%answer", "image/png"
MOST_PICTURE_BYTES = 115_000  # in base64
LAUNCHES = {"launch", "launch_or_replay"}
METADATA = {"kernelspec": {"name", "display_name", "language"}, "language_info": {"name"}}
# What one machine or one day puts into an output: addresses, absolute paths, clock times.
MACHINE = re.compile(r"\b0x[0-9a-f]{6,}|(?<![\w.])/(?:home|root|tmp|work|Users)/|\b\d\d:\d\d:\d\d\b")


def code(notebook) -> list:
    """Return the code cells."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell) -> set[str]:
    """Return a cell's tags."""
    return set(cell.metadata.get("tags", []))


def is_answer(cell) -> bool:
    """Whether the cell is the student's own work, saved as a file that workers import."""
    return cell.source.startswith(ANSWER)


def body(cell) -> str:
    """Return a code cell's Python: all of it, but the workbook's own magic."""
    return cell.source.partition("\n")[2] if is_answer(cell) else cell.source


def trees(notebook) -> Iterator[tuple[object, ast.Module]]:
    """Return each code cell that Python itself can read, but the student's own, with its syntax tree."""
    for cell in code(notebook):
        with suppress(SyntaxError):  # rule_plain_python reports those
            yield cell, ast.parse(cell.source)


def called(node) -> str:
    """Return the last name of a called function ("chart" of `lab.chart(...)`), or ""."""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", ""))


def shown(tree: ast.Module) -> str:
    """Return the name of the function whose result the cell shows: the call that is its last expression."""
    last = tree.body[-1] if tree.body else None
    return called(last.value) if isinstance(last, ast.Expr) else ""


def functions(pattern: str, returns: str = "") -> set[str]:
    """Return the names of the public functions in the modules that fit a pattern, and return such a type."""
    modules = [
        ast.parse(path.read_text(encoding="utf-8"))
        for room in ("labkit", "notebooks/lessons")
        for path in (ROOT / room).glob(pattern)
    ]
    found = [node for module in modules for node in module.body if isinstance(node, ast.FunctionDef)]
    names = {node.name for node in found if not returns or (node.returns and ast.unparse(node.returns) == returns)}
    return {name for name in names if not name.startswith("_")}


CHARTS = functions("**/charts.py", "Figure") | functions("**/charts/*.py", "Figure")
EXPLORERS = functions("**/explorer.py")


def kind(notebook) -> str:
    """Return SHORT where the title says so, else ""."""
    return SHORT if any(SHORT in tags(cell) for cell in notebook.cells[:1]) else ""


def lesson(notebook) -> list:
    """Return the cells of the lesson itself, without those around it, which follow one pattern in all notebooks."""
    return [cell for cell in notebook.cells if COURSE not in tags(cell)]


def rule_length(notebook):
    """A lesson takes 20 to 30 minutes to read, a short one at most 10; what stands around it is short, too."""
    allowed = CELLS[kind(notebook)]
    count = len(lesson(notebook))
    if count not in allowed:
        yield f"{count} cells, not {allowed[0]} to {allowed[-1]}"
    if (around := len(notebook.cells) - count) > MOST_COURSE_CELLS:
        yield f"{around} cells tagged {COURSE}, more than {MOST_COURSE_CELLS}"


def rule_title(notebook):
    """The first cell is its title."""
    if [cell.cell_type for cell in notebook.cells[:1]] != ["markdown"] or notebook.cells[0].source[:2] != "# ":
        yield "the first cell is not a title (# …)"


def rule_code_size(notebook):
    """Cells are short, most of them very short."""
    lines = [len(cell.source.splitlines()) for cell in code(notebook)]
    for cell, count in zip(code(notebook), lines, strict=True):
        if count > MOST_LINES:
            yield f"{count} lines of code, more than {MOST_LINES}: {cell.source[:50]!r}"
    if lines and median(lines) > MEDIAN_LINES:
        yield f"a median of {median(lines)} lines of code, more than {MEDIAN_LINES}"


def rule_text_first(notebook):
    """A text cell comes before code: before a launch with its chart and verdict, or before fewer cells."""
    in_a_row = MOST_CODE_IN_A_ROW
    for cell in notebook.cells:
        in_a_row = in_a_row + 1 if cell.cell_type == "code" else 0
        if in_a_row > MOST_CODE_IN_A_ROW:
            yield f"code that follows no text: {cell.source[:50]!r}"


def rule_text_size(notebook):
    """A text cell holds one idea."""
    for cell in notebook.cells:
        shown = re.sub(r"<[a-z/][^>]*>", " ", cell.source)  # without tags of HTML
        words = sum(any(map(str.isalnum, word)) for word in shown.split())
        if cell.cell_type == "markdown" and words > MOST_WORDS:
            yield f"{words} words in a text, more than {MOST_WORDS}: {cell.source[:50]!r}"


def rule_plain_python(notebook):
    """No shell, and no magic but the workbook's own."""
    for cell in code(notebook):
        try:
            ast.parse(body(cell))
        except SyntaxError:
            yield f"not plain Python (a magic, a shell command?): {cell.source[:50]!r}"


def rule_imports(notebook):
    """A notebook imports labkit, its labs and pandas."""
    for _, tree in trees(notebook):
        for node in ast.walk(tree):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            yield from (f"imports {name}" for name in names if not _importable(name))


def _importable(name: str) -> bool:
    parts = name.split(".")
    return parts in (["labkit"], ["lessons"], ["pandas"]) or (parts[0] == "lessons" and len(parts) == 2)


def rule_answer_names(notebook):
    """An answer runs in the notebook: no cell of the lesson uses a name that the answer may define or import."""
    statements = [node for cell in code(notebook) if is_answer(cell) for node in _parsed(body(cell))]
    imports = [node for node in statements if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.name for node in statements if isinstance(node, ast.FunctionDef)}
    names |= {alias.asname or alias.name for node in imports for alias in node.names}
    for _, tree in trees(notebook):
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        yield from (f"an answer defines {name}, and another cell uses it" for name in sorted(names & used))


def _parsed(text: str) -> list[ast.stmt]:
    with suppress(SyntaxError):  # rule_plain_python reports those
        return ast.parse(text).body
    return []


def rule_no_printing(notebook):
    """A cell shows its last expression: nothing is printed, displayed or drawn on the side."""
    for _, tree in trees(notebook):
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in {
                "print",
                "plt",
                "display",
                "sys",
                "exec",
                "eval",
                "__import__",
            }:
                yield f"uses {node.id}"


def rule_last_expression(notebook):
    """A value that is not a cell's last expression is shown to nobody."""
    for cell, tree in trees(notebook):
        if any(isinstance(statement, ast.Expr) for statement in tree.body[:-1]):
            yield f"an expression before the last is not shown: {cell.source[:50]!r}"


def rule_parameters(notebook):
    """Papermill finds one cell to set."""
    count = sum(PARAMETERS in tags(cell) for cell in notebook.cells)
    if count != 1:
        yield f"{count} cells tagged {PARAMETERS}, not 1"


def rule_outputs(notebook):
    """Every cell keeps what it showed on recorded runs, and nbval compares it."""
    for cell in code(notebook):
        if any(tag.startswith("nbval") for tag in tags(cell)):
            yield f"nbval does not run or compare it: {cell.source[:50]!r}"


def rule_outputs_are_results(notebook):
    """Stored outputs are what any machine gives: no errors, no stderr, no widgets, nothing of one machine or day."""
    for cell in code(notebook):
        for output in cell.outputs:
            kinds = {kind for kind in output.get("data", {}) if "widget" in kind}
            if output.output_type == "error" or output.get("name") == "stderr" or kinds:
                yield f"stores {', '.join(kinds) or output.output_type}: {cell.source[:50]!r}"
            if found := MACHINE.search(_text(output)):
                yield f"stores what is this machine's ({found.group()}): {cell.source[:50]!r}"
            if (size := len(output.get("data", {}).get(PICTURE, ""))) > MOST_PICTURE_BYTES:
                yield f"stores a picture of {size} bytes: {cell.source[:50]!r}"


def _text(output) -> str:
    shown = [value for kind, value in output.get("data", {}).items() if kind != PICTURE]
    return " ".join(map(str, [output.get("text", ""), *shown]))


def rule_boxes(notebook):
    """A boxed rule can be read under every theme."""
    for cell in notebook.cells:
        if 'class="alert' in cell.source.replace(BOX, ""):
            yield f"a box without its colours, {BOX}: {cell.source[-70:]!r}"


def rule_no_traces(notebook):
    """A notebook tells nothing of who ran it and when: no times, no versions, no editor's notes.

    A cell counts its place among the code cells: nbval compares only what was run.
    """
    for number, cell in enumerate(code(notebook), 1):
        counts = [cell.execution_count, *(o.execution_count for o in cell.outputs if "execution_count" in o)]
        if any(count != number for count in counts):
            yield f"keeps another execution count than its place: {cell.source[:50]!r}"
    for cell in notebook.cells:
        if extra := set(cell.metadata) - {"tags"}:
            yield f"cell metadata {sorted(extra)}: {cell.source[:50]!r}"
    for name, fields in notebook.metadata.items():
        if extra := set(fields) - METADATA[name] if name in METADATA else {name}:
            yield f"notebook metadata {name}: {sorted(extra)}"
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "the kernel is not python3"


def rule_figures(notebook):
    """A lesson has four to eight charts, one a cell; a short one has one to three."""
    allowed = FIGURES[kind(notebook)]
    charts = [shown(tree) for cell, tree in trees(notebook) if shown(tree) in CHARTS and COURSE not in tags(cell)]
    if len(charts) not in allowed:
        names = ", ".join(charts) or "none"
        yield f"{len(charts)} cells that end in a chart ({names}), not {allowed[0]} to {allowed[-1]}"


def rule_chart_last(notebook):
    """A chart is a cell's last expression, never assigned or passed on."""
    for cell, tree in trees(notebook):
        charts = [called(node) for node in ast.walk(tree) if called(node) in CHARTS]
        if charts and charts != [shown(tree)]:
            yield f"a chart that is not the cell's one last expression: {cell.source[:50]!r}"


def rule_figure_before_widget(notebook):
    """A static figure tells the story before a slider comes."""
    names = [shown(tree) for _, tree in trees(notebook)]
    chart = next((at for at, name in enumerate(names) if name in CHARTS), len(names))
    if any(name in EXPLORERS for name in names[:chart]):
        yield "a widget before the first static figure"


def rule_predict_first(notebook):
    """A lab asks for a prediction, with its unit, before it measures; what functions do may be tried before (Trial)."""
    calls = [node for _, tree in trees(notebook) for node in ast.walk(tree) if called(node)]
    names = ["" if ".Trial" in ast.unparse(node) else called(node) for node in calls]
    predictions = [node for node in calls if called(node) == "predict"]
    launches = [at for at, name in enumerate(names) if name in LAUNCHES]
    if launches and "predict" not in names[: launches[0]]:
        yield "launches before it asks for a prediction: call predict(question, unit=…) in an earlier cell"
    if any("unit" not in {keyword.arg for keyword in node.keywords} for node in predictions):
        yield "a prediction without a unit"


def rule_predictions_come_back(notebook):
    """Each prediction is compared with what was measured, or computed, in a later cell."""
    cells = [(number, node) for number, (_, tree) in enumerate(trees(notebook)) for node in ast.walk(tree)]
    asked = sum(called(node) == "predict" for _, node in cells)
    assigned = {
        target.id: number
        for number, node in cells
        if isinstance(node, ast.Assign) and called(node.value) == "predict"
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    compared = {
        name
        for number, node in cells
        if called(node) == "compare" and isinstance(node.func, ast.Attribute)
        for name in [getattr(node.func.value, "id", "")]
        if assigned.get(name, number) < number
    }
    if len(compared) < asked:
        yield f"{asked - len(compared)} of {asked} predictions are never compared: call guess.compare(measured) later"


def rule_valid(notebook):
    """The file fits the format."""
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        yield f"not a valid notebook: {error.message}"


RULES = {name.removeprefix("rule_"): rule for name, rule in list(globals().items()) if name.startswith("rule_")}
