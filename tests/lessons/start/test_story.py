"""Each verdict of lab 00 follows its table: the claim where it holds, its opposite where it does not."""

import pandas as pd
import pytest
from made import CPU, attributed, cost_run, gpu_node, hello_run

from lessons import start


def ranks(**columns):
    return pd.DataFrame({"rank": [0, 1, 2], "pid": [11, 12, 13], "sum_is_right": [True] * 3} | columns)


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ({"gpu": [0, 1, 2]}, ("✔", "3 ranks", "GPU of its own")),
        ({}, ("✔", "process of its own")),
        ({"gpu": [0, 1, 1]}, ("✘", "share a GPU")),
        ({"gpu": [0, 1, 2], "pid": [11, 12, 12]}, ("✘", "share a process")),
        ({"sum_is_right": [True, False, True]}, ("✘", "rank 1 got a wrong sum")),
        ({"gpu": [0, 0, 0], "sum_is_right": [False, True, False]}, ("✘", "share a GPU", "rank 0 got", "rank 2 got")),
    ],
)
def test_ranks(columns, parts):
    text = start.all_there(ranks(**columns)).data
    assert all(part in text for part in parts)
    assert ("✔" in text) != ("✘" in text)


def test_one_rank_alone_proves_nothing():
    assert "✔" not in start.all_there(ranks().iloc[:1]).data


@pytest.mark.parametrize(
    ("seconds", "slow"), [([1.5, 0.01, 0.02, 0.01], True), ([0.02, 0.01, 0.01], False), ([0.005, 0.01, 0.01], False)]
)
def test_the_first_sum_is_slow_or_not(seconds, slow):
    sums, on_cpus = (attributed([{"seconds": one} for one in seconds], on_gpus=on_gpus) for on_gpus in (True, False))
    for table in (sums, on_cpus):
        assert start.first_sum(table).data.startswith("**The first sum took") is slow
    within = attributed([{"seconds": one} for one in (0.05, 0.01, 0.01, 0.06)], on_gpus=False)
    assert "no slower than some later ones" in start.first_sum(within).data, "noise proves no rule"
    assert start.first_over_later(sums) == pytest.approx(seconds[0] / 0.01)


def test_the_longest_part_of_the_start_up_is_none_of_the_sums():
    def startup(torch_seconds):
        parts = [("start", 0.0, 1.0), ("import torch", 1.0, 1.0 + torch_seconds), ("the first sum", 5.0, 9.5)]
        rows = [(rank, part, begin, end, end - begin) for rank in (0, 1) for part, begin, end in parts]
        return pd.DataFrame(rows, columns=["rank", "part", "start_s", "end_s", "seconds"])

    assert "**import torch, 3.00 s**" in start.longest_part(startup(3.0)).data
    assert "4.00 s pass" in start.longest_part(startup(3.0)).data
    assert "**start, 1.00 s**" in start.longest_part(startup(0.5)).data


@pytest.mark.parametrize(("sweep", "times", "saves"), [(9.0, "1.2×", True), (140.0, "19×", False)])
def test_a_sweep_saves_or_not(sweep, times, saves):
    seconds = {"torchrun": 7.0, "launch": 7.5, "sweep": sweep}
    rows = [{"way": way, "seconds": wall, "spread_seconds": 0.1} for way, wall in seconds.items()]
    columns = {"startup_seconds": 1.0, "first_row_seconds": 2.5, "over_torchrun": 1.0}
    text = start.sweep_saves(attributed([row | columns for row in rows], points=20, source="recorded on 2 × H200")).data
    assert times in text
    assert ("measuring takes longer" in text) is not saves


def test_the_time_of_every_launch_is_the_sum_of_its_parts(tmp_path):
    lines = start.sweep_saves(start.launch_costs(cost_run(tmp_path / "cost"))).data.splitlines()
    head, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    parts = ["start-up, s", "then to the first row, s", "after it, s"]
    whole, *of_it = ([float(row[head.index(name)]) for row in rows[1:]] for name in ("call to return, s", *parts))
    assert [sum(row) for row in zip(*of_it, strict=True)] == pytest.approx(whole, abs=0.02)
    shares = [after / all_of_it for after, all_of_it in zip(of_it[2], whole, strict=True)]
    assert shares == pytest.approx([1 - 1.5 / 7.4, 1 - 6.0 / 7.0, 1 - 1.5 / 7.2, 1 - 1.5 / 8.4], abs=0.01)


def test_what_a_gpu_computes_while_a_gigabyte_comes_in():
    assert "15 TFLOP" in start.while_it_moves(start.best_times(gpu_node(1))).data
    assert "No datasheet" in start.while_it_moves(start.best_times(CPU)).data


FAILED = {"the_rank": ["raises", "hangs"], "failed_rank": [1, 1], "blamed_rank": [1, 1], "rows_kept": [4, 4]}


@pytest.mark.parametrize(
    ("columns", "part"),
    [
        ({}, "✔"),
        ({"blamed_rank": [1, 0]}, "another rank is blamed where the rank hangs"),
        ({"rows_kept": [0, 4]}, "no row is kept where the rank raises"),
        ({"processes_left": [1, 2]}, "processes are left where the rank raises and hangs"),
    ],
)
def test_what_failures_leave(columns, part):
    table = pd.DataFrame(FAILED | {"processes_left": [0, 0]} | columns)
    text = start.nothing_left(table).data
    assert part in text
    assert ("✔" in text) == (not columns)


def test_an_error_is_shown_without_the_launchers_frames():
    frames = [
        ("worker/__init__.py", "fail"),
        ("enter.py", "run_rank"),
        ("elastic/api.py", "_wrap"),
        ("x.py", "<module>"),
    ]
    stack = "".join(f'  File "{path}", line 7 in {function}\n' for path, function in frames)
    shown = start.show_error(RuntimeError(f"rank 1 hangs\n\n{stack}\nno rank printed anything")).data
    assert 'line 7 in fail\n  File "enter.py", line 7 in run_rank\n  … the launcher' in shown
    assert "elastic" not in shown and "<module>" not in shown and shown.endswith("no rank printed anything\n```")
    raised = 'Traceback\n  File "enter.py", line 7, in run_rank\n    measure()\n  File "a.py", line 1, in fail\n'
    assert raised in start.show_error(RuntimeError(raised)).data


def test_one_minute_says_what_each_run_shows(tmp_path):
    failures = pd.DataFrame(FAILED | {"processes_left": [0, 0]})
    here = {"hello": hello_run(tmp_path / "cpu", device="cpu", gpus=2), "failures": failures}
    recorded = {"hello": hello_run(tmp_path / "gpu"), "cost": cost_run(tmp_path / "cost")}
    rows = [line.split(" | ")[1:] for line in start.in_one_minute(here, recorded).data.splitlines()[2:]]
    assert [here_says == "not measured" for here_says, _ in rows] == [True, False, True, False]
    assert ["not measured" in recorded_says for _, recorded_says in rows] == [False, False, False, True]
    assert "15.6 ms" in rows[0][1] and "2 of 2" in rows[3][0]
