"""A student's way through an exercise, in a real JupyterLab and a real browser: nothing of it is lost by a restart."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from broadcasts import PIPELINED
from jupyter_lab import IDLE, NEEDS_CHROMIUM, OUTPUTS, ROOT, STARTS_WITHIN_S, opened, served, wait_for_one_kernel
from playwright.sync_api import Page

from labkit.charts.ink import contrast
from labkit.course.copies import handed_out
from lessons import broadcast
from lessons.broadcast.bugs import SYMPTOMS

# Of the lesson: its set-up, the prediction, an exercise with its check, and the suspects, each with the text before it.
LESSON, TAKEN = "02_broadcast.ipynb", ("c01", "check_parameters", "predict(", "%%answer broadcast.pipelined")
TAKEN += ('check("pipelined"', "suspects = launch", "show_suspects", "diagnose")
EXPLORER = "from lessons import pipeline\npipeline.explore()"
PICTURES = os.environ.get("LABKIT_TEST_PICTURES")  # a folder for what the student saw, to be looked at
LONGEST_MS = 1000 * STARTS_WITHIN_S
RIGHT = PIPELINED.format(name="pipelined")
WRONG = RIGHT.replace(", after=arrived", "")
# Text and ground of everything that is written in the outputs, as the browser shows it.
LETTERS = """() => {
  const opaque = color => { const parts = color.match(/[\\d.]+/g); return parts.length < 4 || Number(parts[3]) > 0.5 };
  const ground = element => { for (let at = element; at; at = at.parentElement) {
    const color = getComputedStyle(at).backgroundColor; if (opaque(color)) return color } return 'rgb(255, 255, 255)' };
  const words = [...document.querySelectorAll('.jp-OutputArea-output p, .jp-OutputArea-output li, ' +
    '.jp-OutputArea-output pre, .jp-OutputArea-output td, .jp-OutputArea-output label, .jp-OutputArea-output div')];
  return words.filter(element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
    .map(element => [element.textContent.trim().slice(0, 40), getComputedStyle(element).color, ground(element)]) }"""

pytestmark = [pytest.mark.slow, NEEDS_CHROMIUM, pytest.mark.timeout(1200)]


@pytest.fixture
def lab(tmp_path):
    """Return the address of a JupyterLab on the part of the lesson that a student works through."""
    whole = nbformat.reads(handed_out(ROOT / "notebooks" / LESSON), 4)
    cells = []
    for before, cell in zip([None, *whole.cells], whole.cells, strict=False):
        if cell.cell_type == "code" and (cell.id in TAKEN or any(part in cell.source for part in TAKEN)):
            cells += [before, cell]
    whole.cells = [*cells, nbformat.v4.new_markdown_cell("An explorer:"), nbformat.v4.new_code_cell(EXPLORER)]
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    nbformat.write(whole, notebooks / LESSON)
    with served(tmp_path, notebooks) as address:
        yield address


def test_a_student_predicts_runs_errs_is_helped_and_is_right_and_a_restart_loses_nothing(lab):
    with opened(lab, LESSON) as page:
        for part in ("size: str", "check_parameters"):
            run(page, part)
        run(page, "predict(")
        field = page.locator(".jp-OutputArea-output input[type=text]").first
        field.fill("50")
        page.get_by_text("noted, 50 ms").wait_for(timeout=LONGEST_MS)

        write(page, "%%answer broadcast.pipelined", WRONG)
        verdict = run(page, 'check("pipelined"')
        assert "wrong" in verdict and "before they are sure to have arrived" in verdict
        assert 'broadcast.hint("pipelined")' in verdict and "1 of 3" in verdict
        picture(page, "wrong")
        page.evaluate("async () => { await jupyterapp.commands.execute('notebook:insert-cell-below') }")
        assert "Hint 1 of 3" in run(page, "", 'broadcast.hint("pipelined")')

        write(page, "%%answer broadcast.pipelined", RIGHT)
        verdict = run(page, 'check("pipelined"')
        assert "`pipelined`: right" in verdict and 'broadcast.solution("pipelined")' in verdict
        picture(page, "right")

        run(page, "suspects = launch")
        assert run(page, "show_suspects").count("<pre") == 3
        assert "early_forward" not in page.locator(".jp-Notebook").inner_text()
        run(page, "broadcast.diagnose(")
        name_the_bugs(page)
        picture(page, "named")

        page.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart() }")
        wait_for_one_kernel(page)
        for part in ("size: str", "check_parameters", "predict("):
            run(page, part)
        assert page.locator(".jp-OutputArea-output input[type=text]").first.input_value() == "50"
        assert "attempt" in run(page, "hint(", 'broadcast.attempts("pipelined")')
        run(page, "explore()")
        assert page.get_by_text("Jupyter news").count() == 0, "JupyterLab asks about news"
        for theme in ("Dark", "Light"):
            can_be_read(page, theme)


def run(page: Page, part: str, instead: str = "") -> str:
    """Run the cell that holds a text, or `instead` in its place; return what it shows as Markdown, HTML and text."""
    at = page.evaluate(
        """([part, instead]) => {
          const book = jupyterapp.shell.currentWidget.content;
          const at = part ? book.widgets.findIndex(cell => cell.model.type === 'code' &&
            cell.model.sharedModel.getSource().includes(part)) : book.activeCellIndex;
          book.activeCellIndex = at;
          if (instead) book.widgets[at].model.sharedModel.setSource(instead);
          book.widgets[at].model.sharedModel.execution_count = null;
          void jupyterapp.commands.execute('notebook:run-cell');
          return book.widgets.slice(0, at + 1).filter(cell => cell.model.type === 'code').length - 1 }""",
        [part, instead],
    )
    page.wait_for_function(
        f"() => {{ const cells = ({OUTPUTS})(); return cells[{at}].count !== null }}", timeout=LONGEST_MS
    )
    page.wait_for_selector(IDLE, timeout=LONGEST_MS)
    cell = page.evaluate(OUTPUTS)[at]
    assert [output for output in cell["outputs"] if output["output_type"] == "error"] == [], cell
    kinds = ("text/markdown", "text/html", "text/plain")
    data = [output.get("data", {}) for output in cell["outputs"]]
    return "\n".join("".join(one[kind]) for one in data for kind in kinds if kind in one)


def write(page: Page, part: str, code: str) -> None:
    """Write an answer below its magic, and run it."""
    run(page, part, f"{part}\n{code}")


def name_the_bugs(page: Page) -> None:
    """Choose the right bug for each suspect, and reveal."""
    reveal = page.get_by_role("button", name="Reveal who is who")
    lists = page.locator(".jp-OutputArea-output select")
    assert lists.count() == 3 and reveal.is_disabled()
    for place, name in enumerate(broadcast.suspects()):
        lists.nth(place).select_option(label=SYMPTOMS[name.removeprefix("bugs.")])
    reveal.click()
    page.get_by_text("You named 3 of 3 rightly").wait_for(timeout=LONGEST_MS)


def can_be_read(page: Page, theme: str) -> None:
    """In this theme, everything that is written in an output has a contrast of 4.5 or more."""
    page.evaluate(f"void jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})")
    light = "true" if theme == "Light" else "false"
    page.wait_for_selector(f'body[data-jp-theme-light="{light}"]', state="attached", timeout=LONGEST_MS)
    page.wait_for_timeout(500)
    picture(page, theme.lower())
    letters = page.evaluate(LETTERS)
    assert len(letters) > 10
    unread = [(text, ink, ground) for text, ink, ground in letters if contrast(rgb(ink), rgb(ground)) < 4.5]
    assert unread == []
    ink = page.locator(".jp-OutputArea-output svg text").first.evaluate("text => getComputedStyle(text).fill")
    paper = page.evaluate("getComputedStyle(document.querySelector('.jp-Notebook')).backgroundColor")
    assert contrast(rgb(ink), rgb(paper)) >= 4.5


def rgb(color: str) -> tuple[float, ...]:
    """Return the parts of "rgb(17, 17, 17)", from 0 to 1."""
    return tuple(float(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3])


def picture(page: Page, name: str) -> None:
    """Keep what the student sees, where somebody wants to look at it: the window, and every output in it."""
    if PICTURES:
        page.evaluate("jupyterapp.shell.currentWidget.content.activeCell.node.scrollIntoView({block: 'start'})")
        page.wait_for_timeout(500)
        page.screenshot(path=Path(PICTURES) / f"{name}.png")
