"""A reader's first hour: real JupyterLab, a real browser, a lesson run from top to bottom."""

import os
import shutil
import time
from pathlib import Path

import pytest
from jupyter_lab import IDLE, NEEDS_CHROMIUM, OUTPUTS, ROOT, STARTS_WITHIN_S, opened, served

# LABKIT_TEST_NOTEBOOK tries the test on another notebook.
LESSON = Path(os.environ.get("LABKIT_TEST_NOTEBOOK", ROOT / "notebooks" / "02_broadcast.ipynb"))
FEWEST_IMAGES = 4
LONGEST_S = 600

# A bar may come and go between two looks, so the page itself notes each that appears.
WATCH_BARS = """() => {
  window.bars = 0;
  const look = () => { window.bars = Math.max(window.bars,
    document.querySelectorAll('.jp-OutputArea .jupyter-widgets.widget-hprogress, .jp-OutputArea .progress').length) };
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true});
}"""
# An explorer also has an empty picture, which carries the script of its controls.
PICTURES = ".jp-OutputArea-output img[src^='data:image']"
ALL_WORDS = f'[...document.querySelectorAll("{PICTURES}")].map(picture => picture.alt)'
pytestmark = [NEEDS_CHROMIUM, pytest.mark.timeout(LONGEST_S + 2 * STARTS_WITHIN_S)]


@pytest.fixture
def lab(tmp_path):
    """Return the address of a JupyterLab on a copy of the lesson."""
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    shutil.copy(LESSON, notebooks)
    with served(tmp_path, notebooks) as address:
        yield address


def test_a_lesson_runs_from_top_to_bottom_in_the_browser(lab):
    with opened(lab, LESSON.name) as page:
        cells = _run_all(page)
        bars = page.evaluate("window.bars")
        words = page.evaluate(ALL_WORDS)
    _no_cell_failed(cells)
    images = [sum("image/png" in output.get("data", {}) for output in cell["outputs"]) for cell in cells]
    assert max(images) == 1, "a chart is drawn more than once"
    assert sum(images) >= FEWEST_IMAGES
    assert bars > 0, "no progress bar appeared"
    assert len(words) >= FEWEST_IMAGES and all(said.startswith("Chart. ") and "Source: " in said for said in words), (
        words
    )


def _run_all(page) -> list[dict]:
    """Runs all cells and gives source, execution count and outputs of each code cell."""
    page.evaluate(WATCH_BARS)
    page.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        page.wait_for_timeout(500)
        cells = page.evaluate(OUTPUTS)
        failed = any(output["output_type"] == "error" for cell in cells for output in cell["outputs"])
        ran = all(cell["count"] for cell in cells if cell["source"].strip())
        if page.query_selector(IDLE) and (ran or failed):
            return cells
    raise AssertionError(
        f"still busy after {LONGEST_S} s: {[cell['source'][:40] for cell in cells if not cell['count']]}"
    )


def _no_cell_failed(cells):
    for cell in cells:
        for output in cell["outputs"]:
            complaint = output.get("traceback") or (output.get("name") == "stderr" and output["text"])
            assert not complaint, f"{cell['source']}\n{complaint}"
