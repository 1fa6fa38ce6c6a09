"""The teacher's pages: what a person reads in notebooks is there as text, a hung answer says so, the index sorts."""

import json

import nbformat
import pytest
from jupyter_lab import BROWSER, CHROMIUM, NEEDS_CHROMIUM
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from playwright.sync_api import sync_playwright

from labkit.course import answers
from labkit.course.exercises import exercise_of
from labkit.course.grading.confine import Limits
from labkit.course.grading.grade import Graded, grade
from labkit.course.grading.grade_pages import Pages
from labkit.course.grading.shown_work import MOST_CELLS, MOST_TEXT, shown_cells
from labkit.course.grading.submissions import Submission, submissions
from labkit.course.verdict import HUNG, RIGHT, WRONG, Verdict
from labkit.repository import NOTEBOOKS

DEVICES = "accounting.devices_needed"
SCRIPT = "<script>alert(1)</script>"


def page_of(folder, submission: Submission, rows=()) -> str:
    Pages(folder).add(submission, rows)
    return next(folder.glob("*-001.html")).read_text(encoding="utf-8")


def test_predictions_bugs_and_own_cells_are_shown_as_text(tmp_path):
    notebook = nbformat.read(NOTEBOOKS / "12_accounting.ipynb", as_version=4)
    (compare, *_) = (cell for cell in notebook.cells if cell.source.startswith("guess.compare("))
    compare.outputs = [new_output("display_data", {"text/markdown": "You guessed 41 GPUs", "text/plain": "<Markdown>"})]
    wild = {"text/html": SCRIPT, "text/plain": f"a table {SCRIPT}"}
    shown = [new_output("stream", text="24 000 tokens\n"), new_output("display_data", wild)]
    picture = new_output("display_data", {"image/png": "", "text/plain": "<Figure>"})
    failed = new_output("error", ename="ValueError", evalue="too few")
    notebook.cells += [
        new_markdown_cell(f"GiB divided by GB {SCRIPT}"),
        new_code_cell('accounting.diagnose(suspects, {"A": "bits_for_bytes"})', outputs=shown),
        new_code_cell("mine(links=2)", outputs=[picture, failed]),
    ]
    for name in ("12_accounting.ipynb", "12_accounting (1).ipynb"):
        (tmp_path / "in" / "ada").mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, tmp_path / "in" / "ada" / name)
    (ada,) = submissions(tmp_path / "in")
    page = page_of(tmp_path, ada)
    assert SCRIPT not in page and page.count("a table &lt;script&gt;") == 1, "what two copies hold is shown once"
    for text in ("You guessed 41 GPUs", "24 000 tokens", "GiB divided by GB &lt;", "a picture", "ValueError: too few"):
        assert text in page
    workbooks = [cell.source for cell in ada.shown["12_accounting.ipynb"] if not cell.own]
    assert compare.source in workbooks and len(workbooks) == 3, "its predictions and its bugs"
    assert len(ada.shown["12_accounting.ipynb"]) == 6 and "%%answer" not in page


def test_a_handouts_own_cells_are_no_students():
    for page in NOTEBOOKS.glob("*.ipynb"):
        assert not any(cell.own for cell in shown_cells(json.loads(page.read_bytes()))), page.name


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "outputs", [7, [7], [{"data": 7}], [{"text": [7]}], [{"data": {"text/plain": {"a": 1}}}], None]
)
def test_odd_and_endless_cells_are_cut(outputs):
    cells = [{"cell_type": "code", "source": f"x = {number}", "outputs": outputs} for number in range(MOST_CELLS * 2)]
    endless = {"cell_type": "code", "source": "[" * 10**7, "outputs": [{"output_type": "stream", "text": "x" * 10**7}]}
    first, *others = shown_cells({"cells": [endless, *cells]})
    assert len(first.source) == len(first.shown) == MOST_TEXT + 2 and len(others) == MOST_CELLS - 1
    assert not any(cell.shown for cell in others)


@pytest.mark.usefixtures("confined")
def test_the_page_of_a_hung_answer_shows_what_it_printed_and_nothing_else(tmp_path):
    for printed in ("", "print('before')"):
        ada = Submission(
            "ada", {DEVICES: f"def devices_needed(gib, gb):\n    {printed or 'pass'}\n    while True: pass\n"}
        )
        (rows,) = grade([ada], [DEVICES], limits=Limits(3.0))
        page = page_of(tmp_path / (printed and "printed"), ada, rows)
        assert rows[0].verdict.outcome == HUNG and "did not come back within 3 s" in page
        assert ("<h3>It printed</h3>" in page) == bool(printed) and "unshare" not in page


@NEEDS_CHROMIUM
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_index_of_sixty_students_fits_a_screen_and_sorts(tmp_path, scheme):
    pages, fetched, names = Pages(tmp_path, due=1e9), [], answers.exercises()
    for number in range(60):
        student = Submission(
            f"Jean-Baptiste Müller {number}",
            problems=["x" * 200] if number % 7 == 0 else [],
            saved=dict.fromkeys(names, 2e9),
        )
        right = [(number * 7 + place) % 60 < 30 for place in range(len(names))]
        rows = [
            Graded(
                student.student,
                name,
                exercise_of(name).grade,
                int(each),
                1,
                Verdict(name, RIGHT if each else WRONG, {}),
            )
            for name, each in zip(names, right, strict=True)
        ]
        pages.add(student, rows)
    with sync_playwright() as player, player.chromium.launch(executable_path=CHROMIUM, args=BROWSER) as browser:
        page = browser.new_page(viewport={"width": 1366, "height": 800}, color_scheme=scheme)
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(pages.index.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == 1366, "nothing to scroll sideways"
        for column in (1, 4):
            for turned in (False, True):
                page.locator(f"thead [data-column='{column}']").click()
                cells = page.locator(f"tbody tr td:nth-child({column + 1})").all_inner_texts()
                points = [int(text.partition("\n")[0]) for text in cells]
                assert points == sorted(points, reverse=turned) and ("late" in cells[0]) == (column == 4)
        page.locator("thead [data-column='0']").click()
        shown = page.locator("tbody tr td:first-child").all_inner_texts()
        assert [int(name.rpartition(" ")[2]) for name in shown] == [*range(60)]
    assert fetched == [pages.index.as_uri()]
