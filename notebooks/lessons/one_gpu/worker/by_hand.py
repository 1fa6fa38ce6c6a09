"""GPT-2's training step with forward and backward written out: no autograd, no compiler.

Products are cuBLAS's and the attention is cuDNN's, which no one here writes faster. All between them is memory's work:
a Triton kernel reads each tensor once. Gradients go straight into one flat tensor, which one kernel of AdamW reads, and
after the first step one CUDA graph holds all that a step launches.

`M` is tokens, batch × sequence; activations are (M, hidden), and d_x is the gradient of x.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from labkit.worker.gpt import Gpt
from labkit.worker.trainer import Batch
from lessons.one_gpu.worker.float8 import float8_linear, float8_linear_back

EPSILON, DECAY, BETAS = 1e-8, 0.01, (0.9, 0.999)  # as torch's AdamW
PROGRAMS = 528  # of LayerNorm's backward, each with its own sums: four on each of an H200's processors find registers
STRIPES = 256  # and of column sums, over rows
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def norm_kernel(S, ADDED, GAMMA, BETA, SUM, X, STATS, epsilon, C: tl.constexpr, WIDE: tl.constexpr):
    """SUM = S + ADDED, X = LayerNorm(SUM), and STATS: the row's mean and 1/σ. One program, one row of C numbers."""
    row, c = tl.program_id(0).to(tl.int64), tl.arange(0, WIDE)
    at, here = row * C + c, c < C
    total = tl.load(S + at, here, 0.0).to(tl.float32) + tl.load(ADDED + at, here, 0.0).to(tl.float32)
    total = total.to(SUM.dtype.element_ty)
    tl.store(SUM + at, total, here)
    total = total.to(tl.float32)
    mean = tl.sum(total) / C
    centred = tl.where(here, total - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred) / C + epsilon)
    gamma, beta = tl.load(GAMMA + c, here, 0.0).to(tl.float32), tl.load(BETA + c, here, 0.0).to(tl.float32)
    tl.store(X + at, (centred * scale * gamma + beta).to(X.dtype.element_ty), here)
    tl.store(STATS + 2 * row, mean)
    tl.store(STATS + 2 * row + 1, scale)


@triton.jit
def norm_back_kernel(dX, S, STATS, GAMMA, PAST, dS, SUMS, rows, C: tl.constexpr, WIDE: tl.constexpr):
    """dS = what comes through the LayerNorm, from dX, + PAST, what comes past it. Each program takes many rows.

    SUMS (programs, 3, C) over its rows: of dS, the bias before; of dX · x̂, γ; of dX, β.
    """
    c, first = tl.arange(0, WIDE), tl.program_id(0)
    at, here = first.to(tl.int64) * C + c, c < C
    gamma = tl.load(GAMMA + c, here, 0.0).to(tl.float32)
    of_bias, of_gamma, of_beta = (
        tl.zeros([WIDE], tl.float32),
        tl.zeros([WIDE], tl.float32),
        tl.zeros([WIDE], tl.float32),
    )
    next_d, next_s, next_past = tl.load(dX + at, here, 0.0), tl.load(S + at, here, 0.0), tl.load(PAST + at, here, 0.0)
    next_mean, next_scale = tl.load(STATS + 2 * first), tl.load(STATS + 2 * first + 1)
    for row in tl.range(first, rows, tl.num_programs(0)):
        d, s, past = next_d.to(tl.float32), next_s.to(tl.float32), next_past.to(tl.float32)
        mean, scale, at = next_mean, next_scale, tl.cast(row, tl.int64) * C + c
        # The next row is on its way while this one is summed: 15 ms a step of GPT-2 Large on an H200 instead of 19.
        following = tl.minimum(row + tl.num_programs(0), rows - 1)
        ahead = tl.cast(following, tl.int64) * C + c
        next_d, next_s = tl.load(dX + ahead, here, 0.0), tl.load(S + ahead, here, 0.0)
        next_past = tl.load(PAST + ahead, here, 0.0)
        next_mean, next_scale = tl.load(STATS + 2 * following), tl.load(STATS + 2 * following + 1)
        normed = (s - mean) * scale  # beyond the last column d is 0, and so is all that is summed of it
        of_gamma += d * normed
        of_beta += d
        d = d * gamma
        d = (d - tl.sum(d) / C - normed * (tl.sum(d * normed) / C)) * scale + past
        rounded = d.to(dS.dtype.element_ty)
        tl.store(dS + at, rounded, here)
        of_bias += rounded.to(tl.float32)
    sums = SUMS + tl.program_id(0) * 3 * C + c
    tl.store(sums, of_bias, here)
    tl.store(sums + C, of_gamma, here)
    tl.store(sums + 2 * C, of_beta, here)


