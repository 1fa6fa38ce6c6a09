"""Workers that raise, exit and are killed: the culprit is named with its own words, and nothing is left."""

from __future__ import annotations

import pytest
from failing_launches import EITHER, failed, place, works
from failing_plan import Unmeeting, Written

from labkit.engine.errors import WorkerDied, WorkerHung, WorkerRaised

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]
LATE = "ValueError: this rank raises on purpose, late"
AT_POINT_1 = " at point 1 (seed=0, fault={})"
BEFORE = " before the first point"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return tmp_path_factory.mktemp("written")


@pytest.mark.parametrize(
    ("source", "said", "rank"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'", EITHER),
        ("def measure(", "SyntaxError: '(' was never closed (failing_as_written.py, line 2)", EITHER),
        ("import os, sys\nif os.environ['RANK'] == '1': sys.exit('no such GPU')", "SystemExit: no such GPU", 1),
        ("import os\nif os.environ['RANK'] == '1': os._exit(3)", "ended with exit status 3 before it had finished", 1),
    ],
)
def test_a_module_that_cannot_be_imported(written, monkeypatch, source, said, rank):
    monkeypatch.syspath_prepend(written)
    (written / "failing_as_written.py").write_text(f"import failing_plan\n{source}\n")
    raised = "exit status" not in said
    error = failed(WorkerRaised if raised else WorkerDied, plan=Written, rank=rank)
    assert error.sentence == f"rank {error.rank} {'raised ' if raised else ''}{said.splitlines()[0]}" + BEFORE
    assert error.point is None
    assert 'failing_as_written.py", line ' in error.detail or not raised


def test_a_raise_while_the_process_group_is_made():
    error = failed(WorkerRaised, plan=Unmeeting)
    assert error.sentence.startswith("rank 1 raised ")
    assert "nowhere0" in error.sentence
    assert "init_process_group" in error.detail


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ("raise", WorkerRaised, "raised ValueError: this rank raises on purpose"),
        ("exit 3", WorkerDied, "ended with exit status 3 before it had finished"),
    ],
)
def test_a_fault_before_the_first_point(fault, kind, said):
    error = failed(kind, before=fault)
    assert error.sentence == f"rank 1 {said}{BEFORE}"
    assert error.run.rows.empty


@pytest.mark.parametrize(
    ("fault", "said", "shown"),
    [
        ("unpicklable", "Unpicklable: cannot cross a process", place("raise error") + "raise_unpicklable"),
        ("wordless", "Wordless: (its message could not be read)", place("raise Wordless") + "raise_without_words"),
        ("deep", "RecursionError: maximum recursion depth exceeded", place("even(depth + 1)") + "odd"),
        ("long", "ValueError: a long message", place("100_000)") + "raise_at_length"),
        ("half a character", r"ValueError: half a pair: \ud800", place("ud800") + "raise_half_a_character"),
        ("like a victim", "ValueError: broken pipe in the plumbing", place("broken pipe") + "raise_like_a_victim"),
        ("system exit 0", "SystemExit: 0", place("sys.exit(0)") + "<lambda>"),
        ("interrupt", "KeyboardInterrupt", place("os.kill(") + "<lambda>"),
        ("late, in disguise", LATE, place("purpose, late") + "raise_after_the_victims"),
        ("late, hidden", LATE, place("purpose, late") + "raise_after_the_victims"),
        (
            "raise, then a kill",
            "ValueError: this rank raises on purpose",
            place('("this rank raises on purpose")') + "raise_value_error",
        ),
    ],
)
def test_a_raise(fault, said, shown):
    """The others wait in a collective, and raise as well when the culprit is gone, or before it says so."""
    error = failed(WorkerRaised, "none", fault, "none")
    assert error.sentence.startswith(f"rank 1 raised {said}")
    assert error.sentence.endswith(AT_POINT_1.format(fault))
    assert "  " not in error.sentence
    assert len(error.sentence) < 500
    assert shown in error.detail
    assert error.run.status["launches"] == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_of_several_raises_is_blamed(rank):
    error = failed(WorkerRaised, "none", "first", rank=rank, gpus=3)
    assert error.sentence == f"rank {rank} raised ValueError: rank {rank} raises its own" + AT_POINT_1.format("first")


@pytest.mark.parametrize(
    ("fault", "said", "logged"),
    [
        pytest.param("exit 3", "ended with exit status 3 before it had finished", "", marks=pytest.mark.quick),
        ("kill", "was killed by SIGKILL (where nobody sent it, the system had run out of memory)", ""),
        ("terminate", "was killed by SIGTERM", ""),
        ("segfault", "was killed by SIGSEGV", place("the crash")),
    ],
)
def test_a_death(fault, said, logged):
    """The others wait in a collective and raise "connection closed by peer"; fresh workers measure the last point."""
    error = failed(WorkerDied, "none", fault, "none", gpus=3)
    assert error.sentence == f"rank 1 {said}" + AT_POINT_1.format(fault)
    assert logged.removesuffix(", in ") in error.logs
    assert error.run.status["launches"] == 2
    assert (error.run.rows["point"] == 2).sum() == 3


@pytest.mark.parametrize("fault", ["kill, hidden", "kill, forgotten", "terminate, forgotten"])
def test_a_death_before_another_rank_raises_an_error_of_its_own(fault):
    error = failed(WorkerDied, "none", fault)
    assert error.sentence.startswith("rank 1 was killed by SIG")


@pytest.mark.parametrize(("gpus", "rank"), [(1, 0), (2, EITHER)])
def test_all_ranks_exit_with_status_0(gpus, rank):
    """A run of one worker is such a case. No rank is left to miss the others, and no status is an error."""
    works()
    error = failed(WorkerDied, "none", "all exit 0", "none", gpus=gpus, rank=rank)
    said = f"rank {error.rank} ended before it had finished, without an error status"
    assert error.sentence == said + AT_POINT_1.format("all exit 0")
    assert (error.run.rows["point"] == 2).sum() == gpus


def test_a_death_among_ranks_that_do_not_end():
    error = failed(WorkerDied, "none", "exit 3 among the deaf")
    assert error.sentence.startswith("rank 1 ended with exit status 3 before it had finished")
    assert error.run.status["measuring_seconds"] < 50, "ten on a machine that does nothing else; its patience is 60 s"


def test_a_rank_that_returns_early():
    error = failed(WorkerHung, "none", "return early", patience_s=3)
    assert "rank 0 waits in all_reduce (failing_worker.py:" in error.sentence
    assert "rank 1 has returned, and waits for the others to end this point" in error.sentence
