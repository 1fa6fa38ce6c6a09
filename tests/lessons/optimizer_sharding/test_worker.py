"""Real launches on two and three processes: ours trains as the whole optimizer does, and holds and sends its share."""

import copy
import json

import pytest
import torch
import torch.distributed as dist

from labkit.engine.errors import PlanError
from labkit.launching import launch
from lessons import optimizer_sharding
from lessons.optimizer_sharding.exercises import SYMPTOMS, verdict_of
from lessons.optimizer_sharding.plan import CASES, OPTIMIZERS, VARIANTS, WAYS, Equality, Memory, Steps, Trial
from lessons.optimizer_sharding.theory import fullest_bucket
from lessons.optimizer_sharding.worker.sharded import NEED_WHOLE, ShardedOptimizer, in_buckets
from lessons.optimizer_sharding.worker.states import as_json, from_json


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request):
    return request.param


@pytest.fixture(scope="module")
def trial(ranks):
    return launch(Trial.small(gpus=ranks, variants=VARIANTS), progress=False)


@pytest.fixture(scope="module")
def memory(ranks):
    return launch(Memory.small(gpus=ranks), progress=False)


@pytest.mark.slow
def test_every_case_trains_as_the_whole_optimizer(ranks):
    table = optimizer_sharding.equality(launch(Equality.small(gpus=ranks), progress=False))
    assert table["optimizer"].tolist()[: len(OPTIMIZERS)] == list(OPTIMIZERS)
    assert set(table["case"]) == set(CASES)
    assert table["equal"].all(), table
    assert table["moved"].min() > 0.01
    assert (table["asked"] == 1).all(), "a closure is asked once a step"
    shared = table[~table["case"].isin(("to_plain", "other_ranks")) & (table["optimizer"] != "sgd")]
    assert shared["state_share"].max() < 1.05 / ranks
    rest = table.set_index("case")["state_share"]
    assert rest["to_plain"] == 1
    assert rest["other_ranks"] == 1, "the last rank went on alone"


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(7.0),
        torch.tensor([float("nan"), -0.0, float("inf"), 3.14], dtype=torch.bfloat16),
        torch.arange(6).reshape(2, 3).T,
        torch.zeros(0, 3, dtype=torch.float64),
        torch.bfloat16,
        0.1,
        None,
    ],
)
def test_a_state_arrives_bit_by_bit(value):
    text = json.dumps({"exp_avg": value}, default=as_json)
    arrived = json.loads(text, object_hook=from_json)["exp_avg"]
    assert type(arrived) is type(value)
    if not torch.is_tensor(value):
        assert arrived == value
        return
    assert (arrived.dtype, arrived.shape) == (value.dtype, value.shape)
    assert arrived.flatten().view(torch.uint8).tolist() == value.flatten().view(torch.uint8).tolist()


def test_a_state_that_json_cannot_hold_is_told():
    with pytest.raises(TypeError, match="holds a set"):
        json.dumps({"seen": {1}}, default=as_json)


@pytest.mark.slow
def test_each_bug_is_named_and_the_right_one_is_right(trial):
    rows = optimizer_sharding.symptoms(trial).to_dict("records")
    found = {row["variant"]: set(verdict_of(row).faults) for row in rows}
    assert found == {"right": set()} | {name: {name} for name in SYMPTOMS}
    said = optimizer_sharding.diagnose(trial, {}).data
    assert all(f"**: {symptom}. " in said for symptom in SYMPTOMS.values())
    assert said.count("nothing is wrong") == 1
    assert sorted(optimizer_sharding.suspects()) == sorted(SYMPTOMS)