@triton.jit
def gelu_back_kernel(U, D, SUMS, rows, C, GELU: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr):
    """D times GELU's derivative at U, in place (GELU False: as it is), and SUMS (programs, C) of its columns."""
    c = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    sums = tl.zeros([ROWS, WIDE], tl.float32)
    for first in tl.range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        r = first + tl.arange(0, ROWS)
        at, here = r[:, None].to(tl.int64) * C + c[None, :], (r < rows)[:, None] & (c < C)[None, :]
        d = tl.load(D + at, here, 0.0).to(tl.float32)
        if GELU:  # u · σ(2z), z = √(2/π) · (u + 0.044715 u³): tanh's form, said with a sigmoid
            u = tl.load(U + at, here, 0.0).to(tl.float32)
            sigmoid = 1 / (1 + tl.exp(-2 * 0.7978845608028654 * (u + 0.044715 * u * u * u)))
            slope = 2 * 0.7978845608028654 * (1 + 3 * 0.044715 * u * u)
            rounded = (d * (sigmoid + u * sigmoid * (1 - sigmoid) * slope)).to(D.dtype.element_ty)
            tl.store(D + at, rounded, here)
            d = rounded.to(tl.float32)
        sums += d
    tl.store(SUMS + tl.program_id(1) * C + c, tl.sum(sums, 0), c < C)


@triton.jit
def cross_entropy_kernel(LOGITS, TARGETS, LOSSES, V, share, WIDE: tl.constexpr):
    """The row's loss in float32; its logits become their gradient, softmax less one at the target, times `share`."""
    row = tl.program_id(0).to(tl.int64)
    logits, target = LOGITS + row * V, tl.load(TARGETS + row)
    chosen = tl.load(logits + target).to(tl.float32)
    most, total = tl.full([WIDE], -1e30, tl.float32), tl.zeros([WIDE], tl.float32)
    for first in tl.range(0, V, WIDE):
        c = first + tl.arange(0, WIDE)
        x = tl.load(logits + c, c < V, float("-inf")).to(tl.float32) * LOG2_E
        higher = tl.maximum(most, x)
        total, most = total * tl.exp2(most - higher) + tl.exp2(x - higher), higher
    top = tl.max(most)
    log_sum = top + tl.log2(tl.sum(total * tl.exp2(most - top)))
    tl.store(LOSSES + row, log_sum / LOG2_E - chosen)
    tl.debug_barrier()  # all have read the target's logit
    for first in tl.range(0, V, WIDE):
        c = first + tl.arange(0, WIDE)
        p = tl.exp2(tl.load(logits + c, c < V, float("-inf")).to(tl.float32) * LOG2_E - log_sum)
        tl.store(logits + c, (tl.where(c == target, p - 1, p) * share).to(LOGITS.dtype.element_ty), c < V)


