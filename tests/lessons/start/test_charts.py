"""Lab 00's charts: each draws, says its units and source, and no text hides another or leaves it."""

import pandas as pd
import pytest
from figures import checked
from made import CPU, hello_run

from labkit.provenance import of_source
from lessons import start


@pytest.mark.parametrize("gpu", ["NVIDIA H200", "Tesla T4", "NVIDIA B200"])
def test_datasheet_charts(gpu):
    figure = checked(start.best_chart(start.best_times(CPU, gpu)))
    assert not figure.axes[0].patches, "a bar on a log axis means nothing"
    assert all(" ms at " in label.get_text() for label in figure.axes[0].texts), "labels in the axis's unit"


def test_a_node_without_datasheet_shows_the_recorded_one():
    figure = start.best_chart(start.best_times(CPU), start.best_times(CPU, "NVIDIA H200"))
    assert "H200" in figure.axes[0].get_title(loc="left")


@pytest.mark.parametrize(("gpus", "device"), [(4, "cuda"), (8, "cuda"), (2, "cpu")])
def test_start_charts_draw_each_run_in_a_panel(tmp_path, gpus, device):
    runs = hello_run(tmp_path / "run", gpus=gpus, device=device), hello_run(tmp_path / "other", gpus=3)
    figure = checked(start.startup_chart(*map(start.startup, runs)))
    assert all(ax.get_ylim()[0] > ax.get_ylim()[1] for ax in figure.axes), "rank 0 is on top"
    assert [len(ax.get_yticks()) for ax in figure.axes] == [gpus, 3]
    assert len(checked(start.sums_chart(*map(start.sums, runs))).axes) == 2


def test_a_part_of_the_start_up_has_the_same_colour_in_every_run():
    def colors(*parts):
        table = pd.DataFrame(
            {"rank": 0, "part": parts, "start_s": range(len(parts)), "end_s": range(1, len(parts) + 1), "seconds": 1.0}
        )
        (ax,) = start.startup_chart(of_source(table, "made by hand", small=True)).axes
        return {part: bars.patches[0].get_facecolor() for part, bars in zip(parts, ax.containers, strict=True)}

    short = colors("the process starts", "the ranks meet", "the first sum")
    long = colors("the process starts", "the ranks meet", "conditions are measured", "the first sum")
    assert len(set(long.values())) == 4
    assert short.items() <= long.items()


def test_the_wall():
    checked(start.wall_drawing(), drawing=True)


def test_collectives_are_drawn_with_a_sum_in_every_part_that_holds_one():
    figure = checked(start.collectives_drawing(), drawing=True)
    sums = [sum(text.get_text() == "Σ" for text in ax.texts) for ax in figure.axes]
    assert sums == [0, 0, 3, 9], "broadcast, all-gather, reduce-scatter, all-reduce of three ranks"
