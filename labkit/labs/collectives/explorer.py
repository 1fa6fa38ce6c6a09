"""Sliders over a ring all-reduce: who holds which partial sums after a step, what was sent, and how long it took."""

from __future__ import annotations

import ipywidgets

from labkit.charts import canvas
from labkit.labs.collectives.charts.overview import MOVED, shade
from labkit.labs.collectives.theory import ALL_GATHER, START, Step, ring, sent_bytes, steps_of, steps_seconds
from labkit.story import units

SIZES = {units.size(size): size for size in (1024 * 4**power for power in range(11))}  # 1 KiB to 1 GiB
RANKS = (2, 16)
ALPHAS_US = (1, 2, 5, 10, 20, 50, 100, 1000)
BETAS_GB_PER_S = (1, 5, 10, 25, 50, 100, 200, 400)
WIDTH, LEFT, TOP = 920, 70, 34  # pixels of the drawing, of the room for the ranks' names and the chunks'
GRID, LANE = 560, 26  # pixels of all chunks together, of a rank's lane
PART = "#56B4E9"
BAR = 12  # pixels of the height of a bar of time


def picture(ranks: int, step: int, message_bytes: float, alpha_us: float, beta_gb_per_s: float) -> str:
    """Return HTML: two sentences with what the step does and costs over an SVG, ranks × chunks and a bar of time.

    A cell has a stripe a rank, filled where the chunk holds its values; `step` 0 is the start.
    """
    steps = ring(ranks)
    now = steps[min(step, steps_of(ranks))]
    height = TOP + LANE * ranks + 46
    link = (message_bytes, ranks, alpha_us / 1e6, beta_gb_per_s)
    rows = [_row(now, rank) for rank in range(ranks)]
    return (
        f'<div style="min-height:4.5em"><b>Step {now.number} of {len(steps) - 1}</b>, {now.phase}: {_does(now)}<br>'
        f"{_costs(now.number, *link)}</div>"
        f'<div style="color:{canvas.QUIET}">{_legend(ranks)}</div><svg viewBox="0 0 {WIDTH} {height}" width="100%" '
        f'font-size="11" font-family="sans-serif" fill="{canvas.INK}">'
        f"{_heads(ranks)}{''.join(rows)}{_clock(now.number, TOP + LANE * ranks + 14, *link)}</svg>"
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
    sent, took = (
        sent_bytes(number, message_bytes, ranks),
        steps_seconds(number, message_bytes, ranks, alpha_s, beta_gb_per_s),
    )
    every = steps_seconds(steps_of(ranks), message_bytes, ranks, alpha_s, beta_gb_per_s)
    waits = units.percent(steps_of(ranks) * alpha_s / every)
    in_all = units.size(sent_bytes(steps_of(ranks), message_bytes, ranks))
    begun = f"So far a rank has sent {units.size(sent)} in {units.seconds(took)}; " if number else ""
    end = f"a whole all-reduce sends {in_all} a rank in {units.seconds(every)}, of which {waits} is latency."
    return begun + end if number else end.capitalize()


def _legend(ranks: int) -> str:
    marks = {
        "a rank's values, in a partial sum": PART,
        "in a whole chunk": shade(ranks, ranks),
        "latency": canvas.WAIT,
        "transfer": canvas.COMMUNICATE,
    }
    framed = f'<span style="color:{MOVED}">▣</span> has just arrived'
    return " &nbsp; ".join([*(f'<span style="color:{color}">■</span> {name}' for name, color in marks.items()), framed])


def _heads(ranks: int) -> str:
    cell = GRID / ranks
    middle = f'y="{TOP - 6}" text-anchor="middle" font-size="9"'
    names = [f'<text x="{LEFT + cell * (chunk + 0.5):.1f}" {middle}>{chunk}</text>' for chunk in range(ranks)]
    return "".join([f'<text x="{LEFT}" y="12">chunk →</text>', *names])


def _row(now: Step, rank: int) -> str:
    ranks, y = len(now.held), TOP + LANE * rank
    cell, parts = GRID / ranks, [f'<text x="0" y="{y + 17}">rank {rank}</text>']
    stripe = (cell - 6) / ranks
    for chunk, held in enumerate(now.held[rank]):
        x = LEFT + cell * chunk
        color = shade(ranks, ranks) if now.is_whole(rank, chunk) else PART
        parts.append(
            f'<rect x="{x + 2:.1f}" y="{y + 2}" width="{cell - 4:.1f}" height="{LANE - 4}" '
            f'fill="white" stroke="{canvas.HAIRLINE}"/>'
        )
        parts += [
            f'<rect x="{x + 3 + stripe * other:.2f}" y="{y + 4}" width="{stripe:.2f}" height="{LANE - 8}" '
            f'fill="{color}"/>'
            for other in sorted(held)
        ]
    if now.moves:
        x = LEFT + cell * now.moves[rank].receive
        parts.append(
            f'<rect x="{x + 1.5:.1f}" y="{y + 1.5}" width="{cell - 3:.1f}" height="{LANE - 3}" fill="none" '
            f'stroke="{MOVED}" stroke-width="2.5"/>'
        )
        said = f"sends {now.moves[rank].send}, receives {now.moves[rank].receive}"
        parts.append(f'<text x="{LEFT + GRID + 10}" y="{y + 17}" fill="{canvas.QUIET}">{said}</text>')
    return "".join(parts)


def _clock(number: int, y: int, message_bytes: float, ranks: int, alpha_s: float, beta_gb_per_s: float) -> str:
    """Draw the time of all steps, latency and transfer of each after one another; those to come are pale."""
    every = steps_seconds(steps_of(ranks), message_bytes, ranks, alpha_s, beta_gb_per_s)
    one = GRID / steps_of(ranks)
    wait = GRID * alpha_s / every
    bars = []
    for step in range(steps_of(ranks)):
        pale = "" if step < number else ' opacity="0.25"'
        x = LEFT + one * step
        for start, width, color in ((x, wait, canvas.WAIT), (x + wait, one - wait, canvas.COMMUNICATE)):
            bars.append(f'<rect x="{start:.2f}" y="{y}" width="{width:.2f}" height="{BAR}" fill="{color}"{pale}/>')
    ends = (
        f'<text x="0" y="{y + 10}">time</text><text x="{LEFT + GRID + 10}" y="{y + 10}">{units.seconds(every)}</text>'
    )
    return "".join([*bars, ends])


def explore() -> ipywidgets.VBox:
    """Return the sliders and a play button with the step that they show."""
    long = {"style": {"description_width": "110px"}, "layout": {"width": "370px"}}
    step = ipywidgets.IntSlider(1, 0, steps_of(4), description="step", **long)
    play = ipywidgets.Play(value=1, min=0, max=steps_of(4), interval=1500)
    knobs = {
        "ranks": ipywidgets.IntSlider(4, *RANKS, description="ranks N", **long),
        "message_bytes": ipywidgets.SelectionSlider(
            options=list(SIZES.items()), value=2**20, description="message s", **long
        ),
        "alpha_us": ipywidgets.SelectionSlider(options=ALPHAS_US, value=5, description="α a step, µs", **long),
        "beta_gb_per_s": ipywidgets.SelectionSlider(options=BETAS_GB_PER_S, value=100, description="β, GB/s", **long),
    }
    shown = ipywidgets.HTML()

    def draw(_change=None) -> None:
        play.max = step.max = steps_of(knobs["ranks"].value)
        shown.value = picture(step=step.value, **{name: knob.value for name, knob in knobs.items()})

    ipywidgets.jslink((play, "value"), (step, "value"))
    for knob in (step, *knobs.values()):
        knob.observe(draw, names="value")
    draw()
    rows = [[step, play], [knobs["ranks"], knobs["message_bytes"]], [knobs["alpha_us"], knobs["beta_gb_per_s"]]]
    return ipywidgets.VBox([*map(ipywidgets.HBox, rows), shown])
