"""Real launches: each broken variant shows its own symptom, the right one none; no rank leaves before all have sent."""

import pytest
from late_worker import LATE_S, Late

from labkit.launching import launch
from lessons import ddp_from_scratch
from lessons.ddp_from_scratch.exercises import SYMPTOMS, verdict_of
from lessons.ddp_from_scratch.plan import VARIANTS, Trial

pytestmark = pytest.mark.slow


FAULTS = {
    "right": set(),
    "one_rank": {"one_rank"},
    "one_bucket": {"bucket_size"},
    "unwaited": {"unwaited"},
}


@pytest.fixture(scope="module", params=[2, 3])
def run(request):
    return launch(Trial.small(gpus=request.param, variants=VARIANTS), progress=False)


@pytest.fixture
def table(run):
    return ddp_from_scratch.symptoms(run).set_index("variant")


def test_every_variant_is_named_by_its_own_fault(run):
    assert set(VARIANTS) == {"right", *SYMPTOMS}
    found = {row["variant"]: verdict_of(row) for row in ddp_from_scratch.symptoms(run).to_dict("records")}
    assert {name: set(verdict.faults) for name, verdict in found.items()} == FAULTS
    said = ddp_from_scratch.diagnose(run, {}).data
    assert "- **A**: nothing is wrong with it." in said and "a test of rank 0 alone passes" in said


def test_the_right_one_shows_nothing(table):
    right = table.loc["right"]
    assert right[["error_rank_0", "error_worst", "error_later"]].max() < 1e-5
    assert right["collectives"] == right["expected"] > 2
    assert right["before_last_gradient"] == right["expected"] - 1


def test_a_test_on_rank_0_misses_gradients_that_are_right_there_alone(table):
    assert table.loc["one_rank", "error_rank_0"] < 1e-5
    assert table.loc["one_rank", ["error_worst", "error_later"]].min() > 0.1


def test_one_bucket_is_right_but_not_what_was_asked_and_hides_nothing(table):
    one = table.loc["one_bucket"]
    assert one["error_worst"] < 1e-5
    assert (one["collectives"], one["before_last_gradient"]) == (1, 0)
    assert one["largest_mib"] > 2 * table.loc["right", "largest_mib"]


def test_what_was_not_waited_for_is_right_later(table):
    assert table.loc["unwaited", "error_worst"] > 0.1
    assert table.loc["unwaited", "error_later"] < 1e-5


@pytest.fixture(scope="module")
def late(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield launch(Late.small(gpus=2, device="cpu"), progress=False).rows


@pytest.mark.parametrize("end", ["profile", "close"])
@pytest.mark.parametrize("strategy", ["overlapped", "bucketed"])
def test_no_rank_leaves_before_every_rank_has_sent(late, strategy, end):
    """A profiler of torch that stops during a collective of gloo's is later written to, when its memory is freed."""
    found = late[(late["strategy"] == strategy) & (late["end"] == end)]
    assert len(found) == 2
    assert found["began_s"].max() - found["began_s"].min() > LATE_S / 2, "the last rank is late"
    assert found["left_s"].min() >= found["began_s"].max()
