"""Controls that the keyboard reaches and moves in JupyterLab, each with a role and a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ipywidgets

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
    """Return the children below each other; a last, hidden one gives the controls in them roles, names and keys."""
    import ipywidgets

    return ipywidgets.VBox([*children, ipywidgets.HTML(_SCRIPT, layout={"display": "none"})])
