"""Sliders over a ring all-reduce: who holds which partial sums after a step, what was sent, and how long it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.charts import canvas, svg
from labkit.charts.knobs import region, with_keys
from labkit.story import units
from labkit.theory.sizes import MIB
from lessons.collectives.charts import MOVED, chunk_color
from lessons.collectives.theory import ALL_GATHER, START, Step, ring, sent_bytes, steps_of, steps_seconds

if TYPE_CHECKING:
    import ipywidgets

SIZES = {units.size(size): size for size in (1024 * 4**power for power in range(11))}  # 1 KiB to 1 GiB
RANKS = (2, 16)
_ALPHAS_US = (1, 2, 5, 10, 20, 50, 100, 1000)
_BETAS_GB_PER_S = (1, 5, 10, 25, 50, 100, 200, 400)
_LEFT, _TOP = 70, 34  # pixels of the room for the ranks' names and the chunks'
_GRID, LANE = 560, 26  # pixels of all chunks together, of a rank's lane
PART = "#56B4E9"
_BAR = 12  # pixels of the height of a bar of time


def picture(ranks: int, step: int, message_bytes: float, alpha_us: float, beta_gb_per_s: float) -> str:
    """Return HTML: two sentences with what the step does and costs over an SVG, ranks × chunks and a bar of time.

    A cell has a stripe per rank, filled where the chunk holds its values; `step` 0 is the start.
    """
    steps = ring(ranks)
    now = steps[min(step, steps_of(ranks))]
    link = (message_bytes, ranks, alpha_us / 1e6, beta_gb_per_s)
    lanes = [part for rank in range(ranks) for part in _row(now, rank)]
    drawing = [*_heads(ranks), *lanes, *_clock(now.number, _TOP + LANE * ranks + 14, *link)]
    does = f"<b>Step {now.number} of {len(steps) - 1}</b>, {now.phase}: {_does(now)}"
    label = f"A ring all-reduce of {ranks} ranks after step {now.number}: who holds which partial sums"
    return (
        f'<div style="min-height:4.5em">{does}<br>{_costs(now.number, *link)}</div>{_legend(ranks)}'
        f"{svg.page(drawing, _TOP + LANE * ranks + 46, label=label, font_size=11)}"
    )


def _does(now: Step) -> str:
    ranks = len(now.held)
    if now.phase == START:
        return f"every rank has its own values of {ranks} chunks; none is whole."
    move, whole = now.moves[0], f"{now.whole} of {ranks**2} chunks are whole."
    arrives = f"rank 0 receives chunk {move.receive} from rank {ranks - 1} while it sends chunk {move.send} to rank 1"
    if now.phase == ALL_GATHER:
        return f"{arrives}; what arrives is whole and replaces its own. {whole}"
    values = len(now.held[0][move.receive])
    return f"{arrives}; it adds its own values: the sum now has those of {values} ranks of {ranks}. {whole}"


def _costs(number: int, message_bytes: float, ranks: int, alpha_s: float, beta_gb_per_s: float) -> str:
    sent = sent_bytes(number, message_bytes, ranks)
    took = steps_seconds(number, message_bytes, ranks, alpha_s, beta_gb_per_s)
    every = steps_seconds(steps_of(ranks), message_bytes, ranks, alpha_s, beta_gb_per_s)
    waits = units.percent(steps_of(ranks) * alpha_s / every)
    in_all = units.size(sent_bytes(steps_of(ranks), message_bytes, ranks))
    begun = f"So far a rank has sent {units.size(sent)} in {units.seconds(took)}; " if number else ""
    end = f"a whole all-reduce sends {in_all} per rank in {units.seconds(every)}, of which {waits} is latency."
    return begun + end if number else end.capitalize()


def _legend(ranks: int) -> str:
    colors = {
        "a rank's values, in a partial sum": PART,
        "in a whole chunk": chunk_color(ranks, ranks),
        "latency": canvas.WAIT,
        "transfer": canvas.COMMUNICATE,
        "frame: has just arrived": MOVED,
    }
    return svg.legend(colors)


def _heads(ranks: int) -> list[str]:
    cell = _GRID / ranks
    middle = {"text_anchor": "middle", "font_size": 9}
    names = [svg.word(_LEFT + cell * (chunk + 0.5), _TOP - 6, chunk, **middle) for chunk in range(ranks)]
    return [svg.word(_LEFT, 12, "chunk →"), *names]


def _row(now: Step, rank: int) -> list[str]:
    """Return a rank's lane: a cell per chunk, in it a stripe per rank whose values it holds, and what it moved."""
    ranks, y = len(now.held), _TOP + LANE * rank
    cell, drawn = _GRID / ranks, [svg.word(0, y + 17, f"rank {rank}")]
    stripe = (cell - 6) / ranks
    for chunk, held in enumerate(now.held[rank]):
        x = _LEFT + cell * chunk
        color = chunk_color(ranks, ranks) if now.is_whole(rank, chunk) else PART
        drawn.append(svg.bar(x + 2, y + 2, cell - 4, LANE - 4, svg.PAPER, stroke=canvas.HAIRLINE))
        drawn += [svg.bar(x + 3 + stripe * other, y + 4, stripe, LANE - 8, color) for other in sorted(held)]
    if now.moves:
        move = now.moves[rank]
        x = _LEFT + cell * move.receive
        drawn.append(svg.bar(x + 1.5, y + 1.5, cell - 3, LANE - 3, "none", stroke=MOVED, stroke_width=2.5))
        drawn.append(svg.word(_LEFT + _GRID + 10, y + 17, f"sends {move.send}, receives {move.receive}"))
    return drawn


