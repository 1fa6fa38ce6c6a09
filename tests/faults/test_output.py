"""Workers that print much, or what is no text: the error shows a bounded head and tail, the log file has all of it."""

from __future__ import annotations

import pytest
from failing_launches import failed, place
from failing_output import MEGABYTE

from labkit.engine.errors import WorkerDied, WorkerRaised

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_a_hundred_megabytes_a_rank():
    """Every rank's first and last lines are in the error, and so is the culprit's traceback."""
    error = failed(WorkerRaised, "none", "flood", within_s=60)
    assert error.sentence == "rank 1 raised ValueError: this rank raises on purpose at point 1 (seed=0, fault=flood)"
    assert place('on purpose")') + "raise_value_error" in error.detail
    for rank in (0, 1):
        assert f"rank {rank} printed:\n    the first line of rank {rank}\n" in error.logs
        assert f"    the last line of rank {rank}" in error.logs
        assert error.run.log_file(rank).stat().st_size > 100 * len(MEGABYTE)
    assert error.logs.count("bytes are left out here: all of them are in rank") == 2


@pytest.mark.parametrize(
    ("fault", "how", "shown", "logged"),
    [
        ("one line", "was killed by SIGKILL", ("the start of it", "the end of it"), b"y" * 1_000_000),
        ("bytes", "ended with exit status 3", ("before ·", "· after\n    red"), bytes(range(256)) * 40),
        ("progress", "ended with exit status 3", ("printed:\n    copying: done",), b"\rcopying: 99 %\rcopying: done"),
        ("from C", "was killed by SIGKILL", ("from C, never flushed\n    written to standard error",), b"from C"),
    ],
)
def test_what_is_hard_to_show(monkeypatch, fault, how, shown, logged):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # it would do for C what the engine has to
    error = failed(WorkerDied, "none", fault)
    assert error.sentence.startswith(f"rank 1 {how}")
    assert all(text in error.logs for text in shown)
    assert not set(map(chr, range(32))) - {"\n", "\t"} & set(str(error))
    assert logged in error.run.log_file(1).read_bytes()
