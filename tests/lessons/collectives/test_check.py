"""The checks of lab 09: a ring by the kind of its fault, and benchmarks with a bug by the rows of a real launch."""

import json
from random import Random

import pytest
from made_collectives import made_ring

from labkit.course import answers
from labkit.course.verdict import RIGHT, WRONG
from labkit.launching import launch
from lessons import collectives
from lessons.collectives.exercises import SYMPTOMS, check, judge_ring, judge_run, verdict_of
from lessons.collectives.plan import VARIANTS, Trial

SETTINGS = check.by_name["ring_step"].inputs

pytestmark = pytest.mark.usefixtures("elsewhere")


def right(r, s, n):
    return (r - s) % n, (r - s - 1) % n, s < n - 1


CASES = {
    "right": (right, ""),
    "any numbering": (lambda r, s, n: ((r - s + 1) % n, (r - s) % n, s < n - 1), ""),
    "from the wrong side": (lambda r, s, n: ((r + s) % n, (r + s + 1) % n, s < n - 1), "mismatch"),
    "one number for both": (lambda r, s, n: ((r - s) % n, (r - s) % n, s < n - 1), "mismatch"),
    "up, not down": (lambda r, s, n: ((r + s) % n, (r + s - 1) % n, s < n - 1), "overwritten"),
    "always adds": (lambda r, s, n: (*right(r, s, n)[:2], True), "twice"),
    "adds once too often": (lambda r, s, n: (*right(r, s, n)[:2], s < n), "twice"),
    "never adds": (lambda r, s, n: (*right(r, s, n)[:2], False), "replaced"),
    "adds once too seldom": (lambda r, s, n: (*right(r, s, n)[:2], s < n - 2), "replaced"),
    "always its own chunk": (lambda r, s, n: (r, (r - 1) % n, s < n - 1), "twice"),
    "stops half way": (lambda r, s, n: right(r, s, n) if s < n - 1 else None, "no_gather"),
    "begins again": (lambda r, s, n: (*right(r, s % (n - 1), n)[:2], s < n - 1), "overwritten"),
    "the same chunk round": (
        lambda r, s, n: (
            right(r, s, n) if s < n - 1 else (*right(r, n - 1, n)[:2], False) if s == n - 1 else ((r + 1) % n, r, False)
        ),
        "unfinished",
    ),
    "no modulo": (lambda r, s, n: (r - s, r - s - 1, s < n - 1), "range"),
    "mod one fewer": (lambda r, s, n: ((r - s) % max(1, n - 1), (r - s - 1) % max(1, n - 1), s < n - 1), "mismatch"),
    "by the rank's own number": (lambda r, s, n: ((s - r) % n, (s - r - 1) % n, s < n - 1), "mismatch"),
    "two values": (lambda r, s, n: right(r, s, n)[:2], "form"),
    "none": (lambda r, s, n: None, "form"),
    "floats": (lambda r, s, n: (0.0, 1.0, True), "form"),
    "a number for whether": (lambda r, s, n: (*right(r, s, n)[:2], 1), "form"),
}


def judged(function):
    """Give the verdict on a function's results as they come back from a worker, through JSON."""
    return judge_ring(json.loads(json.dumps([function(*setting) for setting in SETTINGS])), SETTINGS)


@pytest.mark.parametrize("name", CASES)
def test_each_fault_by_its_kind(name):
    function, kind = CASES[name]
    verdict = judged(function)
    assert verdict.outcome == (WRONG if kind else RIGHT)
    assert list(verdict.faults) == [kind] * bool(kind), verdict
    assert bool(verdict.merits) == (not kind)


@pytest.mark.parametrize("part", range(3))
def test_one_slip_in_the_largest_ring_is_found(part):
    def slipped(rank, step, n):
        move = [*right(rank, step, n)]
        if (rank, n) == (n - 1, SETTINGS[-1][2]) and step == n - 2:
            move[part] = not move[2] if part == 2 else (move[part] + 1) % n
        return move

    assert len(judged(slipped).faults) == 1


