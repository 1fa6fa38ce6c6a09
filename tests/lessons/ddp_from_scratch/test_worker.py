"""Real launches, and wrappers in this process: right in every awkward case, sent when and as it should be."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from outputs_worker import Outputs
from torch import nn

from labkit.launching import launch
from labkit.repository import REPOSITORY
from labkit.theory.sizes import MIB
from labkit.worker.trace import GAP_US
from labkit.worker.transformer import seeded_transformer
from lessons import ddp_from_scratch
from lessons.ddp_from_scratch.plan import CASES, OURS, STRATEGIES, Buckets, Equality, Implementations, Profiles
from lessons.ddp_from_scratch.worker.bucketed import Bucketed
from lessons.ddp_from_scratch.worker.issued import IssueOrder
from lessons.ddp_from_scratch.worker.probe import Probe, samples_of
from lessons.ddp_from_scratch.worker.steps import run_point
from lessons.ddp_from_scratch.worker.wrapped import wrap

MODEL = {"layers": 2, "repeats": 2, "seeds": (0,)}


@pytest.fixture(scope="module")
def implementations():
    """One module under every strategy in turn, torch's first: what one leaves behind, the next would send."""
    return launch(Implementations.small(gpus=2, strategies=STRATEGIES[::-1], **MODEL), progress=False)


