"""What the worker counts and captures, in this process; and real launches of small plans."""

from types import SimpleNamespace

import pytest
import torch

from labkit.launching import launch
from lessons import benchmarking as lab
from lessons.benchmarking.plan import PHASES, Launches, Products, Profiles, Steps
from lessons.benchmarking.tables import attention_parts
from lessons.benchmarking.worker.profiles import Traffic
from lessons.benchmarking.worker.steps import TrainingLoop

pytestmark = pytest.mark.usefixtures("elsewhere")


def counted(work):
    with Traffic() as traffic:
        work()
    return traffic.counts


def test_a_product_reads_both_operands_and_writes_the_result():
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    counts = counted(lambda: a @ b)["aten::mm"]
    assert (counts.calls, counts.flop) == (1, 2 * 3 * 4 * 5)
    assert counts.moved_bytes == 4 * (12 + 20 + 15)


def test_an_elementwise_operator_counts_what_it_reads():
    x = torch.randn(6, 10)
    assert vars(counted(lambda: torch.exp(x))["aten::exp"]) == {"calls": 1, "flop": 60, "moved_bytes": 480}
    counts = counted(lambda: x.add_(1.0))["aten::add_"]
    assert (counts.flop, counts.moved_bytes) == (60, 480)  # read once, written once, in place


def test_views_and_empty_tensors_are_no_work():
    x = torch.randn(6, 10)
    assert not counted(lambda: (x.view(60), x.transpose(0, 1), x[2:], torch.empty(5)))


def test_backward_is_counted_too():
    a = torch.randn(3, 4, requires_grad=True)
    b = torch.randn(4, 5, requires_grad=True)
    counts = counted(lambda: (a @ b).sum().backward())["aten::mm"]
    assert (counts.calls, counts.flop) == (3, 3 * 2 * 3 * 4 * 5)


def test_attention_on_a_cpu_counts_its_products():
    q = torch.randn(2, 3, 16, 8)
    counts = counted(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True))
    (found,) = (each for name, each in counts.items() if "attention" in name)
    assert found.flop == 2 * 2 * (2 * 3 * 16 * 8) * 16


def test_the_works_of_a_loop_do_what_they_are_called():
    plan = Steps.small()
    worker = SimpleNamespace(plan=plan, device=torch.device("cpu"))
    loop = TrainingLoop(worker, SimpleNamespace(seed=0, precision="float32"), plan.dimensions("small"))
    weight = next(loop.model.parameters())
    before = weight.detach().clone()
    loop.works["forward"]()
    assert weight.grad is None
    loop.works["both"]()
    once = weight.grad.clone()
    loop.works["both"]()
    assert torch.equal(weight.grad, once) and torch.equal(weight, before)  # cleared each time; nothing is updated
    loop.works["step"]()
    assert not torch.equal(weight, before)
    assert tuple(loop.works) == PHASES


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_RUNS", str(tmp_path_factory.mktemp("runs")))
        few = {"models": ("small",), "repeats": 2, "warm_ups": 1}
        plans = {
            "steps": Steps.small(**few),
            "profiles": Profiles.small(**few | {"models": ("2.7b",)}, steps=1),
            "launches": Launches.small(**few, depths=(1, 2), widths=(32,)),
        }
        yield {name: launch(plan, progress=False) for name, plan in plans.items()}


@pytest.mark.slow
def test_every_iteration_is_a_row(launched):
    rows = launched["steps"].rows
    assert rows.groupby(["precision", "phase"])["iteration"].apply(list).to_list() == [[0, 1, 2]] * 6
    table = lab.steps(launched["steps"])
    assert (table["count"] == 2).all() and (table["ms"] > 0).all()
    assert (rows["enqueue_ms"] <= rows["ms"]).all()


@pytest.mark.slow
def test_a_profile_has_all_that_the_questions_need(launched):
    run = launched["profiles"]
    accounts = lab.accounts(run)
    assert list(accounts["phase"]) == list(PHASES) and (accounts["busy_ms"] <= accounts["window_ms"] * 1.001).all()
    roofline = lab.roofline(run).set_index("operator")
    (hidden, inner, layers, _), tokens = run.plan.dimensions("2.7b"), run.plan.samples * run.plan.sequence
    assert roofline.loc["aten::mm", "flop"] > 3 * 2 * tokens * layers * (4 * hidden**2 + 3 * hidden * inner)
    assert "optimizer" in set(lab.families(run)["family"])
    assert (attention_parts(run)["us"] > 0).all()
    assert len(run.spans) > 20


@pytest.mark.slow
def test_more_layers_are_more_kernels(launched):
    table = lab.launches(launched["launches"])
    one, two = table[table["axis"] == "layers"]["kernels"]
    assert two > one and table["gpu_ms"].isna().all()


def test_every_rank_times_its_products():
    run = launch(Products.small(gpus=2, side=128, warm_ups=1, repeats=3), progress=False)
    rows = run.rows[~run.rows["warm_up"].astype(bool)]
    assert rows.groupby("rank")["ms"].count().to_dict() == {0: 3, 1: 3}
    assert (rows["ms"] > 0).all() and set(rows["side"]) == {64}
