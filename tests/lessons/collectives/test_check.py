"""What is wrong with a benchmark of an all-reduce is named from its row alone, of real launches."""

import pytest

from labkit.course.verdict import RIGHT, WRONG
from labkit.engine.launch import launch
from lessons import collectives
from lessons.collectives.exercise import SYMPTOMS, diagnose, verdict_of
from lessons.collectives.plan import VARIANTS, Trial


@pytest.fixture(scope="module")
def trial():
    return launch(Trial.small(variants=VARIANTS))


@pytest.fixture(scope="module")
def rows(trial):
    return {row["variant"]: row for row in collectives.symptoms(trial).to_dict("records")}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_named_by_its_own_fault(rows, variant):
    verdict = verdict_of(rows[variant])
    assert set(verdict.faults) == (set() if variant == "right" else {variant}), verdict
    assert verdict.outcome == (RIGHT if variant == "right" else WRONG)


def test_verdicts_hold_at_their_bounds(rows):
    row = rows["right"] | {"seconds": 1.0, "late_seconds": 0.09, "again_seconds": 1.0}
    assert not verdict_of(row).faults
    assert set(verdict_of(row | {"late_seconds": 0.11}).faults) == {"unsynchronised"}
    assert set(verdict_of(row | {"calls_before": 0}).faults) == {"cold"}
    assert set(verdict_of(row | {"claimed_gb_per_s": 1.2 * row["bus_gb_per_s"]}).faults) == {"wrong_factor"}
    wrong = {"wrong_ranks": 1, "wrong_share": 0.25}
    assert set(verdict_of(row | wrong | {"wrong_on_rank_0": True}).faults) == {"no_all_gather"}
    assert set(verdict_of(row | wrong | {"wrong_on_rank_0": False}).faults) == {"rank_0_only"}


def test_sentences_give_the_rows_numbers(rows):
    row = rows["right"] | {"seconds": 2e-3, "late_seconds": 5e-3, "again_seconds": 7e-3}
    assert "stops after 2.00 ms, 5.00 ms before the data are there" in verdict_of(row).faults["unsynchronised"]
    cold = verdict_of(row | {"late_seconds": 0.0, "calls_before": 0}).faults["cold"]
    assert "shows 2.00 ms; the same call once more takes 7.00 ms" in cold


def test_the_suspects_are_the_bugs_in_an_order_that_says_nothing():
    assert sorted(collectives.suspects()) == sorted(SYMPTOMS) and list(collectives.suspects()) != list(SYMPTOMS)


def test_everyone_is_named_by_letter(trial):
    lines = diagnose(trial, {}).data.splitlines()
    assert [line.split()[1] for line in lines] == [f"**{letter}**:" for letter in "ABCDEF"]
    assert lines[0] == "- **A**: nothing is wrong with it."
