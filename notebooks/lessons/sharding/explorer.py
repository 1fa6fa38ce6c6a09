"""Sliders over the ledger: model, GPUs, their memory, precision and micro-batch, and which strategies fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from labkit.charts import ledgers, svg
from labkit.charts.knobs import with_picture
from labkit.plans import STRATEGIES
from labkit.story import units
from labkit.story.words import listed
from labkit.theory.gpt import SIZES
from labkit.theory.memory import BYTES_PER_PARAMETER, ITEMS
from lessons.sharding.theory import COUNTS, fewest_gpus, fits_memory

if TYPE_CHECKING:
    import ipywidgets

# As nvidia-smi prints it.
MEMORY_GIB = {"A100 40 GB": 40.0, "H100 80 GB": 79.6, "H200 141 GB": 140.4, "B200 180 GB": 179.1}
LEFT = 80  # pixels of the room for names
_LANE, _RIGHT = 30, 110  # pixels of a bar's lane, of the room for totals
_LONGEST = 2.0  # times the GPU's memory that are drawn; a longer bar is cut


def picture(size: str, gpus: int, gpu: str, precision: str, micro_batch: int, sequence: int = 1024) -> str:
    """Return HTML: a sentence with what fits over an SVG with a bar per strategy, its segments the ledger's items.

    The line is the GPU's memory; a bar beyond twice that is cut and ends in »; ✔ leaves 6 % free.
    """
    knobs: dict[str, Any] = {"precision": precision, "micro_batch": micro_batch, "sequence": sequence}
    memory_gib = MEMORY_GIB[gpu]
    held = {strategy: fits_memory(size, strategy, gpus, memory_gib, **knobs) for strategy in STRATEGIES}
    most = max(memory_gib, *(fit["total_gib"] for fit in held.values()))
    shown_gib = min(1.05 * most, _LONGEST * memory_gib)
    scale = (svg.WIDTH - LEFT - _RIGHT) / shown_gib
    line, height = LEFT + memory_gib * scale, _LANE * len(held)
    drawn = [part for row, fit in enumerate(held.values()) for part in _bar(row, fit, scale, shown_gib)]
    drawn.append(svg.line(line, 0, line, height, stroke_width=1.5))
    drawn.append(svg.word(line, height + 14, f"{gpu}: {units.number(memory_gib)} GiB", text_anchor="middle"))
    for row, (strategy, fit) in enumerate(held.items()):
        drawn += _words(row, strategy, fit, scale, shown_gib)
    used = [item for item in ITEMS if any(fit["ledger"][item] for fit in held.values())]
    sentence = _sentence(size, gpus, gpu, held, fewest_gpus(size, "fsdp_full", memory_gib, **knobs))
    label = "what a GPU holds under each strategy, beside its memory"
    return f"<div>{sentence}</div>{svg.legend(ledgers.colors(used))}{svg.page(drawn, height + 20, label=label)}"


def _sentence(size: str, gpus: int, gpu: str, held: dict[str, dict], fewest: int | None) -> str:
    fitting = [strategy for strategy, fit in held.items() if fit["fits"]]
    which = f"{'fit' if len(fitting) > 1 else 'fits'} {listed(fitting)}" if fitting else "fits <b>no strategy</b>"
    least = f"fits on {_count(fewest)} or more" if fewest else f"fits on none of 1 to {COUNTS[-1]} GPUs"
    return f"<b>{size}</b> on {_count(gpus)}, {gpu}: there {which}; fsdp_full {least}."


def _count(gpus: int) -> str:
    return f"{gpus} GPU{'s' if gpus > 1 else ''}"


def _bar(row: int, fit: dict, scale: float, shown_gib: float) -> list[str]:
    begun, drawn = 0.0, []
    for item in ITEMS:
        ended = min(begun + fit["ledger"][item], shown_gib)
        if ended > begun:
            place = LEFT + begun * scale
            width = (ended - begun) * scale
            drawn.append(svg.bar(place, _LANE * row + 4, width, _LANE - 8, ledgers.COLORS[item]))
        begun = ended
    return drawn


def _words(row: int, strategy: str, fit: dict, scale: float, shown_gib: float) -> list[str]:
    y, ended = _LANE * row + 20, LEFT + scale * min(fit["total_gib"], shown_gib)
    cut = "» " if fit["total_gib"] > shown_gib else ""
    total = f"{cut}{'✔' if fit['fits'] else '✘'} {units.number(fit['total_gib'])} GiB"
    halo = {"stroke": svg.PAPER, "stroke_width": 4, "paint_order": "stroke"}  # the memory's line may pass there
    return [svg.word(0, y, strategy), svg.word(ended + 6, y, total, **halo)]


def explore() -> ipywidgets.VBox:
    """Return the sliders with the bars that they change."""
    import ipywidgets

    long = {"style": {"description_width": "110px"}, "layout": {"width": "370px"}}
    knobs = {
        "size": ipywidgets.Dropdown(options=list(SIZES), value="7 B", description="model", **long),
        "gpus": ipywidgets.SelectionSlider(options=COUNTS, value=8, description="GPUs", **long),
        "gpu": ipywidgets.Dropdown(options=list(MEMORY_GIB), value="H100 80 GB", description="GPU", **long),
        "precision": ipywidgets.Dropdown(
            options=list(BYTES_PER_PARAMETER), value="bfloat16", description="precision", **long
        ),
        "micro_batch": ipywidgets.IntSlider(4, 1, 64, description="micro-batch", **long),
    }
    return with_picture(knobs, picture)
