"""A chart in words, for those who do not see it: its titles, its axes and its source; a notebook keeps them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_TITLES = 6  # a chart of many panels is not read out in full


def in_words(figure: Figure) -> str:
    """Return a chart in words: each panel's title and axes, and the source of the numbers.

    What the chart shows is said by the verdict below it.
    """
    panels = [text for ax in figure.axes if (text := _panel(ax))]
    more = [f"and {len(panels) - MOST_TITLES} more panels"] if len(panels) > MOST_TITLES else []
    words = f"Chart. {'; '.join([*panels[:MOST_TITLES], *more])}. Source: {figure.get_supxlabel()}."
    return " ".join(words.split())


def _panel(ax: Any) -> str:
    title = ax.get_title(loc="left") or ax.get_title()
    axes = [text for text in (ax.get_ylabel(), ax.get_xlabel()) if text.strip()] if ax.axison else []
    return ", ".join(filter(None, [title, " against ".join(axes)]))


def keep_in_notebooks() -> None:
    """Have the notebook show each chart as a picture with its words; outside a notebook, nothing happens.

    A report reads the words from the picture's metadata. JupyterLab reads none there, so it gets the same picture as
    an HTML element.
    """
    from IPython import get_ipython
    from matplotlib.figure import Figure

    if (shell := get_ipython()) is None:
        return
    pictures, pages = (shell.display_formatter.formatters[kind] for kind in ("image/png", "text/html"))
    try:
        draw = pictures.lookup_by_type(Figure)
    except KeyError:  # a shell without pictures
        return
    if getattr(draw, "has_words", False):
        return

    kept: list[Any] = []  # the page is asked for right before the picture: it is drawn once for both

    def picture(figure: Figure) -> Any:
        drawn = kept.pop() if kept else draw(figure)
        if drawn is None:
            return None
        data, metadata = drawn if isinstance(drawn, tuple) else (drawn, {})
        return data, {**metadata, "alt": in_words(figure)}

    def page(figure: Figure) -> str | None:
        kept.clear()
        drawn = draw(figure)
        if not isinstance(drawn, tuple) or not isinstance(drawn[0], str):
            return None
        kept.append(drawn)
        data, metadata = drawn
        size = "".join(f' {side}="{metadata[side]}"' for side in ("width", "height") if side in metadata)
        words = escape(in_words(figure))
        return f'<img src="data:image/png;base64,{data.strip()}"{size} style="height:auto" alt="{words}">'

    vars(picture)["has_words"] = True
    pictures.for_type(Figure, picture)
    pages.for_type(Figure, page)
