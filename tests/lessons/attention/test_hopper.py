"""Lab 08's kernels for Hopper: float32's values at any length, the same bits where promised, others' shapes passed on.

Without such a GPU they are compiled for one, and what the assembler says of them is read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from lessons.attention.worker import launching
from lessons.attention.worker.flash import flash
from lessons.attention.worker.hopper import hopper

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
on_hopper = pytest.mark.skipif(not HOPPER, reason="needs a GPU of the Hopper generation")
BF16_ERROR = 4e-3  # of the norm: rounding P, dS and the outputs once each, 2⁻⁹ at most


def tensors(heads: int, queries: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(seed)
    form = {"generator": generator, "dtype": torch.bfloat16, "device": "cuda"}
    return [torch.randn(1, heads, queries, 64, **form) for _ in range(4)]


def outputs(attention, q, k, v, do) -> list[torch.Tensor]:
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    o = attention(*leaves, True)
    return [o.detach(), *torch.autograd.grad(o, leaves, do)]


def in_float32(q, k, v, do) -> list[torch.Tensor]:
    def plain(q, k, v, causal):
        scores = q @ k.transpose(-1, -2) / 8
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v

    return outputs(plain, *(x.float() for x in (q, k, v, do)))


def assert_near(found: list[torch.Tensor], wanted: list[torch.Tensor], most: float = BF16_ERROR) -> None:
    for name, x, y in zip(("O", "dQ", "dK", "dV"), found, wanted, strict=True):
        assert (x.float() - y).norm() <= most * y.norm() + 1e-3, name


@on_hopper
@pytest.mark.parametrize(("heads", "queries"), [(3, 1), (1, 63), (5, 64), (3, 129), (7, 777), (4, 2047), (2, 5000)])
def test_values_are_float32s_at_any_length_and_count_of_heads(heads, queries):
    problem = tensors(heads, queries)
    assert_near(outputs(hopper, *problem), in_float32(*problem))


@on_hopper
def test_steep_scores_are_as_exact_as_those_of_the_plain_kernels():
    q, k, v, do = tensors(4, 1000)
    k[:, :, :200] *= 60
    q *= 4
    wanted = in_float32(q, k, v, do)
    errors = [
        [((x.float() - y).norm() / y.norm()).item() for x, y in zip(outputs(which, q, k, v, do), wanted, strict=True)]
        for which in (hopper, flash)
    ]
    for ours, plain in zip(*errors, strict=True):
        assert ours <= 1.2 * plain


@on_hopper
def test_all_but_dq_has_the_same_bits_every_time():
    problem = tensors(4, 4097)
    first, _, *others = outputs(hopper, *problem)
    for _ in range(20):
        o, _, *again = outputs(hopper, *problem)
        assert torch.equal(first, o) and all(map(torch.equal, others, again))


@on_hopper
@pytest.mark.skipif(not launching.DIRECT, reason="this version of Triton starts kernels through public names alone")
def test_a_kernel_started_directly_gives_the_bits_of_one_that_triton_starts(monkeypatch):
    problem = tensors(2, 300)
    for _ in range(3):
        o, _, *direct = outputs(hopper, *problem)
    assert any(key[0][0] == "one pass" for key in launching._known)
    monkeypatch.setattr(launching, "DIRECT", False)
    monkeypatch.setattr(launching, "_known", {})
    again, _, *started = outputs(hopper, *problem)
    assert torch.equal(o, again) and all(map(torch.equal, direct, started))
    assert not launching._known


@pytest.mark.parametrize(
    ("queries", "keys", "width", "causal", "precision"),
    [
        (40, 40, 64, False, torch.bfloat16),
        (40, 48, 64, True, torch.bfloat16),
        (40, 40, 32, True, torch.bfloat16),
        (40, 40, 64, True, torch.float32),
    ],
)
def test_other_shapes_are_the_plain_kernels(queries, keys, width, causal, precision):
    device = "cuda" if HOPPER else "cpu"
    q, k, v = (torch.randn(2, n, width, dtype=precision, device=device) for n in (queries, keys, keys))
    assert torch.equal(hopper(q, k, v, causal), flash(q, k, v, causal))


COMPILED = """
import json, os, subprocess, sys, tempfile
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language import NVMMASharedLayout
from lessons.attention.worker import hopper_backward, hopper_forward

def described(shape, kind="bf16", swizzle=128, bits=16):
    layout = NVMMASharedLayout(swizzle_byte_width=swizzle, element_bitwidth=bits, rank=len(shape))
    return f"tensordesc<{kind}{shape},{layout!r}>"

def told(kernel, signature, constants, options):
    signature |= dict.fromkeys(constants, "constexpr")
    source = GluonASTSource(kernel, signature, constants)
    code = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(code)
        file.flush()
        assembler = os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin/ptxas")
        command = [assembler, "-v", "--gpu-name=sm_90a", file.name, "-o", os.devnull]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr

block, tile, row = described([1, 64, 64]), described([1, 128, 64]), described([64], "fp32", 0, 32)
forward = {"Q": block, "K": tile, "V": tile, "O": block, "L": "*fp32", "queries": "i32", "scale": "fp32"}
said = [told(hopper_forward.forward, forward, {"HEADS": 4}, hopper_forward.OPTIONS)]
sums = described([1, 64, 64], "fp32", 128, 32)
backward = dict.fromkeys(("Q", "K", "V", "dO", "dK", "dV"), block) | {"SUMS": sums, "OF_ROWS": row}
backward |= dict.fromkeys(("queries", "padded", "heads"), "i32") | {"scale": "fp32", "root": "fp32"}
said.append(told(hopper_backward.backward, backward, {"HEADS": 2}, hopper_backward.OPTIONS))
print(json.dumps(said))
"""


@pytest.mark.slow
def test_compiled_for_hopper_products_run_beside_each_other_and_registers_suffice():
    """ptxas says so where it has to wait for every product, and how many bytes leave the registers."""
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    command = [sys.executable, "-c", COMPILED]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert not ended.returncode, ended.stderr
    for said, most in zip(json.loads(ended.stdout), (0, 32), strict=True):
        assert "serializ" not in said
        (spilled,) = [line.split() for line in said.splitlines() if "spill stores" in line]
        assert int(spilled[spilled.index("spill") - 2]) <= most
