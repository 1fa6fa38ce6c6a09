"""GPT-2's step written out, beside autograd and torch's AdamW: on a GPU whole; on a CPU in Triton's interpreter.

There it works in float32, with torch's attention for CPUs, and has to agree to rounding.
"""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from labkit.worker.gpt import Gpt, samples
from lessons import one_gpu
from lessons.one_gpu.worker import by_hand, float8, measure
from lessons.one_gpu.worker.by_hand import ByHand

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
RATE, BATCH = 3e-3, 3
ON_GPU = DEVICE.type == "cuda"
PRECISION = "bfloat16" if ON_GPU else "float32"
# 3 × 7 rows, and widths: none divides by a block. cuDNN asks for heads that are a multiple of 8 wide.
SIZE = {"layers": 2, "hidden": 48, "heads": 3, "words": 203, "sequence": 7}


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    """With few rows, too, a program takes several, and some take one more than others."""
    monkeypatch.setattr(by_hand, "PROGRAMS", 8)
    monkeypatch.setattr(by_hand, "STRIPES", 2)


def plan_of(**knobs):
    return one_gpu.Ladder.small(gpus=1, **SIZE | knobs)


def model_of(plan, precision, seed=0) -> Gpt:
    """Give a GPT-2 with all weights random: zeros and ones would hide a bias or a factor that is left out."""
    point = {"vocabulary": 256, "compiled": "no", "attention": "fused", "precision": precision, "seed": seed}
    model = Gpt(plan, SimpleNamespace(**point), DEVICE)
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        weight.data += 0.1 * torch.randn(weight.shape, generator=generator).to(weight)
    return model


def batch_of(plan, seed=0):
    few = SimpleNamespace(sequence=plan.sequence, words=40)  # they occur often: their embedding rows are sums
    return samples(few, BATCH, seed)


def gradients_of(model, batch) -> tuple[float, dict[str, torch.Tensor]]:
    loss = model(*(part.to(DEVICE) for part in batch))
    loss.backward()
    return loss.item(), {name: weight.grad.float() for name, weight in model.named_parameters()}


