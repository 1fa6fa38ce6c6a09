"""Knobs beside the picture that they change, with roles, names and keys: what an explorer is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from labkit.charts.svg import TEXT

if TYPE_CHECKING:
    import ipywidgets

_ROLE = 'role="region" aria-live="polite" aria-label="Picture that the knobs above change"'


def region(page: str) -> str:
    """Return an explorer's page in the theme's text colour, and as a region whose changes a screen reader tells."""
    return f'<div {_ROLE} style="color:{TEXT}">{page}</div>'


def with_picture(knobs: Mapping[str, Any], picture: Callable[..., str]) -> ipywidgets.VBox:
    """Return the knobs in two columns above the HTML that `picture` makes of their values, by name, at every change."""
    import ipywidgets

    shown = ipywidgets.HTML()

    def draw(_change=None) -> None:
        shown.value = region(picture(**{name: knob.value for name, knob in knobs.items()}))

    for knob in knobs.values():
        knob.observe(draw, names="value")
    draw()
    every, half = list(knobs.values()), (len(knobs) + 1) // 2
    columns = ipywidgets.HBox([ipywidgets.VBox(every[:half]), ipywidgets.VBox(every[half:])])
    return with_keys(columns, shown)


# JupyterLab takes arrow keys and letters for commands of the notebook wherever the focus is not in a text field: in a
# list, ArrowUp chose the cell above, and X cut the cell. It leaves an element with Lumino's mark alone. ipywidgets 8
# gives no name to a slider's handle, to its number and to the buttons of Play. A SelectionSlider, the only slider
# without the class jupyter-widgets, tells a screen reader the place of its value, and ignores what is typed into its
# number. Only the browser knows when a widget is drawn anew, so the script runs there.
_DRESS = """
const dress = box => {
  box.querySelectorAll('[role=slider], .widget-readout, select, input, button').forEach(control => {
    control.setAttribute('data-lm-suppress-shortcuts', 'true') });
  box.querySelectorAll('.widget-slider').forEach(slider => {
    const part = name => slider.querySelector(name), name = part('.widget-label').textContent;
    const handle = part('[role=slider]'), number = part('.widget-readout');
    handle.setAttribute('aria-label', name);
    handle.setAttribute('aria-valuetext', number.textContent);
    if (!slider.matches('.jupyter-widgets')) return void (number.contentEditable = 'false');
    number.setAttribute('role', 'textbox');
    number.setAttribute('aria-label', name + ', as a number') });
  box.querySelectorAll('.widget-play').forEach(play => {
    ['Play or pause', 'Stop', 'Repeat'].forEach((name, place) =>
      play.querySelectorAll('button')[place].setAttribute('aria-label', name)) }) };
const begin = tries => {
  const box = this.closest('.widget-vbox');
  if (!box) return void (tries && setTimeout(begin, 100, tries - 1));
  new MutationObserver(() => dress(box)).observe(box, {childList: true, characterData: true, subtree: true});
  dress(box) };
begin(100)
"""
_SCRIPT = f'<img src="data:," alt="" onerror="{_DRESS}">'


def with_keys(*children: ipywidgets.Widget) -> ipywidgets.VBox:
    """Return the children below each other; a last, hidden one gives the controls in them roles, names and keys.

    Where no widget can be shown, its text names the knobs.
    """
    import ipywidgets

    class Knobs(ipywidgets.VBox):
        def __repr__(self) -> str:
            return f"Knobs: {', '.join(_names(self))}."

    return Knobs([*children, ipywidgets.HTML(_SCRIPT, layout={"display": "none"})])


def _names(widget: ipywidgets.Widget) -> list[str]:
    """Return the names of the controls in a widget, in the order in which they stand."""
    below = [name for child in getattr(widget, "children", ()) for name in _names(child)]
    return [*filter(None, [getattr(widget, "description", "")]), *below]