def test_faults_say_where_and_what():
    def said(name):
        return next(iter(judged(CASES[name][0]).faults.values()))

    assert said("from the wrong side").startswith(
        "with 3 ranks, at step 0, rank 2 sends chunk 2, but rank 0 takes it for chunk 1"
    )
    assert "at step 2, rank 0's chunk 0 gets the values of rank 0 a second time: from here on" in said("always adds")
    assert "of 9 chunks are whole after all 4 steps" in said("the same chunk round")


def test_whole_rings_are_asked_for_others_by_another_seed():
    cases = check.by_name["ring_step"].cases.make
    for rows in (SETTINGS, cases(Random(1))):
        rings = {n for _, _, n in rows}
        assert {2, 3} < rings and len(rings) == 5
        assert len(rows) == len(set(rows)) == sum(2 * (n - 1) * n for n in rings)
    assert len({tuple(cases(Random(seed))) for seed in range(20)}) > 5


def test_every_benchmark_of_a_launch_is_named_by_its_own_fault():
    run = launch(Trial.small(variants=VARIANTS), progress=False)
    for row in collectives.symptoms(run).to_dict("records"):
        verdict = verdict_of(row)
        wrong = row["variant"] != "right"
        assert (list(verdict.faults), verdict.outcome) == ([row["variant"]] * wrong, WRONG if wrong else RIGHT), verdict


def test_verdicts_hold_at_their_bounds():
    times = {"seconds": 1.0, "late_seconds": 0.09}
    rates = {"claimed_gb_per_s": 1.0, "bus_gb_per_s": 1.0}
    row = {"variant": "some", "ranks": 2, "wrong_ranks": 0, "wrong_share": 0.0} | times | rates
    changes = {
        "unsynchronised": {"late_seconds": 0.11},
        "wrong_factor": {"claimed_gb_per_s": 1.2},
        "no_all_gather": {"wrong_ranks": 1, "wrong_share": 0.25},
    }
    assert not verdict_of(row).faults
    assert {name: list(verdict_of(row | change).faults) for name, change in changes.items()} == {
        name: [name] for name in SYMPTOMS
    }


UNUSUAL = """
def ring_step(rank, step, ranks):
    chunk = (rank + 1 - step) % ranks
    return [chunk, (chunk + ranks - 1) % ranks, step + 1 < ranks]
"""


def test_an_unusual_step_runs_in_the_ring_is_timed_and_is_drawn_as_yours():
    answers.save("collectives.ring_step", UNUSUAL)
    assert collectives.yours("ring_step") == "", "it was not checked"
    verdict = check("ring_step", gpus=3)
    assert verdict.outcome == RIGHT, verdict
    assert "on 3 CPU processes" in verdict.merits[1] and "with your step" in verdict.merits[2]
    plan = collectives.Ring.small(gpus=3, lengths=(1, 1000), yours=collectives.yours("ring_step"))
    lines = collectives.ring_lines(launch(plan, progress=False))
    assert {*lines["method"]} == {"ours", "library", "yours"} and (lines["status"] == "ok").all()
    labels = collectives.rings_chart(lines, None).axes[0].get_legend_handles_labels()[1]
    assert any(label.startswith("ring with your step") for label in labels)


def test_a_step_that_goes_wrong_among_processes_alone_is_seen_there(tmp_path):
    (file := tmp_path / "collectives_ring_step.py").write_text(UNUSUAL.replace("step + 1 < ranks", "step + 2 < ranks"))
    run = launch(collectives.Ring.small(gpus=3, lengths=(1000, 4096), yours=str(file)), progress=False)
    assert [*judge_run(run).faults] == ["wrong_sums"]


def test_a_ring_that_sends_whole_messages_sends_too_much(tmp_path):
    run = made_ring(tmp_path / "run", yours=True, sent=lambda right: 2 * right)
    assert [*judge_run(run).faults] == ["bytes"]
    assert judge_run(made_ring(tmp_path / "right", yours=True)).outcome == RIGHT