def _clock(number: int, y: int, message_bytes: float, ranks: int, alpha_s: float, beta_gb_per_s: float) -> list[str]:
    """Return the time of all steps, latency and transfer of each after one another; those to come are pale."""
    every_s = steps_seconds(steps_of(ranks), message_bytes, ranks, alpha_s, beta_gb_per_s)
    step_width = _GRID / steps_of(ranks)
    wait = _GRID * alpha_s / every_s
    drawn = []
    for step in range(steps_of(ranks)):
        pale = {} if step < number else {"opacity": 0.25}
        x = _LEFT + step_width * step
        for start, width, color in ((x, wait, canvas.WAIT), (x + wait, step_width - wait, canvas.COMMUNICATE)):
            drawn.append(svg.bar(start, y, width, _BAR, color, **pale))
    ends = [svg.word(0, y + 10, "time"), svg.word(_LEFT + _GRID + 10, y + 10, units.seconds(every_s))]
    return [*drawn, *ends]


def explore() -> ipywidgets.VBox:
    """Return the sliders and a play button with the step that they show."""
    import ipywidgets

    long = {"style": {"description_width": "110px"}, "layout": {"width": "370px"}}
    step = ipywidgets.IntSlider(1, 0, steps_of(4), description="step", **long)
    play = ipywidgets.Play(value=1, min=0, max=steps_of(4), interval=1500, description="play")
    knobs = {
        "ranks": ipywidgets.IntSlider(4, *RANKS, description="ranks N", **long),
        "message_bytes": ipywidgets.SelectionSlider(
            options=list(SIZES.items()), value=MIB, description="message s", **long
        ),
        "alpha_us": ipywidgets.SelectionSlider(options=_ALPHAS_US, value=5, description="α_hop, µs", **long),
        "beta_gb_per_s": ipywidgets.SelectionSlider(options=_BETAS_GB_PER_S, value=100, description="β, GB/s", **long),
    }
    shown = ipywidgets.HTML()

    def draw(_change=None) -> None:
        play.max = step.max = steps_of(knobs["ranks"].value)
        shown.value = region(picture(step=step.value, **{name: knob.value for name, knob in knobs.items()}))

    ipywidgets.jslink((play, "value"), (step, "value"))
    for knob in (step, *knobs.values()):
        knob.observe(draw, names="value")
    draw()
    rows = [[step, play], [knobs["ranks"], knobs["message_bytes"]], [knobs["alpha_us"], knobs["beta_gb_per_s"]]]
    return with_keys(*map(ipywidgets.HBox, rows), shown)