@pytest.mark.slow
def test_what_is_held_is_what_the_formulas_say(memory, ranks):
    table = optimizer_sharding.memory(memory)
    assert len(table) == 2 * len(WAYS) * 5
    assert (table["counted_error"] < 0.01).all(), table
    assert table["peak"].isna().all(), "a CPU has no allocator to ask"
    owned = optimizer_sharding.owned(memory).set_index("way")
    assert owned.loc["unsharded", "fullest"] == 1
    assert abs(owned.loc["sharded", "excess"]) < 0.01
    assert owned.loc["sharded", "emptiest"] > 0.99 / ranks
    kept = memory.rows["activations_mib"].dropna()
    formula = table.loc[table["moment"] == "before update", "activations"].iloc[0]
    # Norms are made of several operators on a CPU, each of which keeps something.
    assert formula < kept.max() < 1.2 * formula


@pytest.mark.slow
def test_what_an_update_sends_is_every_parameter_once(memory):
    table = optimizer_sharding.sent(memory).set_index("way")
    assert table["equal"].all(), table
    assert table["collective"].to_dict() == {
        "zero_redundancy": "broadcast",
        "zero_buckets": "broadcast",
        "sharded": "all-gather",
    }
    assert table.loc["zero_redundancy", "calls"] == 30, "one a parameter"
    assert 1 < table.loc["sharded", "calls"] < 30, "one a bucket"


def test_every_way_takes_the_same_steps():
    run = launch(Steps.small(gpus=2, repeats=1), progress=False)
    table = optimizer_sharding.steps(run)
    assert table["way"].tolist() == list(WAYS)
    assert (table[["step_ms", "update_ms", "local_ms"]] > 0).all(axis=None)
    assert (table["step_ms"] > table["local_ms"]).all()
    assert table["least_local_ms"].isna().all(), "no datasheet is known of a CPU"


def test_a_bucket_is_filled_before_the_next():
    parameters = [torch.empty(size) for size in (5, 5, 30, 2, 2, 2)]
    filled = [[len(one) for one in bucket] for bucket in in_buckets(parameters, 40)]
    assert filled == [[5, 5], [30], [2, 2, 2]]
    assert fullest_bucket([5, 5, 30, 2, 2, 2], 10) == max(map(sum, filled))
    mixed = [torch.empty(2), torch.empty(2, dtype=torch.float64), torch.empty(2)]
    assert len(list(in_buckets(mixed, 1e9))) == 3, "a buffer has one dtype"


@pytest.mark.parametrize("name", NEED_WHOLE)
def test_an_optimizer_that_looks_at_whole_tensors_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} needs whole parameters"):
        ShardedOptimizer([torch.nn.Parameter(torch.zeros(2, 2))], type(name, (), {}))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Memory.small(heads=3), "does not divide into heads=3"),
        (lambda: Memory.small(ways=("magic",)), "way='magic' is not known; it is one of unsharded"),
        (lambda: Memory.small(kernels=("slow",)), "kernel='slow' is not known"),
        (lambda: Memory.small(bucket_mib=0), "set a size above 0"),
        (lambda: Steps.small(repeats=0), "at least 1"),
        (lambda: Equality.small(cases=("odd",)), "case='odd' is not known"),
        (lambda: Equality.small(optimizers=("muon",)), "optimizer='muon' is not known"),
        (lambda: Equality.small(gpus=1), "shared out"),
        (lambda: Trial.small(variants=("odd",)), "variant='odd' is not known"),
    ],
)
def test_contradictions(make, words):
    with pytest.raises(PlanError, match=words):
        make()


@pytest.fixture
def one_rank():
    """A process group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_checkpoint_keeps_frozen_states_and_stays_as_it_is(one_rank):
    def made(saved=None, frozen=False):
        weights = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2))]
        weights[1].requires_grad_(not frozen)
        optimizer = ShardedOptimizer(weights, torch.optim.AdamW, lr=0.1)
        if saved:
            optimizer.load_state_dict(saved)
        for weight in weights:
            weight.grad = torch.ones_like(weight) if weight.requires_grad else None
        return optimizer

    first = made()
    first.step()
    saved = first.state_dict()
    before = copy.deepcopy(saved)
    again = made(saved, frozen=True)
    again.step()
    kept = again.state_dict()["state"]
    assert [kept[number]["step"].item() for number in (0, 1)] == [2, 1], "the frozen one's states wait for it"
    assert str(saved) == str(before)