@pytest.fixture
def alone():
    """A group of one rank, in this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.quick), 3])
@pytest.mark.slow
def test_every_case_is_as_in_one_process(ranks):
    table = ddp_from_scratch.equality(launch(Equality.small(gpus=ranks), progress=False))
    assert len(table) == len(CASES) * len(OURS)
    assert table["equal"].all(), table[~table["equal"]].to_string()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_case_is_what_its_name_says(rank):
    def gradients(case):
        probe = Probe(case, rank, 0)
        probe(*samples_of(case, rank, rank + 2, 0, 0)).backward()
        return {name for name, weight in probe.named_parameters() if weight.grad is not None}

    everything = gradients("plain")
    assert len(everything) == 8
    assert everything - gradients("unused_on_some") == {f"experts.{1 - rank}.{part}" for part in ("weight", "bias")}
    assert everything - gradients("frozen") == {"first.weight", "experts.1.weight", "experts.1.bias"}
    assert everything - gradients("tied") == {"last.weight"}
    assert "spare.weight" in dict(Probe("unused", rank, 0).named_parameters())
    assert "spare.weight" not in gradients("unused")
    assert len(samples_of("uneven", rank, rank + 2, 0, 0)[0]) == 2 + 2 * rank
    assert (
        len(samples_of("no_samples", rank, rank + 1, 0, 0)[0])
        == 0
        < len(samples_of("no_samples", rank, rank + 2, 0, 0)[0])
    )


@pytest.mark.slow
def test_what_is_sent_and_when(implementations):
    table = ddp_from_scratch.overlap(implementations).set_index("strategy")
    assert list(table.index) == list(STRATEGIES[::-1])
    assert table["equal"].all(), table
    assert table["sent_mib"].nunique() == 2, "all strategies but none send the same bytes"
    assert (table["gradients"] == len(implementations.plan.model.shapes)).all()
    late, early = table.loc[["naive", "flat"]], table.loc[["overlapped", "bucketed", "ddp"]]
    assert (late[["during_backward", "before_last_gradient", "gradients_after_first"]] == 0).all(axis=None)
    assert (early["during_backward"] == early["collectives"]).all()
    assert (early["before_last_gradient"] == early["collectives"] - 1).all()
    assert table["gradients_after_first"]["overlapped"] == table["gradients"]["overlapped"] - 1
    assert 1 < table["collectives"]["bucketed"] < table["collectives"]["overlapped"]


@pytest.mark.slow
def test_a_step_is_its_parts(implementations):
    rows = implementations.rows
    rows = rows[rows["entry"] == "step"]
    parts = rows[["forward_ms", "backward_ms", "waited_ms", "optimizer_ms"]]
    assert (parts > 0).all(axis=None)
    assert (parts.sum(axis=1) <= rows["step_ms"]).all()
    assert (parts.sum(axis=1) > 0.9 * rows["step_ms"]).mean() > 0.8
    table = ddp_from_scratch.implementations(implementations).set_index("strategy")
    assert table["waited_ms"].idxmin() == "none"


@pytest.mark.slow
def test_buckets_are_as_large_as_asked():
    run = launch(Buckets.small(gpus=2, buckets_mb=(0.02, 0.1, 0.5), **MODEL), progress=False)
    table = ddp_from_scratch.overlap(run)
    ours = table[table["strategy"] == "bucketed"]
    assert table["equal"].all(), table
    assert ours["collectives"].is_monotonic_decreasing
    assert ours["collectives"].nunique() == 3
    assert len(ddp_from_scratch.overhead(run)) == 1


@pytest.mark.slow
def test_autocast_computes_in_bfloat16_and_sends_float32():
    plan = Implementations.small(gpus=2, precision="autocast", strategies=("bucketed", "ddp"), **MODEL)
    assert ddp_from_scratch.overlap(launch(plan, progress=False))["equal"].all()


def test_a_profiled_step_shows_the_collectives():
    plan = Profiles.small(gpus=2, strategies=("none", "flat", "bucketed"), layers=2)
    run = launch(plan, progress=False)
    table = ddp_from_scratch.profile(run).set_index("strategy")
    assert table["communication_ms"]["none"] == 0
    assert table["communication_kernels"]["bucketed"] > table["communication_kernels"]["flat"] > 0
    # The flags that tell which weights were used may pass during the update; flat's gradients may not.
    assert table["hidden_ms"]["bucketed"] > 0
    for _, spans in run.spans[run.spans["strategy"] == "flat"].groupby("rank"):
        assert hidden_us(spans) <= GAP_US


def hidden_us(spans) -> float:
    """Give how long a rank computes during its first collective, which is that of gradients."""
    sent = spans[spans["span"] == "communicate"].sort_values("start_us").iloc[0]
    computed = spans[spans["span"] == "compute"]
    both = computed["end_us"].clip(upper=sent["end_us"]) - computed["start_us"].clip(lower=sent["start_us"])
    return both.clip(lower=0).sum()


def test_gradients_live_in_the_buckets(alone):
    probe = Probe("plain", 0, 0)
    wrapped = Bucketed(probe, 0.0003)
    for _ in range(2):
        wrapped(*samples_of("plain", 0, 2, 0, 0)).backward()
        wrapped.finish()
        assert len(wrapped.flats) > 2
        for number, bucket in enumerate(wrapped.buckets):
            storages = {weight.grad.untyped_storage().data_ptr() for weight in bucket}
            assert storages == {wrapped.flats[number].untyped_storage().data_ptr()}


def test_a_bucket_holds_numbers_of_one_kind(alone):
    wrapped = Bucketed(Probe("mixed", 0, 0), 1)
    assert [{weight.dtype for weight in bucket} for bucket in wrapped.buckets] == [{torch.bfloat16}, {torch.float32}]
    packed = [weight for bucket in wrapped.buckets for weight in bucket]
    assert [id(weight) for weight in packed] == [id(weight) for weight in reversed(wrapped.weights)]


def test_only_the_first_bucket_is_small(alone):
    layers = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(17)])  # 0.25 MiB each
    buckets = Bucketed(layers, 2).buckets
    assert [sum(weight.nbytes for weight in bucket) / MIB for bucket in buckets] == [1, 2, 1.25]


@pytest.mark.parametrize("strategy", OURS)
def test_closing_leaves_the_module_as_it_was(alone, strategy):
    probe = Probe("plain", 0, 0)
    wrapped = wrap(probe, strategy, 0.0003)
    wrapped.close()
    called = []
    wrapped.average = lambda tensor: called.append(tensor)
    probe(*samples_of("plain", 0, 2, 0, 0)).backward()
    assert not called
    assert not any(weight._post_accumulate_grad_hooks for weight in probe.parameters())


@pytest.mark.parametrize("strategy", OURS)
def test_nothing_is_sent_under_no_sync_and_all_of_it_after(alone, strategy):
    wrapped = wrap(Probe("plain", 0, 0), strategy, 0.0003)
    sent = []
    average = wrapped.average
    wrapped.average = lambda tensor: sent.append(tensor.numel()) or average(tensor)
    with wrapped.no_sync():
        wrapped(*samples_of("plain", 0, 2, 0, 0)).backward()
    assert not sent
    wrapped.finish()
    assert sum(sent) == sum(weight.numel() for weight in wrapped.weights)


def test_no_sync_inside_no_sync_ends_with_the_outer_one(alone):
    wrapped = wrap(Probe("plain", 0, 0), "overlapped", 25)
    sent, average = [], wrapped.average
    wrapped.average = lambda tensor: sent.append(tensor) or average(tensor)
    with wrapped.no_sync():
        with wrapped.no_sync():
            pass
        wrapped(*samples_of("plain", 0, 2, 0, 0)).backward()
        assert not sent
    wrapped(*samples_of("plain", 0, 2, 0, 0)).backward()
    assert sent


@pytest.mark.parametrize("strategy", OURS)
def test_all_that_was_sent_is_waited_for(alone, strategy):
    """On a CPU what follows in finish would hide a forgotten wait, on a GPU it would not."""
    wrapped = wrap(Probe("plain", 0, 0), strategy, 0.0003)
    average, started, waited = wrapped.average, [], []

    def noted(tensor):
        started.append(average(tensor))
        return SimpleNamespace(wait=lambda work=started[-1]: waited.append(work) or work.wait())

    wrapped.average = noted
    wrapped(*samples_of("plain", 0, 2, 0, 0)).backward()
    wrapped.finish()
    assert waited == started != []


@pytest.mark.slow
def test_any_output_and_named_inputs(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path))
    rows = launch(Outputs.small(gpus=2, device="cpu"), progress=False).rows
    assert len(rows) == 2 * len(OURS) * 3 * 3
    assert (rows["error"] < 1e-5).all(), rows[rows["error"] >= 1e-5].to_string()
    late = rows["strategy"].isin(["naive", "flat"])
    again = ~late & (rows["backward"] == "two")  # a second backward begins when the first one's gradients are back
    assert (rows["times_sent"] == 1 + again).all(), rows.to_string()


def test_a_bucket_of_no_given_size_is_torchs(alone):
    layers = nn.Sequential(*[nn.Linear(2048, 2048, bias=False) for _ in range(4)])  # 16 MiB each
    assert [len(bucket) for bucket in Bucketed(layers, None).buckets] == [1, 2, 1]
    assert [len(bucket) for bucket in Bucketed(layers).buckets] == [1, 2, 1]
    assert [len(bucket) for bucket in Bucketed(layers, float("inf")).buckets] == [1, 3]


@pytest.mark.parametrize("strategy", OURS)
def test_a_module_without_weights_to_train(alone, strategy):
    wrapped = wrap(nn.Linear(2, 2).requires_grad_(False), strategy, 25)
    assert wrapped(torch.ones(1, 2)).shape == (1, 2)
    wrapped.finish()
    wrapped.close()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_point_out_of_memory_leaves_the_model_as_it_was(alone, strategy):
    """The points after it wrap the same model: a hook that stays would send with theirs, and hold the memory."""

    def out_of_memory(work, **_):
        work()
        raise torch.OutOfMemoryError

    plan = Implementations.small(gpus=1, device="cpu", layers=1)
    point = next(point for point in plan.points() if point.strategy == strategy)
    model = seeded_transformer(plan, 0, torch.device("cpu"))
    worker = SimpleNamespace(plan=plan, device=torch.device("cpu"), rank=0, state=model, time=out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        run_point(worker, point)
    assert all(weight.grad is None for weight in model.parameters())
    batch = torch.zeros(1, plan.sequence, dtype=torch.long)
    assert IssueOrder(model).during(lambda: model(batch, batch), lambda: None)["collectives"] == 0


def test_noting_ends_with_an_error():
    def out_of_memory():
        raise torch.OutOfMemoryError

    layer = nn.Linear(2, 2)
    noted = IssueOrder(layer)
    with pytest.raises(torch.OutOfMemoryError):
        noted.during(lambda: layer(torch.ones(1, 2)).sum(), out_of_memory)
    before = len(noted.events)
    layer(torch.ones(1, 2)).sum().backward()
    assert len(noted.events) == before


@pytest.mark.slow
def test_replicas_are_imported_without_transformers():
    imports = "from lessons.ddp_from_scratch.worker.bucketed import Bucketed, Overlapped"
    code = f"import sys, labkit; {imports}; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
