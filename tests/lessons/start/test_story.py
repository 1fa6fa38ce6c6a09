"""Each sentence of lab 00 follows its table: said where the claim holds, its opposite where it does not."""

from types import SimpleNamespace

import pandas as pd
import pytest
from made import CPU, attributed, gpu_node

from lessons import start


@pytest.mark.parametrize(
    ("node", "device", "size", "said", "unsaid"),
    [
        (gpu_node(4), "cuda", "full", "**4 × NVIDIA H200**: the labs run at full size", "small"),
        (gpu_node(1), "cuda", "full", "Labs that need two GPUs run small, on CPU processes", "no GPU"),
        (gpu_node(4), "cuda", "small", "small runs were asked for", "no GPU"),
        (gpu_node(4), "cuda", "custom", "custom runs were asked for", "small"),
        (CPU, "cpu", "small", "**2 CPU processes stand in for GPUs**", "full size, the size of"),
        (CPU, "cpu", "full", "shows no GPU", "run small"),
    ],
)
def test_size(node, device, size, said, unsaid):
    text = start.explain_size(node, SimpleNamespace(device=device, size=size, gpus=2)).data
    assert said in text
    assert unsaid not in text


def ranks(**columns):
    return pd.DataFrame({"rank": [0, 1, 2], "pid": [11, 12, 13], "sum_is_right": [True] * 3} | columns)


@pytest.mark.parametrize(
    ("columns", "said", "unsaid"),
    [
        (
            {"gpu": [0, 1, 2]},
            "3 ranks answered, each on a GPU of its own. Each got the right sum of all ranks, 3",
            "wrong",
        ),
        ({}, "each a process of its own", "GPU"),
        ({"gpu": [0, 1, 1]}, "**but some share a GPU**", "of its own"),
        ({"gpu": [0, 1, 2], "pid": [11, 12, 12]}, "**but some share a process**", "of its own"),
        ({"sum_is_right": [True, False, True]}, "**Rank 1 got a wrong sum**", "they can communicate"),
        ({"sum_is_right": [False, True, False]}, "**Rank 0, 2 got a wrong sum**", "they can communicate"),
    ],
)
def test_ranks(columns, said, unsaid):
    text = start.explain_ranks(ranks(**columns)).data
    assert said in text
    assert unsaid not in text


def test_one_rank_alone():
    assert start.explain_ranks(ranks(gpu=[0, 1, 2]).iloc[:1]).data.startswith("One rank answered.")


def startup(torch_seconds):
    parts = [("start", 0.0, 1.0), ("import torch", 1.0, 1.0 + torch_seconds), ("the first sum", 5.0, 6.5)]
    rows = [(r, p, a, b, b - a) for r in (0, 1) for p, a, b in parts]
    return pd.DataFrame(rows, columns=["rank", "part", "start_s", "end_s", "seconds"])


@pytest.mark.parametrize(
    ("torch_seconds", "sums", "said", "unsaid"),
    [
        (
            3.0,
            [1.5, 0.01, 0.02, 0.01],
            ("**import torch** (3.00 s)", "took 1.50 s, a later one 10.0 ms", "**Never time the first.**"),
            "little",
        ),
        (0.5, [1.5, 0.01, 0.01, 0.01], ("**the first sum** (1.50 s)", "begins 6.50 s after"), "import"),
        (3.0, [0.02, 0.01, 0.01, 0.01], ("took 20.0 ms, a later one 10.0 ms: here it costs little",), "Never"),
        (3.0, [0.005, 0.01, 0.01, 0.01], ("took 5.00 ms, a later one",), "Never"),
    ],
)
def test_startup(torch_seconds, sums, said, unsaid):
    text = start.explain_startup(startup(torch_seconds), pd.DataFrame({"seconds": sums})).data
    assert all(part in text for part in said)
    assert unsaid not in text


@pytest.mark.parametrize(
    ("rows", "rank", "said", "unsaid"),
    [
        (2, 1, ("`WorkerRaised`: rank 1 raised.", "The cause is rank 1", "2 row(s) from before are kept"), "Nothing"),
        (0, 0, ("The cause is rank 0", "Nothing had been measured before"), "kept"),
        (0, None, ("Nothing had been measured before",), "The cause"),
    ],
)
def test_failure(rows, rank, said, unsaid):
    class WorkerRaised(Exception):
        sentence, run = "rank 1 raised", SimpleNamespace(rows=pd.DataFrame({"said": ["here"] * rows}))

    error = WorkerRaised()
    error.rank = rank
    text = start.explain_failure(error).data
    assert all(part in text for part in said)
    assert unsaid not in text


def test_left():
    assert "No process of that run is left" in start.explain_left([]).data
    text = start.explain_left([SimpleNamespace(pid=41), SimpleNamespace(pid=42)]).data
    assert "**2 process(es) of the run are still alive**: 41, 42." in text


def costs(launch, spread, sweep, first=9.98):
    rows = [("torchrun", 7.0, 1.0, 0.0), ("launch", 7.0 * launch, launch, spread), ("sweep", sweep, sweep / 7, 0.1)]
    columns = ("way", "seconds", "over_torchrun", "spread_over_torchrun")
    return attributed([dict(zip(columns, row, strict=True)) for row in rows], points=20, first_seconds=first)


@pytest.mark.parametrize(
    ("table", "said", "unsaid"),
    [
        (
            costs(1.08, 0.02, 9.0),
            (
                "A later launch() takes 8.0 % more",
                "starts the agent, took 9.98 s",
                "**20 points take 1.2× as long as one point, not 20×**",
            ),
            "within noise",
        ),
        (costs(0.9, 0.02, 9.0, first=float("nan")), ("A later launch() takes 10 % less",), "agent"),
        (costs(1.02, 0.05, 9.0), ("within noise (± 5.0 %)",), "launch() takes 2"),
        (costs(1.08, 0.02, 140.0), ("20 points take 19× as long as one point: here measuring",), "paid once"),
    ],
)
def test_cost(table, said, unsaid):
    text = start.explain_cost(table).data
    assert all(part in text for part in said)
    assert unsaid not in text
