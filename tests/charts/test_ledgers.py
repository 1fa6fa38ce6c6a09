"""Ledgers on charts: an item keeps its colour, which means nothing else, and bars lie end to end."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from labkit.charts import canvas, ledgers


def test_a_colour_means_one_item_and_nothing_else():
    elsewhere = {canvas.COMPUTE, canvas.COMMUNICATE, canvas.WAIT, canvas.IDLE, canvas.MEASURED, canvas.RECORDED}
    elsewhere |= {canvas.PUBLISHED, canvas.THEORY, canvas.PREDICTED, *canvas.SERIES}
    assert len(set(ledgers.COLORS.values())) == len(ledgers.COLORS)
    assert not elsewhere & set(ledgers.COLORS.values())
    assert ledgers.NAMES.keys() == ledgers.COLORS.keys()


def test_bars_lie_end_to_end_and_a_run_without_an_allocator_has_no_peak():
    _figure, ax = canvas.canvas()
    sizes = {"parameters": np.array([1.0, 2.0]), "optimizer": np.array([3.0, 0.0])}
    ends = ledgers.held_bars(ax, [0, 1], sizes)
    assert list(ends) == [4.0, 2.0]
    assert [(bar.get_x(), bar.get_width()) for bar in ax.patches] == [(0, 1), (0, 2), (1, 3), (2, 0)]
    ledgers.peak_marks(ax, [0, 1], pd.Series([np.nan, np.nan]))
    assert not ax.collections
    ledgers.peak_marks(ax, [0, 1], pd.Series([5.0, 2.5]))
    assert set(ax.get_legend_handles_labels()[1]) == {"parameters", "optimizer states", "measured peak"}


def test_large_memory_reads_in_gib():
    assert ledgers.memory_unit(40_000) == (1024, "GiB")
    assert ledgers.memory_unit(700) == (1, "MiB")


@pytest.mark.parametrize("forward_ms", [62, 70, 80, 90, 100, 120])
def test_a_phase_is_named_where_its_name_fits(forward_ms):
    """Of a second; an optimizer's step of 12 ms has room for no word."""
    times = np.cumsum([0, 400, 12, forward_ms, 588 - forward_ms])
    table = pd.DataFrame({"t_ms": times, "phase": ["backward", "optimizer", "forward", "backward", "backward"]})
    table = table.assign(reserved_mib=0.0, allocated_mib=2.0, **{f"{kind}_mib": 1.0 for kind in ledgers.LAYERS})
    figure, axes = canvas.canvas(2, 1, width=11.5)
    ledgers.memory_layers(axes[0], table)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes[0].texts]
    assert len(boxes) >= 2 and not any(box.overlaps(other) for box, other in combinations(boxes, 2))
