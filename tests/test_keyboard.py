"""The explorers without a mouse, in a real JupyterLab and a real browser: every control is reached, named and moved."""

from __future__ import annotations

import re
from collections.abc import Iterator

import nbformat
import pytest
from jupyter_lab import IDLE, NEEDS_CHROMIUM, OUTPUTS, ROOT, opened, served
from playwright.sync_api import CDPSession, Page

EXPLORERS = {
    f"{file.parent.name}.{name}": f"from lessons import {file.parent.name}\n{file.parent.name}.{name}()"
    for file in sorted((ROOT / "notebooks" / "lessons").glob("*/explorer.py"))
    for name in re.findall(r"^def (explore\w*)\(", file.read_text(), re.MULTILINE)
}
NAMING = """from labkit.course import record
from labkit.course.lineup import Naming
# So that the button can be pressed from the start.
record.update_exercise_record("broadcast.bugs", named={"A": "early", "B": "late"})
Naming("broadcast", {"early": "sends too early", "late": "sends too late"}, 2, list)"""
WIDGETS = EXPLORERS | {"find the bug": NAMING}

BOOK = "jupyterapp.shell.currentWidget.content"
CONTROLS = ".widget-slider [role=slider], .widget-readout[contenteditable=true], .jp-OutputArea select"
CONTROLS += ", .jp-OutputArea input, .jp-OutputArea button"
# The element that has the focus: whether it is a control of this cell, and what a key may change of it.
FOCUSED = f"""at => {{
  const cell = {BOOK}.widgets[at].node, has = document.activeElement;
  const slider = has.matches('[role=slider]') && has.closest('.widget-slider');
  return {{here: cell.contains(has), control: has.matches('{CONTROLS}'), spoken: has.getAttribute('aria-valuetext'),
    number: slider ? slider.querySelector('.widget-readout').textContent : null,
    value: [has.getAttribute('aria-valuetext'), has.selectedIndex, has.checked].join(),
    cells: {BOOK}.widgets.length, active: {BOOK}.activeCellIndex}} }}"""
SHOWN = f"""at => {{
  const cell = {BOOK}.widgets[at].node, shown = [...cell.querySelectorAll('{CONTROLS}')];
  return shown.filter(control => control.offsetParent && !control.disabled).length }}"""
MOVES = {"slider": ("ArrowRight", "ArrowLeft"), "combobox": ("ArrowDown", "ArrowUp"), "checkbox": ("Space",)}

pytestmark = [pytest.mark.slow, NEEDS_CHROMIUM, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[Page]:
    """Return the page of a notebook with a cell for each explorer, all of them run."""
    folder = tmp_path_factory.mktemp("keyboard")
    (folder / "notebooks").mkdir()
    cells = [nbformat.v4.new_code_cell(code) for code in WIDGETS.values()]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / "notebooks" / "explorers.ipynb")
    with served(folder, folder / "notebooks") as address, opened(address, "explorers.ipynb") as page:
        page.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")
        page.wait_for_function(f"() => ({OUTPUTS})().every(cell => cell.count !== null)")
        page.wait_for_selector(IDLE)
        for cell in page.evaluate(OUTPUTS):
            assert [output for output in cell["outputs"] if output["output_type"] == "error"] == [], cell
        yield page


@pytest.mark.parametrize("widget", WIDGETS)
def test_the_keyboard_reaches_and_moves_every_control_and_each_has_a_role_and_a_name(page, widget):
    at = [*WIDGETS].index(widget)
    page.wait_for_function(f"at => ({SHOWN})(at) > 0", arg=at)
    tools = page.context.new_cdp_session(page)
    page.evaluate(f"at => {{ {BOOK}.activeCellIndex = at; {BOOK}.mode = 'command'; {BOOK}.activate() }}", at)
    page.evaluate(f"at => {BOOK}.widgets[at].node.focus()", at)
    reached, cells = [], page.evaluate(FOCUSED, at)["cells"]
    while True:
        page.keyboard.press("Tab")
        before = page.evaluate(FOCUSED, at)
        if not before["here"]:
            break
        if not before["control"]:
            continue
        role, name = role_and_name(tools)
        assert name, f"the {role} after {reached} has no name"
        reached.append((role, name))
        if role in MOVES:
            assert moved(page, at, MOVES[role], before["value"]), f"{role} {name!r} does not move"
        now = page.evaluate(FOCUSED, at)
        assert now["here"] and now["control"] and (now["active"], now["cells"]) == (at, cells), f"{role} {name!r}"
        assert now["spoken"] == now["number"], "a screen reader says another value than the slider shows"
    assert {role for role, _ in reached} <= {*MOVES, "button", "textbox"}
    assert len({*reached}) == len(reached) > 1, "two controls have one name"
    assert len(reached) == page.evaluate(SHOWN, at)


def moved(page: Page, at: int, keys: tuple[str, ...], value: str) -> bool:
    """Press the keys, the second where the control is at its end, until one has changed the control's value."""
    for key in keys:
        page.keyboard.press(key)
        if page.evaluate(FOCUSED, at)["value"] != value:
            return True
    return False


def role_and_name(tools: CDPSession) -> tuple[str, str]:
    """Return what the browser tells a screen reader about the element that has the focus."""
    focused = tools.send("Runtime.evaluate", {"expression": "document.activeElement"})["result"]["objectId"]
    found = tools.send("Accessibility.getPartialAXTree", {"objectId": focused, "fetchRelatives": False})["nodes"][0]
    return found["role"]["value"].lower(), found.get("name", {}).get("value", "").strip()
