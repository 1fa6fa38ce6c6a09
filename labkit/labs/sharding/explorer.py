"""Sliders over the ledger: model, GPUs, their memory, precision and micro-batch, and which strategies fit."""

from __future__ import annotations

import ipywidgets

from labkit.charts import canvas
from labkit.charts.knobs import with_picture
from labkit.labs.sharding.theory import COUNTS, fewest_gpus, fits_memory
from labkit.story import units
from labkit.story.words import listed
from labkit.theory.gpt import SIZES
from labkit.theory.memory import PRECISIONS

STRATEGIES = ("single", "ddp", "fsdp_grad", "fsdp_full", "fsdp_root")
# As nvidia-smi prints it.
MEMORY_GIB = {"A100 40 GB": 40.0, "H100 80 GB": 79.6, "H200 141 GB": 140.4, "B200 180 GB": 179.1}
COLORS = {
    "parameters": "#999999",
    "gradients": "#D55E00",
    "optimizer": "#009E73",
    "activations": "#56B4E9",
    "gathered": "#E69F00",
    "buffers": "#F0E442",
}
WIDTH, LANE, LEFT, RIGHT = 920, 30, 80, 110  # pixels of the drawing, of a bar's lane, of the room for names and totals
LONGEST = 2.0  # times the GPU's memory that are drawn; a longer bar is cut


def picture(size: str, gpus: int, gpu: str, precision: str, micro_batch: int, sequence: int = 1024) -> str:
    """Give HTML: a sentence with what fits over an SVG with a bar a strategy, its segments the ledger's items.

    The line is the GPU's memory; a bar beyond twice that is cut and ends in »; ✔ leaves 6 % free.
    """
    knobs = {"precision": precision, "micro_batch": micro_batch, "sequence": sequence}
    memory_gib = MEMORY_GIB[gpu]
    held = {strategy: fits_memory(size, strategy, gpus, memory_gib, **knobs) for strategy in STRATEGIES}
    most = max(memory_gib, *(found["total_gib"] for found in held.values()))
    shown_gib = min(1.05 * most, LONGEST * memory_gib)
    scale = (WIDTH - LEFT - RIGHT) / shown_gib
    bars = [_bar(row, found, scale, shown_gib) for row, found in enumerate(held.values())]
    words = [_words(row, strategy, found, scale, shown_gib) for row, (strategy, found) in enumerate(held.items())]
    line, height = LEFT + memory_gib * scale, LANE * len(held)
    room = (
        f'<line x1="{line:.1f}" x2="{line:.1f}" y1="0" y2="{height}" stroke="{canvas.INK}" stroke-width="1.5"/>'
        f'<text x="{line:.1f}" y="{height + 14}" text-anchor="middle">{gpu}: {units.number(memory_gib)} GiB</text>'
    )
    used = [item for item in COLORS if any(found["ledger"][item] for found in held.values())]
    legend = " ".join(f'<span style="color:{COLORS[item]}">■</span> {item}' for item in used)
    return (
        f"<div>{_sentence(size, gpus, gpu, held, fewest_gpus(size, 'fsdp_full', memory_gib, **knobs))}</div>"
        f'<div>{legend}</div><svg viewBox="0 0 {WIDTH} {height + 20}" width="100%" font-size="12" '
        f'font-family="sans-serif" fill="{canvas.INK}">{"".join([*bars, room, *words])}</svg>'
    )


def _sentence(size: str, gpus: int, gpu: str, held: dict, fewest: int | None) -> str:
    fitting = [strategy for strategy, found in held.items() if found["fits"]]
    which = f"{'fit' if len(fitting) > 1 else 'fits'} {listed(fitting)}" if fitting else "fits <b>no strategy</b>"
    least = f"fits on {_count(fewest)} or more" if fewest else f"fits on none of 1 to {COUNTS[-1]} GPUs"
    return f"<b>{size}</b> on {_count(gpus)}, {gpu}: there {which}; fsdp_full {least}."


def _count(gpus: int) -> str:
    return f"{gpus} GPU{'s' if gpus > 1 else ''}"


def _bar(row: int, found: dict, scale: float, shown_gib: float) -> str:
    y, begun, parts = LANE * row, 0.0, []
    for item, color in COLORS.items():
        ended = min(begun + found["ledger"][item], shown_gib)
        if ended > begun:
            parts.append(
                f'<rect x="{LEFT + begun * scale:.1f}" y="{y + 4}" width="{(ended - begun) * scale:.1f}" '
                f'height="{LANE - 8}" fill="{color}"/>'
            )
        begun = ended
    return "".join(parts)


def _words(row: int, strategy: str, found: dict, scale: float, shown_gib: float) -> str:
    y, ended = LANE * row + 20, LEFT + scale * min(found["total_gib"], shown_gib)
    cut = "» " if found["total_gib"] > shown_gib else ""
    mark, color = ("✔", "#00704F") if found["fits"] else ("✘", "#B34700")
    total = f"{cut}{mark} {units.number(found['total_gib'])} GiB"
    halo = 'stroke="white" stroke-width="4" paint-order="stroke"'  # where the line of the memory goes through it
    return (
        f'<text x="0" y="{y}">{strategy}</text><text x="{ended + 6:.1f}" y="{y}" fill="{color}" {halo}>{total}</text>'
    )


def explore() -> ipywidgets.VBox:
    """Give the sliders with the bars that they change."""
    long = {"style": {"description_width": "110px"}, "layout": {"width": "370px"}}
    knobs = {
        "size": ipywidgets.Dropdown(options=list(SIZES), value="7 B", description="model", **long),
        "gpus": ipywidgets.SelectionSlider(options=COUNTS, value=8, description="GPUs", **long),
        "gpu": ipywidgets.Dropdown(options=list(MEMORY_GIB), value="H100 80 GB", description="GPU", **long),
        "precision": ipywidgets.Dropdown(options=list(PRECISIONS), value="bfloat16", description="precision", **long),
        "micro_batch": ipywidgets.IntSlider(4, 1, 64, description="micro-batch", **long),
    }
    return with_picture(knobs, picture)
