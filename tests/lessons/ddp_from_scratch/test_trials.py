"""Real launches: each broken variant shows its own symptom, the right one none."""

import pytest

from labkit.launching import launch
from lessons import ddp_from_scratch
from lessons.ddp_from_scratch.exercises import SYMPTOMS
from lessons.ddp_from_scratch.plan import VARIANTS, Trial

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[2, 3])
def table(request):
    run = launch(Trial.small(gpus=request.param, variants=VARIANTS), progress=False)
    return ddp_from_scratch.symptoms(run).set_index("variant")


def test_every_bug_has_its_words():
    assert set(SYMPTOMS) == set(VARIANTS) - {"right"}


def test_the_right_one_shows_nothing(table):
    right = table.loc["right"]
    assert right[["error_rank_0", "error_worst", "error_later"]].max() < 1e-5
    assert right["ratio"] == pytest.approx(1)
    assert right["collectives"] == right["expected"] > 2
    assert right["before_last_gradient"] == right["expected"] - 1
    assert right["start_apart"] == 0


def test_a_test_on_rank_0_misses_gradients_that_are_right_there_alone(table):
    assert table.loc["one_rank", "error_rank_0"] < 1e-5
    assert table.loc["one_rank", ["error_worst", "error_later"]].min() > 0.1


def test_one_bucket_is_right_but_not_what_was_asked_and_hides_nothing(table):
    one = table.loc["one_bucket"]
    assert one["error_worst"] < 1e-5
    assert (one["collectives"], one["before_last_gradient"]) == (1, 0)
    assert one["largest_mib"] > 2 * table.loc["right", "largest_mib"]


def test_a_missing_division_is_as_many_times_too_large_as_there_are_ranks(table):
    assert table.loc["undivided", "ratio"] == pytest.approx(table.loc["undivided", "ranks"], rel=1e-4)


def test_what_was_not_waited_for_is_right_later(table):
    assert table.loc["unwaited", "error_worst"] > 0.1
    assert table.loc["unwaited", "error_later"] < 1e-5


def test_ranks_that_start_apart(table):
    assert table.loc["no_first_broadcast", "start_apart"] > 1e-3
    assert (table.drop("no_first_broadcast")["start_apart"] == 0).all()
