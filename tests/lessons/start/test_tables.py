"""Rows of lab 00 → tables, on run folders made by hand: who is there, start-up, what a launch costs, all targets."""

import json

import pytest
from made import CPU, broadcast_run, copies_run, cost_run, gpu_node, hello_run, small_broadcast

from labkit.provenance import fact
from labkit.tables.goals import COLUMNS, scorecard_of
from lessons import start


def test_ranks(tmp_path):
    table = start.ranks(hello_run(tmp_path / "run", sums={2: 5}))
    assert table["rank"].tolist() == table["gpu"].tolist() == [0, 1, 2, 3]
    assert table["pid"].tolist() == [4000, 4001, 4002, 4003]
    assert table["sum_is_right"].tolist() == [True, True, False, True]
    assert table["free_gib"].tolist() == [138.6] * 4


def test_ranks_without_gpus(tmp_path):
    table = start.ranks(hello_run(tmp_path / "run", device="cpu", gpus=2))
    assert list(table.columns) == ["rank", "device", "pid", "cores", "sum_is_right"]
    assert table["sum_is_right"].all()
    assert fact(table, "small")


def test_startup_parts_end_with_the_first_sum(tmp_path):
    table = start.startup(hello_run(tmp_path / "run", gpus=2))
    second = table[table["rank"] == 1].set_index("part")
    assert list(second.index) == ["torchrun starts the worker", "import torch", "join the group", "the first sum"]
    assert second["seconds"].tolist() == pytest.approx([1.9, 2.2, 0.6, 0.9])
    assert second.loc["the first sum", "start_s"] == pytest.approx(4.7)
    assert second["end_s"].max() == pytest.approx(5.6)


def test_sums_give_the_slowest_rank(tmp_path):
    table = start.sums(hello_run(tmp_path / "run"))
    assert len(table) == 20
    assert table["seconds"].iloc[0] == 0.9
    assert table["seconds"].iloc[1:].max() == pytest.approx(0.00048)
    assert fact(table, "ranks") == 4


def test_a_second_seed_adds_sums_and_no_start_up(tmp_path):
    run = hello_run(tmp_path / "run", gpus=2)
    alone = start.startup(run)
    for rank in range(2):
        once = [json.loads(line) for line in run.rows_file(rank).read_text().splitlines()]
        again = [row | {"point": 1, "seed": 1} | ({"seconds": 0.1} if "seconds" in row else {}) for row in once]
        run.rows_file(rank).write_text("".join(json.dumps(row) + "\n" for row in once + again))
    assert start.startup(run).equals(alone)
    sums = start.sums(run)
    assert sums["iteration"].tolist() == list(range(40))
    assert sums["seconds"].iloc[[0, 20]].tolist() == [0.9, 0.1]
    assert len(start.ranks(run)) == 2


def test_best_times_by_hand():
    table = start.best_times(gpu_node(1)).set_index("what")
    assert table.loc["read 1 GB: GPU memory", "least_ms"] == pytest.approx(1 / 4.8)
    assert table.loc["move 1 GB: GPU → GPU, one way", "least_ms"] == pytest.approx(1e3 / (18 * 26.562))
    assert table.loc["move 1 GB: host → GPU", "least_ms"] == pytest.approx(1e3 / 64)
    assert table.loc["compute 1 TFLOP: bfloat16", "least_ms"] == pytest.approx(1e3 / 989.5)
    assert list(start.best_times(CPU, "Tesla T4")["what"]) == [
        "read 1 GB: GPU memory",
        "move 1 GB: host → GPU",
        "compute 1 TFLOP: float32",
    ]
    assert start.best_times(CPU).empty
    assert start.best_times(gpu_node(1, "NVIDIA Unknown")).empty


def test_launch_costs_compare_within_pairs(tmp_path):
    """The machine slows down by 40 % on the way: medians over all would have a spread, the pairs' ratios are exact."""
    table = start.launch_costs(cost_run(tmp_path / "run")).set_index("way")
    assert table["count"].tolist() == [4, 4, 4, 4]
    assert table.loc["launch", "over_torchrun"] == pytest.approx(7.2 / 7.0)
    assert table.loc["sweep", "over_torchrun"] == pytest.approx(8.4 / 7.0)
    assert table.loc["launch", "spread_seconds"] > 0.3
    assert fact(table, "points") == 20


@pytest.mark.parametrize(
    ("knobs", "measured", "met"),
    [
        ({}, [7.2 / 7.0, 1.5 / 6.0, 1.25, 1.2 / 20], [True, True, True, True]),
        ({"launch": 7.9}, [7.9 / 7.0, 1.5 / 6.0, 1.25, 1.2 / 20], [False, True, True, True]),
        ({"first_row": 1.6}, [7.2 / 7.0, 1.6 / 6.0, 1.25, 1.2 / 20], [True, False, True, True]),
        ({"first_startup": 1.6}, [7.2 / 7.0, 1.5 / 6.0, 2.0, 1.2 / 20], [True, True, False, True]),
        ({"sweep_startup": 3.0}, [7.2 / 7.0, 1.5 / 6.0, 1.25, 3.0 / 20], [True, True, True, False]),
    ],
)
def test_launch_scorecard(tmp_path, knobs, measured, met):
    card = scorecard_of(cost_run(tmp_path / "run", **knobs))
    assert card["measured"].tolist() == pytest.approx(measured, abs=6e-4)
    assert card["met"].tolist() == met


def test_a_run_of_the_node_s_card_compares_no_ways_and_has_no_launch_target(tmp_path):
    assert scorecard_of(cost_run(tmp_path / "card", ways=("launch",))).empty
    (figure,) = scorecard_of(cost_run(tmp_path / "two", ways=("launch", "sweep")))["figure"]
    assert "sweep" in figure


def test_scorecard_of_all_labs(tmp_path):
    runs = [
        cost_run(tmp_path / "cost"),
        hello_run(tmp_path / "hello"),
        copies_run(tmp_path / "copies"),
        broadcast_run(tmp_path / "broadcast"),
        small_broadcast(tmp_path / "small"),
    ]
    cards = [scorecard_of(run) for run in runs]
    assert all(list(card.columns) == COLUMNS for card in cards)
    assert [len(card) for card in cards] == [4, 0, 3, 2, 0]
    assert all(card["met"].all() for card in cards)
