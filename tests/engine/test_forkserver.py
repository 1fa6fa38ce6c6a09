"""One way to start workers, by public names of Python's: what is forked ends, and what it leaves behind is freed."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import torch
from faults_plan import Faults

from labkit.engine.elastic import launch_config
from labkit.engine.messages import StartWorkers
from labkit.engine.session import AgentSession
from labkit.launching import launch
from labkit.repository import CODE


def test_no_private_name_of_multiprocessing_or_atexit_is_used():
    names = "multiprocessing|forkserver|popen_forkserver|resource_tracker|process|util|atexit|context"
    private = re.compile(rf"\b({names})\._[a-z]|\b_(forkserver|resource_tracker|run_exitfuncs)\b")
    files = [file for folder in CODE for file in folder.rglob("*.py")]
    assert [file.name for file in files if private.search(file.read_text(encoding="utf-8"))] == []


def test_two_launches_share_one_forkserver():
    parents = []
    for _ in range(2):
        run = launch(Faults(faults=("parents",)))
        parents.append(set(run.rows["parents"].dropna()))
    assert len(parents[0]) == 1, "both ranks are forked by one process of their launch"
    (one,), (other,) = ([text.split() for text in found] for found in parents)
    assert one[1:] == other[1:] and one[0] != other[0]
    assert AgentSession._current is not None and one[-1] == str(AgentSession._current.pid)


def test_who_connects_to_the_forkserver_and_sends_nothing_ends_nothing():
    launch(Faults())
    agent = AgentSession._current
    assert agent is not None
    (listener,) = [file for file in Path(agent._folder).rglob("*") if file.is_socket()]
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(listener))
    launch(Faults())
    assert AgentSession._current is agent


def test_the_process_that_forks_the_workers_does_not_ask_cuda(monkeypatch, tmp_path):
    """CUDA cannot be used in a process whose parent has asked it for its GPUs."""

    def asked(*_):
        raise AssertionError("CUDA was asked")

    for name in ("is_available", "device_count", "init"):
        monkeypatch.setattr(torch.cuda, name, asked)
    request = StartWorkers(
        kind="start", folder=str(tmp_path), launch=1, first_point=0, workers=2, cwd="/", path=[], sampled=None,
        environment={},
    )  # fmt: skip
    assert launch_config("run", tmp_path, request).numa_options is None


def test_a_data_loader_in_a_worker_is_forked_as_under_torchrun():
    rows = launch(Faults(faults=("a loader",))).rows
    assert rows["loaded"].dropna().tolist() == [[0, 1, 4]] * 2
