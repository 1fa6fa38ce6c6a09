"""Knobs beside the picture that they change: what an explorer is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from labkit.charts.keyboard import with_keys
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