def away(values: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> dict[str, float]:
    """Give per tensor the error's norm over the exact one's."""
    return {name: ((values[name].float() - exact[name]).norm() / exact[name].norm()).item() for name in exact}


def test_loss_and_every_gradient_are_autograds():
    plan = plan_of()
    exact = model_of(plan, PRECISION).float()  # the same weights, as rounded
    exact.autocast["enabled"] = False
    loss, expected = gradients_of(exact, batch_of(plan))
    trainer = ByHand(model_of(plan, PRECISION), BATCH, RATE)
    by_hand_loss = trainer.step([batch_of(plan)]).item()
    errors = away(trainer.d_weights, expected)
    assert by_hand_loss == pytest.approx(loss, rel=1e-3 if ON_GPU else 1e-6)
    if ON_GPU:  # what autograd does in bfloat16 has the same error
        usual = away(gradients_of(model_of(plan, PRECISION), batch_of(plan))[1], expected)
        assert {name: error for name, error in errors.items() if error > 1.5 * usual[name] + 1e-3} == {}
    else:
        assert max(errors.values()) < 1e-5, errors


@pytest.mark.parametrize("dtype", [float8.VALUES, float8.GRADIENTS])
def test_a_cast_keeps_the_largest_value_and_a_few_digits(dtype):
    """Of a matrix that no block divides, in whose first row one value is far larger than the others."""
    x = torch.randn(37, 80, generator=torch.Generator().manual_seed(0)).to(DEVICE, torch.bfloat16)
    x[0, 7] = 40.0
    with pytest.raises(TypeError, match="float32"):
        float8.cast(x.float(), dtype)
    as_is, transposed = float8.cast(x, dtype)
    values = as_is.values.float() * as_is.scale
    assert torch.equal(as_is.values.float().T, transposed.values.float())
    assert values[0, 7].item() == pytest.approx(40.0) and as_is.scale.item() == pytest.approx(
        40 / torch.finfo(dtype).max
    )
    digits = {float8.VALUES: 2**-4, float8.GRADIENTS: 2**-3}[dtype]
    wrong = (values - x).abs() > 1.001 * digits * x.abs() + as_is.scale * torch.finfo(dtype).smallest_normal
    assert wrong.float().mean() < (0 if ON_GPU else 0.06) + 1e-9  # the interpreter loses the carry of some roundings


def test_gradients_in_float8_are_those_of_bfloat16_but_for_its_digits():
    plan = plan_of(hidden=48, heads=3, sequence=16)  # 3 × 16 rows: _scaled_mm takes multiples of 16
    trainer = ByHand(model_of(plan, "bfloat16"), BATCH, RATE, in_float8=True)
    before = trainer.flat.clone()
    if ON_GPU:
        assert 0.01 < trainer.away_in_float8([batch_of(plan)]) < 0.25
        assert torch.equal(trainer.flat, before), "nothing is updated"
    torch.manual_seed(0)
    layer = SimpleNamespace(weight=torch.randn(32, 48).to(before), bias=torch.randn(32).to(before))
    layer.d_weight = torch.empty_like(layer.weight)
    x, d = torch.randn(256, 48).to(before), torch.randn(256, 32).to(before)
    y, factors = float8.float8_linear(layer, x)
    d_x = float8.float8_linear_back(layer, d, factors)
    exact = [x @ layer.weight.T + layer.bias, d @ layer.weight, d.T @ x]
    for values, of in zip((y, d_x, layer.d_weight), exact, strict=True):
        assert 0.01 < (values - of).float().norm() / of.float().norm() < (0.15 if ON_GPU else 0.25)


def test_several_steps_are_those_of_torchs_adamw():
    """Of the same gradients, in float32. On a GPU the second step captures the graph, and the third replays it."""
    plan, usual = plan_of(), model_of(plan_of(), PRECISION)
    trainer = ByHand(model_of(plan, PRECISION), BATCH, RATE)
    expected = torch.nn.Parameter(trainer.masters.clone())
    optimizer = torch.optim.AdamW([expected], lr=RATE)
    for step in range(3):
        loss, _ = gradients_of(usual, batch_of(plan, seed=step))
        assert trainer.step([batch_of(plan, seed=step)]).item() == pytest.approx(loss, rel=1e-2 if ON_GPU else 1e-5)
        expected.grad = trainer.gradients.float()
        optimizer.step()
        assert torch.allclose(trainer.masters, expected, rtol=1e-5, atol=1e-3 * RATE)
        torch.nn.utils.vector_to_parameters(trainer.masters.to(trainer.flat.dtype), usual.parameters())
    assert torch.equal(trainer.flat, trainer.masters.to(trainer.flat.dtype)), "weights are their masters, rounded"
    assert (trainer.graph is not None) == ON_GPU


def test_the_rung_takes_the_steps_of_the_others():
    """From the same weights and on the same samples, and its rows are theirs."""
    plan = plan_of(micro_batch=2, rungs=("bfloat16 weights", "by hand"), warm_ups=1, repeats=1)
    usual = SimpleNamespace(**plan.setting(precision=PRECISION) | {"seed": 0, "compiled": "no"})
    rows = {}
    for compiled in ("no", "by hand"):
        recorded = rows[compiled] = []

        def timed(step, *, before):
            for iteration in range(plan.warm_ups + plan.repeats):
                yield SimpleNamespace(iteration=iteration, warm_up=False, seconds=1.0, result=step().item())

        worker = SimpleNamespace(plan=plan, device=DEVICE, rank=0, state={1: None}, time=timed)
        worker.synchronize = torch.cuda.synchronize
        worker.record = lambda recorded=recorded, **row: recorded.append(row)
        measure(worker, SimpleNamespace(**vars(usual) | {"compiled": compiled}))
    assert len(rows["no"]) == 2 and rows["by hand"] == [
        row | {"loss": pytest.approx(row["loss"], rel=1e-2 if ON_GPU else 1e-6)} for row in rows["no"]
    ]


def test_adamw_is_torchs_for_the_same_gradients():
    """Of more numbers than a block has, and not a multiple of it."""
    trainer = ByHand(model_of(plan_of(), PRECISION), BATCH, RATE)
    weight = trainer.masters.clone().requires_grad_()
    optimizer = torch.optim.AdamW([weight], lr=RATE)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        drawn = torch.randn(trainer.gradients.shape, generator=generator)
        trainer.gradients.copy_(drawn)
        weight.grad = trainer.gradients.float()
        trainer.update()
        optimizer.step()
    assert trainer.flat.numel() % 4096
    torch.testing.assert_close(trainer.masters, weight.detach(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("rows", "width"), [(1, 48), (37, 300), (100, 20)])
def test_column_sums_and_gelu_of_any_shape(rows, width):
    """More rows than all programs take at once, fewer than one takes, and a width between powers of two."""
    generator = torch.Generator().manual_seed(rows)
    u, d = (torch.randn(rows, width, generator=generator).to(DEVICE) for _ in range(2))
    leaf = u.clone().requires_grad_()
    functional.gelu(leaf, approximate="tanh").backward(d)
    for of, expected in ((None, d), (u, leaf.grad)):
        layer = SimpleNamespace(d_bias=torch.empty(width, device=DEVICE))
        torch.testing.assert_close(by_hand.gelu_back(layer, d.clone(), of), expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(layer.d_bias, expected.sum(0), rtol=1e-5, atol=1e-5)


def test_a_loss_of_large_logits_is_finite_and_exact():
    """Softmax is taken relative to the largest; a row is longer than a block and no multiple of it."""
    generator = torch.Generator().manual_seed(0)
    logits = (100 * torch.randn(2, 5000, generator=generator)).to(DEVICE).requires_grad_()
    targets = torch.tensor([4999, 7], device=DEVICE)
    expected = functional.cross_entropy(logits, targets, reduction="none")
    expected.mean().backward()
    d, losses = logits.detach().clone(), torch.empty(2, device=DEVICE)
    by_hand.cross_entropy_kernel[(2,)](d, targets, losses, 5000, 1 / 2, WIDE=4096, num_warps=8)
    torch.testing.assert_close(losses, expected.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(d, logits.grad, rtol=1e-4, atol=1e-6)


COMPILED = """
import json, os, subprocess, tempfile
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from lessons.one_gpu.worker import by_hand, float8

def told(kernel, pointers, others, constants, warps):
    signature = pointers | others | dict.fromkeys(constants, "constexpr")
    divisible = {(at,): [["tt.divisibility", 16]] for at, name in enumerate(kernel.arg_names) if name in pointers}
    source = ASTSource(kernel, {name: signature[name] for name in kernel.arg_names}, constants, divisible)
    code = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps}).asm["ptx"]
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(code)
        file.flush()
        assembler = os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin/ptxas")
        command = [assembler, "-v", "--gpu-name=sm_90a", file.name, "-o", os.devnull]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr

def half(*names):
    return dict.fromkeys(names, "*bf16")

def single(*names):
    return dict.fromkeys(names, "*fp32")

wide = {"C": 1280, "WIDE": 2048}
knobs = {"rate": 3e-4, "decay": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "WIDE": 4096}
norm = half("S", "ADDED", "GAMMA", "BETA", "SUM", "X") | single("STATS")
back = half("dX", "S", "GAMMA", "PAST", "dS") | single("STATS", "SUMS")
gelu = half("U", "D") | single("SUMS")
loss = half("LOGITS") | single("LOSSES") | {"TARGETS": "*i64"}
adamw = half("WEIGHTS", "GRADIENTS") | single("MASTERS", "MEANS", "SQUARES", "CORRECTIONS")
print(json.dumps({
    "norm": told(by_hand.norm_kernel, norm, {"epsilon": "fp32"}, wide, 4),
    "norm back": told(by_hand.norm_back_kernel, back, {"rows": "i32"}, wide, 4),
    **{f"gelu {gelu_too}": told(by_hand.gelu_back_kernel, gelu, {"rows": "i32", "C": "i32"},
                                {"GELU": gelu_too, "ROWS": 16, "WIDE": 256}, 4) for gelu_too in (True, False)},
    "loss": told(by_hand.cross_entropy_kernel, loss, {"V": "i32", "share": "fp32"}, {"WIDE": 4096}, 8),
    "adamw": told(by_hand.adamw_kernel, adamw, {"n": "i32"}, knobs, 8),
    "cast": told(float8.cast_kernel, half("X") | single("SCALE") | dict.fromkeys(("ROWS", "COLUMNS"), "*fp8e4nv"),
                 {"M": "i32", "K": "i32"}, {"TOP": 448.0, "BLOCK": 64}, 4),
}))
"""


@pytest.mark.slow
def test_every_kernel_compiles_for_hopper_and_its_registers_suffice():
    """The interpreter takes Python that the compiler does not; ptxas says how many bytes leave the registers."""
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    command = [sys.executable, "-c", COMPILED]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert not ended.returncode, ended.stderr
    for kernel, said in json.loads(ended.stdout).items():
        (spilled,) = [line.split() for line in said.splitlines() if "spill stores" in line]
        assert spilled[spilled.index("spill") - 2] == "0", kernel
