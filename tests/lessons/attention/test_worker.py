"""Lab 08's worker: a wrong attention shows its own fault, what is kept is counted, phases are recorded."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from made_attention import DEVICE, Problem
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import scaled_dot_product_attention

from labkit.launching import launch
from labkit.worker.clocks import summary
from lessons.attention import plan
from lessons.attention import theory as memory
from lessons.attention.exercises import SYMPTOMS, suspects, verdict_of
from lessons.attention.plan import VARIANTS
from lessons.attention.worker import measure, symptoms
from lessons.attention.worker.implementations import TILE, implementation
from lessons.attention.worker.measuring import kept_bytes, unsynchronised_ms
from lessons.attention.worker.plain import by_hand, exact, plain


@pytest.fixture(scope="module")
def shown() -> dict[str, dict]:
    """Give the row of every variant in a trial."""
    points = plan.Trial.small(device="cpu", variants=VARIANTS, sequences=(48,), heads=1).points()
    return {point.variant: {"variant": point.variant} | symptoms(point, DEVICE) for point in points}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_found_by_its_own_fault(shown, name):
    faults = set(verdict_of(shown[name]).faults)
    assert faults == {name} - {"right"}


def test_another_error_is_named_too_and_suspects_are_all_that_is_wrong(shown):
    assert set(verdict_of(shown["right"] | {"gradient_error": 0.1}).faults) == {"wrong"}
    assert sorted(suspects()) == sorted(SYMPTOMS) == sorted({*VARIANTS} - {"right"})


@pytest.mark.slow
def test_symptoms_are_numbers_that_tell_variants_apart(shown):
    def of(name: str) -> list:
        return [shown[variant][name] for variant in VARIANTS]

    assert of("sees_ahead") == [0, TILE - 1, 0, 0]
    assert [weight > 1.01 for weight in of("early_weight")] == [variant == "not_rescaled" for variant in VARIANTS]
    assert [share >= 1 for share in of("backward_largest")] == [name == "square_backward" for name in VARIANTS]
    assert max(shown["right"][f"{e}_error"] for e in ("all", "causal", "gradient")) < 1e-5
    assert shown["no_diagonal_mask"]["all_error"] < 1e-5 < 1e-2 < shown["no_diagonal_mask"]["causal_error"]
    assert shown["not_rescaled"]["all_error"] > 1e-2


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("attention", [plain, by_hand])
def test_plain_attention_is_torchs(attention, causal):
    problem = Problem((2, 3), 20, 31)
    tensors = problem.tensors()
    *inputs, do = (x.detach().double().requires_grad_() for x in tensors)
    o = scaled_dot_product_attention(*inputs, is_causal=causal)
    wanted = exact(*tensors, causal)
    for name, x in zip(("O", "dQ", "dK", "dV"), (o, *torch.autograd.grad(o, inputs, do)), strict=True):
        torch.testing.assert_close(wanted[name], x)
    s = inputs[0] @ inputs[1].mT / problem.width**0.5
    if causal:
        s = s.where(torch.ones_like(s, dtype=torch.bool).tril(), -torch.inf)
    torch.testing.assert_close(wanted["L"], s.exp().sum(-1).log())
    torch.testing.assert_close(attention(*inputs, causal), o)
    for x, right in zip(torch.autograd.grad(attention(*inputs, causal), inputs, do), ("dQ", "dK", "dV"), strict=True):
        torch.testing.assert_close(x, wanted[right])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("name", "squares"), [("plain", 1), ("by_hand", 2), ("flash", 0)])
def test_what_autograd_keeps_is_the_formulas(name, squares, causal):
    heads, n, width = 2, 96, 16
    q, k, v, _ = Problem((heads,), n, n, width).tensors()
    found = kept_bytes(lambda: implementation(name)(q, k, v, causal))
    assert found == memory.moment_bytes(name, "kept", n, width, 4, heads=heads, causal=causal)
    assert memory.SQUARES[name]["kept"] == squares


def test_counting_what_is_kept_keeps_nothing():
    q, k, v, _ = Problem((1,), 8, 8).tensors()
    storages = []

    def work():
        p = (q @ k.mT).softmax(-1)  # autograd keeps what softmax gives: held by what it belongs to, it would stay
        storages.append(StorageWeakRef(p.untyped_storage()))
        return p @ v

    assert kept_bytes(work) == sum(x.nbytes for x in (q, k, v)) + 4 * 8 * 8
    assert storages[0].expired()


class Worker:
    """Stands in for a worker: keeps the rows, and has a clock on which everything takes 1, 2 and 4 ms."""

    def __init__(self, its_plan):
        self.plan, self.device, self.rows, self.calls = its_plan, torch.device("cpu"), [], 0

    def record(self, **row):
        self.rows.append(row)

    def synchronize(self):
        self.calls += 1

    def time(self, work, warm_ups, repeats):
        for at in range(warm_ups + repeats):
            work()
            yield SimpleNamespace(warm_up=at < warm_ups, seconds=(1e3, 1e-3, 2e-3, 4e-3)[at])


@pytest.mark.skipif(DEVICE.type == "cuda", reason="Triton's interpreter runs where there is no GPU")
@pytest.mark.parametrize(
    ("kind", "recorded"),
    [
        (plan.Race, ["forward", "backward", "both"]),
        (plan.Sweep, ["forward", "backward", "both"]),
        (plan.Plain, ["memory", "forward", "unsynchronised", "backward", "both"]),
        (plan.Memory, ["memory"]),
    ],
)
def test_a_point_records_its_phases(kind, recorded):
    worker = Worker(kind.small(device="cpu", implementations=("flash",), sequences=(16,)))
    measure(worker, worker.plan.points()[0])
    rows = {row.pop("phase"): row for row in worker.rows}
    assert list(rows) == recorded
    for phase in {"forward", "backward", "both"} & set(rows):
        assert rows[phase] == {"ms": 2.0, "low_ms": 1.5, "high_ms": 3.0, "repeats": 3}, "warm-ups do not count"
    if "memory" in rows:
        heads, width = worker.plan.heads, worker.plan.head_dims[0]
        assert rows["memory"]["kept_bytes"] == memory.moment_bytes("flash", "kept", 16, width, 4, heads=heads)


def test_a_clock_that_waits_for_nobody_divides_by_its_calls(monkeypatch):
    worker, calls = Worker(None), []
    seconds = iter([10.0, 10.5])
    monkeypatch.setattr("lessons.attention.worker.measuring.time.perf_counter", lambda: next(seconds))
    assert unsynchronised_ms(worker, lambda: calls.append(worker.calls)) == pytest.approx(500 / len(calls))
    assert set(calls) == {1} and worker.calls == 2, "it waits before the first call and after the clock has stopped"


def test_one_repetition_is_its_own_quartiles():
    assert summary([3.0], "ms") == {"ms": 3.0, "low_ms": 3.0, "high_ms": 3.0, "repeats": 1}


@pytest.mark.slow
def test_errors_of_a_launch(elsewhere):
    shapes = ((2, 33, 47, 16, True), (1, 20, 30, 24, False))
    rows = launch(plan.Errors.small(device="cpu", shapes=shapes), progress=False).rows
    assert len(rows) == 2 * 2 * 2 and set(rows["status"]) == {"ok"}
    assert rows["same_bits"].all()
    worst = rows.groupby("precision")[[f"{name}_error" for name in ("O", "L", "dQ", "dK", "dV")]].max().max(axis=1)
    assert worst["float32"] < 1e-5 < worst["bfloat16"] < 1e-2
