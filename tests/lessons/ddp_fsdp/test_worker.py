"""Real launches on two and three processes: every strategy trains as one process does and sends what formulas say."""

import pytest
from pandas import concat

from labkit.launching import launch
from labkit.plans import STRATEGIES
from lessons import ddp_fsdp
from lessons.ddp_fsdp.exercises import SYMPTOMS, verdict_of
from lessons.ddp_fsdp.plan import BY_HAND, VARIANTS, AsReported, Strategies, Trial

SHARDED = ["fsdp_grad", "fsdp_full", "fsdp_root"]


@pytest.fixture(scope="module")
def strategies():
    return launch(Strategies.small(gpus=2, repeats=2), progress=False)


@pytest.fixture(scope="module")
def three():
    """Three ranks, into which neither the vocabulary's 1 000 rows nor a layer's 128 divide."""
    knobs = {"gpus": 3, "batches": (12,), "repeats": 1, "layers": 3}
    return launch(Strategies.small(**knobs), progress=False)


def test_torchs_and_our_own_train_as_one_process_does_and_each_bug_is_named():
    trial = launch(Trial.small(gpus=2, variants=VARIANTS), progress=False)
    table = ddp_fsdp.trained(trial)
    assert table["strategy"].tolist() == ["ddp", *SHARDED, "ddp", "fsdp_full"]
    assert table["variant"].tolist() == ["right"] * 4 + list(BY_HAND)
    assert table["equal"].all(), table
    assert table["update_error"].max() < 1e-5
    found = {row["variant"]: set(verdict_of(row).faults) for row in ddp_fsdp.symptoms(trial).to_dict("records")}
    assert found == {name: set() for name in ("right", *BY_HAND)} | {name: {name} for name in SYMPTOMS}
    said = ddp_fsdp.diagnose(trial, {}).data
    named = [line for line in said.splitlines() if "nothing is wrong" not in line]
    assert len(named) == len(SYMPTOMS)
    assert all(any(f"**: {symptom}. " in line for line in named) for symptom in SYMPTOMS.values())
    assert "The first update is 2.00× the right one, as many as ranks" in said
    assert sorted(ddp_fsdp.suspects()) == sorted(SYMPTOMS)


@pytest.mark.slow
def test_three_ranks_train_as_one_process_does():
    """Into three ranks the weights of a layer do not divide: a shard is padded."""
    table = ddp_fsdp.trained(launch(Trial.small(gpus=3, variants=("right", *BY_HAND)), progress=False))
    assert len(table) == 6
    assert table["equal"].all(), table


@pytest.mark.slow
def test_what_is_sent_is_what_the_formulas_say(strategies, three):
    table = concat([ddp_fsdp.sent(strategies), ddp_fsdp.sent(three)])
    assert set(table["strategy"]) == {"ddp", *SHARDED}
    assert len(table) == 3 * 8
    assert table["equal"].all(), table
    padded = ddp_fsdp.sent(three).set_index(["strategy", "collective"])["counted_mib"]
    assert padded["fsdp_root"].min() > 1.001 * padded["ddp", "all-reduce"], "padding is sent, too"


@pytest.mark.slow
def test_what_is_held_is_what_the_formulas_say(strategies, three):
    table = concat([ddp_fsdp.memory(strategies), ddp_fsdp.memory(three)])
    assert table["strategy"].tolist() == 3 * list(STRATEGIES)
    assert (table["counted_error"] < 0.01).all(), table
    assert table["peak"].isna().all(), "a CPU has no allocator to ask"
    rows = strategies.rows[strategies.rows["entry"] == "memory"].groupby("strategy")[["gradients_mib"]].max()
    assert rows.loc["ddp"].item() == pytest.approx(2 * rows.loc["fsdp_full"].item(), rel=1e-3)


@pytest.mark.slow
def test_steps_are_timed_and_the_loss_falls_alike(strategies):
    table = ddp_fsdp.throughput(strategies)
    assert (table["count"] == 2).all()
    assert (table["samples_per_s"] > 0).all()
    assert table.set_index(["strategy", "batch"]).loc["single", "efficiency"].tolist() == [1, 1]
    steps = strategies.rows[(strategies.rows["entry"] == "step") & (strategies.rows["batch"] == 16)]
    losses = steps.pivot_table(index=["rank", "iteration"], columns="strategy", values="loss")
    assert losses.loc[:, "ddp":"fsdp_root"].sub(losses["ddp"], axis=0).abs().max(axis=None) < 1e-5
    assert (losses["single"] - losses["ddp"]).abs().max() > 1e-5, "one rank alone learns from its own samples only"


@pytest.mark.slow
def test_autocast_and_an_unfused_optimizer_run():
    plan = ddp_fsdp.Knobs.small(
        gpus=2,
        strategy="fsdp_full",
        steps=("float32, unfused AdamW", "bfloat16 autocast"),
        repeats=1,
        layers=2,
        sequence=64,  # of few tokens autocast keeps little more than its copies of the weights
    )
    run = launch(plan, progress=False)
    assert ddp_fsdp.ladder(run)["status"].tolist() == ["ok", "ok"]
    assert ddp_fsdp.sent(run, by=["knob"])["equal"].all()
    kept = run.rows[run.rows["entry"] == "memory"].groupby("precision")["activations_mib"].max()
    assert kept["autocast"] < 0.8 * kept["float32"]


@pytest.mark.slow
def test_dropout_and_attention_reach_the_model():
    plan = AsReported.small(gpus=2, repeats=1, batches=(8, 4), layers=1)
    run = launch(plan, progress=False)
    kept = run.rows[run.rows["entry"] == "memory"].groupby(["attention", "dropout", "batch"])["activations_mib"].max()
    assert kept["plain", 0.0, 8] > kept["fused", 0.0, 8], "attention's weights"
    assert kept["plain", 0.1, 8] > kept["plain", 0.0, 8], "masks"
    assert len(ddp_fsdp.per_sample(run)) == 4
