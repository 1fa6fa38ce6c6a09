"""Real launches on two processes: what ranks train on, send and learn; each bug is caught."""

import pytest

from labkit.engine.errors import PlanError
from labkit.launching import launch
from labkit.theory.traffic import bucket_count
from lessons import scaling
from lessons.scaling.exercises import SYMPTOMS, verdict_of
from lessons.scaling.plan import VARIANTS, Accuracy, Communication, Epochs, Messages, Trial
from lessons.scaling.tables import epochs
from lessons.scaling.theory import BASE_RATE, GUESSING, model

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.mark.slow
def test_epochs_in_parts_that_add_up():
    run = launch(Epochs.small(gpus=2, batches=(32,), training=64, processes=1), progress=False)
    table = epochs(run)
    assert set(table["loader"]) == {"device", "host"}
    assert (table["steps"] == 64 // (table["ranks"] * table["gpu_batch"])).all()
    parts = scaling.parts(run)
    assert (parts["rest_share"] < 0.1).all(), parts
    assert parts.loc[parts["ranks"] == 2, "exposed_s"].min() > 0
    assert scaling.scaling(run)["efficiency"].notna().all()


@pytest.mark.slow
def test_an_exchange_sends_the_gradients_and_no_more():
    run = launch(Communication.small(gpus=2, batches=(8,), repeats=2, warm_ups=1, training=64), progress=False)
    (row,) = scaling.exchange(run).to_dict("records")
    network = run.plan.width, run.plan.blocks
    assert row["sent_bytes"] == 4 * model(*network).parameters
    assert row["calls"] == bucket_count(model(*network).shapes)
    assert all(row[f"{name}_ms"] > 0 for name in ("step", "gradients", "muted", "alone", "trace", "hooks"))
    assert scaling.data_parallel(run).empty


def test_messages_are_counted_by_phase():
    run = launch(Messages.small(gpus=2), progress=False)
    table = scaling.messages(run).set_index(["phase", "collective"])
    network = model(run.plan.width, run.plan.blocks)
    weights = 4 * network.parameters + network.buffers_bytes
    compared = 2 * 8 * sum(map(len, network.shapes))  # sizes and strides of every parameter
    assert table.loc[("construction", "broadcast"), "sent_bytes"] == weights + compared
    assert table.loc[("third step", "broadcast"), "sent_bytes"] == network.buffers_bytes
    assert table.loc[("third step", "all-reduce"), "sent_bytes"] == 4 * network.parameters
    assert ("a step under no_sync", "all-reduce") not in table.index
    assert table.loc[("a step under no_sync", "broadcast"), "sent_bytes"] == network.buffers_bytes
    assert table.loc["a second step under no_sync", "calls"].to_dict() == {"none": 0}
    assert ("a step without broadcast_buffers", "broadcast") not in table.index
    assert table.loc[("second step", "broadcast"), "calls"] > table.loc[("third step", "broadcast"), "calls"]
    orders = scaling.orders(run)
    assert (orders["with set_epoch"].nunique(), orders["without set_epoch"].nunique()) == (3, 1)


@pytest.mark.slow
def test_trainings_learn_and_use_their_rate():
    run = launch(Accuracy.small(gpus=2, trainings=("reference", "large", "same_order"), seeds=(0,)), progress=False)
    table = scaling.accuracy(run).set_index("variant")
    assert table.loc["large", "rate"] == pytest.approx(BASE_RATE * 32 / 16)
    assert (table["steps"] == [3 * 47, 3 * 24, 3 * 24]).all()
    assert (table["test_percent"] > 3 * GUESSING).all(), table
    rows = run.entries("training").query("epoch == 2").set_index("variant")
    assert (rows["dealt"] - rows["seen"]).to_dict() == {"reference": 0, "large": 1, "same_order": 1}
    assert (rows["repeated"] > 0.5).to_dict() == {"reference": False, "large": False, "same_order": True}


def test_each_bug_is_named_and_the_right_one_is_right():
    run = launch(Trial.small(gpus=2, variants=VARIANTS), progress=False)
    table = scaling.symptoms(run)
    found = {row["variant"]: set(verdict_of(row).faults) for row in table.to_dict("records")}
    assert found == {"right": set()} | {name: {name} for name in SYMPTOMS}
    assert sorted(scaling.suspects()) == sorted(SYMPTOMS)


def test_plans_fit_any_number_of_gpus():
    for gpus, counted in ((1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (6, (1, 2, 4, 6))):
        plan = Epochs(device="cuda", gpus=gpus, images="glyphs", size="full")
        assert tuple(sorted({point.ranks for point in plan.points()})) == counted
    assert {point.ranks for point in Communication(device="cuda", gpus=1, images="glyphs").points()} == {1}
    assert [point.variant for point in Accuracy(device="cuda", gpus=1, images="glyphs", seeds=(0,)).points()] == [
        "reference",
        "one_gpu",
    ]
    with pytest.raises(PlanError, match="images to train on"):
        Epochs.small(gpus=2, training=16)
    with pytest.raises(PlanError, match="not known"):
        Epochs.small(gpus=2, images="photographs")