@triton.jit
def adamw_kernel(
    WEIGHTS, GRADIENTS, MASTERS, MEANS, SQUARES, CORRECTIONS, n,
    rate: tl.constexpr, decay: tl.constexpr, beta1: tl.constexpr, beta2: tl.constexpr, epsilon: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """One step of AdamW on float32 MASTERS, and its rounded WEIGHTS: 28 bytes of traffic a parameter in bfloat16."""
    at = tl.program_id(0).to(tl.int64) * WIDE + tl.arange(0, WIDE)
    here = at < n
    g, p = tl.load(GRADIENTS + at, here, 0.0).to(tl.float32), tl.load(MASTERS + at, here, 0.0)
    m, v = tl.load(MEANS + at, here, 0.0), tl.load(SQUARES + at, here, 0.0)
    m += (1 - beta1) * (g - m)
    v = beta2 * v + (1 - beta2) * g * g
    root = tl.sqrt(v) / tl.sqrt(tl.load(CORRECTIONS + 1)) + epsilon
    p = p * (1 - rate * decay) - rate / tl.load(CORRECTIONS) * m / root
    tl.store(MEANS + at, m, here)
    tl.store(SQUARES + at, v, here)
    tl.store(MASTERS + at, p, here)
    tl.store(WEIGHTS + at, p.to(WEIGHTS.dtype.element_ty), here)


class Layer(NamedTuple):
    """A linear layer or LayerNorm: weight and bias, and where their gradients lie in the flat tensor.

    `d_three` of a LayerNorm (3, hidden): of the bias that lies before its weight, of its weight, of its own bias.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    d_weight: torch.Tensor
    d_bias: torch.Tensor
    d_three: torch.Tensor


def linear(layer: Layer, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x · Wᵀ + bias, and what the backward needs of the factors: x."""
    return torch.addmm(layer.bias, x, layer.weight.T), x


def linear_back(layer: Layer, d: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the gradient of x, of the output's gradient `d`; the weight's goes where it belongs."""
    torch.mm(d.T, x, out=layer.d_weight)
    return d @ layer.weight


_IN_BFLOAT16, _IN_FLOAT8 = (linear, linear_back), (float8_linear, float8_linear_back)


def norm(layer: Layer, s: torch.Tensor, added: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return s + added, its LayerNorm, and the mean and 1/σ of each row."""
    rows, width = s.shape
    total, x, stats = torch.empty_like(s), torch.empty_like(s), torch.empty(rows, 2, device=s.device)
    shape = {"C": width, "WIDE": triton.next_power_of_2(width)}
    norm_kernel[(rows,)](s, added, layer.weight, layer.bias, total, x, stats, 1e-5, **shape, num_warps=4)
    return total, x, stats


def norm_back(layer: Layer, d: torch.Tensor, s: torch.Tensor, stats: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
    """Return the gradient of s: of its LayerNorm, whose gradient is `d`, and of what went past it."""
    rows, width = s.shape
    programs, d_s = min(PROGRAMS, rows), torch.empty_like(s)
    sums = torch.empty(programs, 3, width, device=s.device)
    shape = {"C": width, "WIDE": triton.next_power_of_2(width)}
    norm_back_kernel[(programs,)](d, s, stats, layer.weight, past, d_s, sums, rows, **shape, num_warps=2)
    layer.d_three.copy_(sums.sum(0))
    return d_s


def gelu_back(layer: Layer, d: torch.Tensor, u: torch.Tensor | None = None) -> torch.Tensor:
    """Return `d` times GELU's derivative at u, where there is one; the column sums are the gradient of the bias."""
    rows, width = d.shape
    programs, wide = min(STRIPES, -(-rows // 16)), min(256, triton.next_power_of_2(width))
    sums = torch.empty(programs, width, device=d.device)
    grid, shape = (triton.cdiv(width, wide), programs), {"GELU": u is not None, "ROWS": 16, "WIDE": wide}
    gelu_back_kernel[grid](d if u is None else u, d, sums, rows, width, **shape, num_warps=4)
    layer.d_bias.copy_(sums.sum(0))
    return d


def heads_of(qkv: torch.Tensor, batch: int, heads: int) -> tuple[torch.Tensor, ...]:
    """Return q, k and v (batch, heads, sequence, width) of the packed matrix (M, 3 · hidden), without a copy."""
    return qkv.view(batch, -1, 3, heads, qkv.shape[1] // (3 * heads)).permute(2, 0, 3, 1, 4).unbind(0)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the causal attention's output, its log-sum-exp, and what else torch's backward asks for."""
    if q.is_cuda:
        return torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True, False)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)


def attend_back(d: torch.Tensor, qkv: tuple[torch.Tensor, ...], kept: tuple) -> tuple[torch.Tensor, ...]:
    """Return the gradients of q, k and v."""
    output, log_sum, *more = kept
    if not d.is_cuda:
        backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        return backward(d, *qkv, output, log_sum, 0.0, True)
    *lengths, seed, offset, _ = more  # without dropout, and with sequences of one length, none of these says anything
    backward = torch.ops.aten._scaled_dot_product_cudnn_attention_backward
    return backward(d, *qkv, output, log_sum, seed, offset, None, *lengths, 0.0, True)


class ByHand:
    """A GPT-2's weights, taken over from a model, and what trains them: `step`, as a Trainer's, of one micro-batch."""

    def __init__(self, model: Gpt, batch: int, rate: float, *, in_float8: bool = False):
        block: Any = model.blocks[0]
        self.linear, self.linear_back = _IN_FLOAT8 if in_float8 else _IN_BFLOAT16
        self.batch, self.rate, self.heads = batch, rate, block.heads
        named = {name: weight.detach() for name, weight in model.named_parameters()}
        self.flat = torch.cat([weight.flatten() for weight in named.values()])
        self.gradients = torch.zeros_like(self.flat)
        self.masters = self.flat.to(torch.float32, copy=True)
        self.means, self.squares = torch.zeros_like(self.masters), torch.zeros_like(self.masters)
        self.weights, self.d_weights, self.begins, at = {}, {}, {}, 0
        for name, weight in named.items():
            self.begins[name], end = at, at + weight.numel()
            self.weights[name] = self.flat[at:end].view(weight.shape)
            self.d_weights[name] = self.gradients[at:end].view(weight.shape)
            at = end
        parts = ("norm1", "qkv", "out", "norm2", "up", "down")
        self.blocks = [
            SimpleNamespace(**{part: self._layer(f"blocks.{number}.{part}") for part in parts})
            for number in range(len(model.blocks))
        ]
        self.norm = self._layer("norm")
        device, sequence = self.flat.device, model.positions.weight.shape[0]
        self.tokens, self.targets = (torch.zeros(batch * sequence, dtype=torch.int64, device=device) for _ in range(2))
        self.steps = torch.zeros((), dtype=torch.float64, device=device)
        self.betas = torch.tensor(BETAS, dtype=torch.float64, device=device)
        self.corrections = torch.ones(2, device=device)
        self.losses = torch.empty(batch * sequence, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.ran = False

    def _layer(self, name: str) -> Layer:
        weight, bias = f"{name}.weight", f"{name}.bias"
        at, width = self.begins[weight], self.weights[bias].numel()
        d_three = self.gradients[at - width : at + 2 * width].view(3, width)
        return Layer(self.weights[weight], self.weights[bias], self.d_weights[weight], self.d_weights[bias], d_three)

    @torch.no_grad()
    def step(self, micro_batches: list[Batch]) -> torch.Tensor:
        """Run one step and return the mean loss; the second step captures it, and from then on it is replayed."""
        self.copy_inputs(micro_batches)
        if self.ran and self.flat.is_cuda and self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.run()
        if self.graph:
            self.graph.replay()
        else:
            self.run()
        self.ran = True
        return self.losses.mean()

    def copy_inputs(self, micro_batches: list[Batch]) -> None:
        ((tokens, targets),) = micro_batches
        self.tokens.copy_(tokens.view(-1), non_blocking=True)
        self.targets.copy_(targets.view(-1), non_blocking=True)

    @torch.no_grad()
    def away_in_float8(self, micro_batches: list[Batch]) -> float:
        """Return how far float8 moves the gradient, over the norm of the one in bfloat16; nothing is updated."""
        self.copy_inputs(micro_batches)
        gradients, products = [], (self.linear, self.linear_back)
        for self.linear, self.linear_back in (_IN_FLOAT8, _IN_BFLOAT16):
            self.backward(*self.forward())
            gradients.append(self.gradients.clone())
        self.linear, self.linear_back = products
        difference = torch.linalg.vector_norm(gradients[0] - gradients[1], dtype=torch.float32)
        return (difference / torch.linalg.vector_norm(gradients[1], dtype=torch.float32)).item()

    def run(self) -> None:
        self.backward(*self.forward())
        self.update()

    def forward(self) -> tuple[list[tuple], tuple]:
        """Return what each block keeps, and what the last LayerNorm does; the residual stream is s."""
        s = self.weights["embedding.weight"][self.tokens]
        added = self.weights["positions.weight"].repeat(self.batch, 1)
        kept = []
        for block in self.blocks:
            *of_block, s, added = self.block(block, s, added)
            kept.append(of_block)
        return kept, norm(self.norm, s, added)

    def block(self, block: SimpleNamespace, s: torch.Tensor, added: torch.Tensor) -> tuple:
        """Return what the backward needs, the stream, and what is to be added to it: the next LayerNorm does that."""
        s1, x1, stats1 = norm(block.norm1, s, added)
        packed, x1 = self.linear(block.qkv, x1)
        qkv = heads_of(packed, self.batch, self.heads)
        attended = attend(*qkv)
        added, mixed = self.linear(block.out, attended[0].transpose(1, 2).reshape(s.shape))
        s2, x2, stats2 = norm(block.norm2, s1, added)
        u, x2 = self.linear(block.up, x2)
        added, active = self.linear(block.down, torch.nn.functional.gelu(u, approximate="tanh"))
        return s1, x1, stats1, qkv, attended, mixed, s2, x2, stats2, u, active, s2, added

    def block_back(self, block: SimpleNamespace, kept: tuple, d_s: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the stream before the block, of that after it; all others go into the flat tensor."""
        s1, x1, stats1, qkv, attended, mixed, s2, x2, stats2, u, active = kept
        d = self.linear_back(block.down, d_s, active)
        d = gelu_back(block.up, d, u)  # and the gradient of up's bias
        d = self.linear_back(block.up, d, x2)
        d_s = norm_back(block.norm2, d, s2, stats2, d_s)  # and those of γ, β and of out's bias
        d = self.linear_back(block.out, d_s, mixed)
        d = attend_back(d.view(self.batch, -1, self.heads, qkv[0].shape[-1]).transpose(1, 2), qkv, attended)
        d = torch.stack([part.transpose(1, 2) for part in d], 2).view(s1.shape[0], -1)
        d = self.linear_back(block.qkv, gelu_back(block.qkv, d), x1)
        return norm_back(block.norm1, d, s1, stats1, d_s)  # and those of γ, β and of the block before's last bias

    def backward(self, kept: list[tuple], last: tuple) -> None:
        """Fill `losses` and all gradients."""
        s, x, stats = last
        embedding, d_embedding = (of["embedding.weight"] for of in (self.weights, self.d_weights))
        d = x @ embedding.T  # the logits, which become their own gradient
        rows, words = d.shape
        wide = min(4096, triton.next_power_of_2(words))
        cross_entropy_kernel[(rows,)](d, self.targets, self.losses, words, 1 / rows, WIDE=wide, num_warps=8)
        torch.mm(d.T, x, out=d_embedding)
        d = d @ embedding
        d_s = norm_back(self.norm, d, s, stats, torch.zeros_like(d))
        for block in reversed(self.blocks):
            d_s = self.block_back(block, kept.pop(), d_s)
        # Last of all, because before the first LayerNorm there is no bias, but the last of these rows.
        torch.sum(d_s.view(self.batch, -1, d_s.shape[1]), 0, out=self.d_weights["positions.weight"])
        sums = torch.zeros(embedding.shape, device=d_s.device)  # a word may occur often: bfloat16 would lose some
        d_embedding += sums.index_add_(0, self.tokens, d_s.float())

    def update(self) -> None:
        """Take one step of AdamW."""
        self.steps += 1
        self.corrections.copy_(1 - self.betas**self.steps)
        tensors = (self.flat, self.gradients, self.masters, self.means, self.squares, self.corrections)
        n, wide = self.flat.numel(), 4096
        knobs = (self.rate, DECAY, *BETAS, EPSILON)
        adamw_kernel[(triton.cdiv(n, wide),)](*tensors, n, *knobs, WIDE=wide, num_warps=8)
