"""The account itself: sizes with exact units, models, what a device holds, what bounds its speed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

from labkit.theory.memory import BYTES_PER_PARAMETER
from labkit.theory.transformer import SIZES, VOCABULARY

UNITS = {"bytes": 1, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30, "TB": 10**12, "TiB": 2**40}


def bytes_of(number: float, unit: str) -> int:
    """Return the bytes of `number` in `unit`, such as "GB" (10^9) or "GiB" (2^30); parts of a byte are cut off."""
    return int(Fraction(number) * UNITS[unit])


def number_in(unit: str, size_bytes: Any) -> Any:
    """Return the number of `unit` that `size_bytes` are: a number, a fraction or a column of a table."""
    return size_bytes / UNITS[unit]


def devices(total_bytes: int, label: float, unit: str = "GB") -> int:
    """Return how many devices hold `total_bytes`, where each holds `label`, a number of `unit`.

    To divide GiB by a label in GB is to read that label as GiB: devices(total_bytes, 80, "GiB").
    """
    return ceil(Fraction(total_bytes) / (Fraction(label) * UNITS[unit]))


@dataclass(frozen=True)
class Model:
    """A stack of equal blocks. Without heads a block is the course's: two matrices, no attention, no norm.

    `kv_heads` are those of keys and values (0: as many as heads), `matrices` the feed-forward's: 2, or 3 with a gate.
    `tied`: embedding and head are one matrix. Biases and tables of positions, below 0.2 %, are left out.
    """

    d_model: int
    d_ff: int
    blocks: int
    heads: int = 0
    kv_heads: int = 0
    matrices: int = 2
    vocabulary: int = 0
    tied: bool = False

    @property
    def block_parameters(self) -> int:
        """Feed-forward; query, key, value and output; two norms."""
        d, feed_forward = self.d_model, self.matrices * self.d_model * self.d_ff
        return feed_forward + (2 * d * (d + self._kv) + 2 * d if self.heads else 0)

    @property
    def root_parameters(self) -> int:
        """What is no block's: embedding, head, last norm."""
        tables = self.vocabulary * self.d_model * (1 if self.tied else 2)
        return tables + (self.d_model if self.heads else 0)

    @property
    def parameters(self) -> int:
        return self.blocks * self.block_parameters + self.root_parameters

    @property
    def block_kept(self) -> int:
        """Numbers that a token leaves in a block for the backward, attention by a fused kernel.

        The course's block keeps the inputs of its two matrices. Others keep: the block's input, the norm's output,
        query, key, value, the attention's output, the second norm's input and output; of the feed-forward what goes
        into the activation and comes out, and with a gate also the other branch and the product.
        """
        if not self.heads:
            return self.d_model + self.d_ff
        return 6 * self.d_model + 2 * self._kv + (4 if self.matrices == 3 else 2) * self.d_ff

    def kept(self, recompute: bool = False) -> int:
        """Numbers that a token leaves for the backward; `recompute` keeps the blocks' inputs, and one block whole."""
        head = 2 * self.d_model * bool(self.heads) + self.vocabulary
        if recompute:
            return self.blocks * self.d_model + self.block_kept + head
        return self.blocks * self.block_kept + head

    @property
    def _kv(self) -> int:
        return self.d_model * (self.kv_heads or self.heads) // self.heads if self.heads else 0


XXL = Model(16384, 53248, 126)  # width, depth and d_ff of Llama 3.1 405B, whose feed-forward has a third matrix
COURSE_MODELS = {
    name: Model(d_model, d_ff, blocks, heads, matrices=3, vocabulary=VOCABULARY)
    for name, (d_model, d_ff, blocks, heads) in SIZES.items()
}
# Radford and others, 2019; Touvron and others, "Llama 2", 2023; Grattafiori and others, "The Llama 3 Herd", 2024
_GPT_2_XL = Model(1600, 6400, 48, 25, vocabulary=50257, tied=True)
_LARGER = ("xl", "2.7b")  # than GPT-2 XL: rows are in the order of their sizes
MODELS = {name: model for name, model in COURSE_MODELS.items() if name not in _LARGER} | {"GPT-2 XL": _GPT_2_XL}
MODELS |= {name: COURSE_MODELS[name] for name in _LARGER} | {
    "7 B": Model(4096, 11008, 32, 32, matrices=3, vocabulary=32_000),
    "13 B": Model(5120, 13824, 40, 40, matrices=3, vocabulary=32_000),
    "70 B": Model(8192, 28672, 80, 64, 8, matrices=3, vocabulary=32_000),
    "405 B": Model(16384, 53248, 126, 128, 8, matrices=3, vocabulary=128_256),
    "XXL": XXL,
}


KINDS = ("parameters", "gradients", "optimizer", "activations")
WHOLE = {"parameters": 4, "gradients": 4, "optimizer": 8}  # bytes a parameter: all in float32, AdamW's two moments
_HALF = Fraction(1, 2)  # of the activations are sharded, "in practice every second layer"
STRATEGIES = {  # kinds that are cut into as many pieces as there are GPUs (Rajbhandari and others, "ZeRO", 2020)
    "DDP": (),
    "ZeRO-1": ("optimizer",),
    "ZeRO-2": ("gradients", "optimizer"),
    "ZeRO-3": ("parameters", "gradients", "optimizer"),
}
_GATHERED_BLOCKS = 4  # of ZeRO-3: the block at work and the next, each beside the buffer that brought it


def parts_bytes(model: Model, tokens: int, element_bytes: int = 2) -> dict[str, int]:
    """Return the bytes of the whole model by KINDS: float32 but for activations, `element_bytes` a number."""
    states = {kind: each * model.parameters for kind, each in WHOLE.items()}
    return states | {"activations": element_bytes * tokens * model.kept()}


def held(model: Model, tokens: int, fsdp: int = 1, tensor: int = 1, element_bytes: int = 2) -> dict[str, Fraction]:
    """Return the bytes a device by KINDS, exactly: `tokens` are those of one of the `fsdp` shards of the batch.

    As the course asks: FSDP shards parameters, gradients, states and half of the activations; of what is left, tensor
    parallelism gives each of `tensor` devices an equal part. What is gathered to compute with is not counted.
    """
    cut = {kind: Fraction(size, fsdp * tensor) for kind, size in parts_bytes(model, tokens, element_bytes).items()}
    return cut | {"activations": cut["activations"] * (_HALF + (1 - _HALF) * fsdp)}


def smallest_fsdp(model: Model, tokens: int, room_bytes: int) -> int | None:
    """Return the fewest FSDP shards with which a device holds no more than `room_bytes`; None where none are enough."""
    whole = parts_bytes(model, tokens)
    stays = (1 - _HALF) * whole["activations"]
    left = room_bytes - stays
    return ceil((sum(whole.values()) - stays) / left) if left > 0 else None


def zero_held(
    model: Model, strategy: str, gpus: int, tokens: int, precision: str = "bfloat16", recompute: bool = True
) -> dict[str, Fraction]:
    """Return the bytes per GPU by KINDS and "gathered" under one of STRATEGIES, with `tokens` on each GPU.

    All that is counted is taken to be there simultaneously. Not counted: DDP's buckets, the activations' gradients and
    logits in float32. "bfloat16" has weights, gradients and activations in two bytes, and twelve of float32 states;
    both precisions have 16 bytes a parameter.
    """
    element_bytes, state_bytes = BYTES_PER_PARAMETER[precision]
    each = {"parameters": element_bytes, "gradients": element_bytes, "optimizer": state_bytes}
    sizes = {
        kind: Fraction(size * model.parameters, gpus if kind in STRATEGIES[strategy] else 1)
        for kind, size in each.items()
    }
    gathers = strategy == "ZeRO-3" and gpus > 1
    whole = _GATHERED_BLOCKS * model.block_parameters + model.root_parameters
    kept = Fraction(element_bytes * tokens * model.kept(recompute))
    return sizes | {"activations": kept, "gathered": Fraction(element_bytes * whole * gathers)}


def fewest_gpus(
    model: Model,
    strategy: str,
    room_bytes: int,
    tokens: int = 1024,
    precision: str = "bfloat16",
    recompute: bool = True,
) -> int | None:
    """Return the fewest GPUs of `room_bytes` on which a strategy fits; None where no number of them is enough."""
    alone = zero_held(model, strategy, 1, tokens, precision, recompute)
    if sum(alone.values()) <= room_bytes:
        return 1
    cut = sum(alone[kind] for kind in STRATEGIES[strategy])
    stays = sum(zero_held(model, strategy, 2, tokens, precision, recompute).values()) - cut / 2
    left = room_bytes - stays
    return max(2, ceil(cut / left)) if cut and left > 0 else None


@dataclass(frozen=True)
class Mesh:
    """A mesh of devices: `fsdp` share weights, `tensor` the parts of a matrix; by default 8 H200 behind a switch.

    `bytes_per_s` leave a device. On a torus they are an axis's, `fsdp_axes` and `tensor_axes` are how many serve each
    dimension, and a dimension is taken to send everything, not (n − 1)/n of it, as the course counts. `weight_bytes`
    and `activation_bytes` are those of a number that travels.
    """

    fsdp: int = 4
    tensor: int = 2
    flop_per_s: float = 9.895e14
    bytes_per_s: float = 18 * 26.562e9
    weight_bytes: int = 2
    activation_bytes: int = 2
    torus: bool = False
    fsdp_axes: int = 1
    tensor_axes: int = 1

    @property
    def devices(self) -> int:
        return self.fsdp * self.tensor

    def sent(self, devices: int) -> float:
        """Return the share of a message that each device of a ring sends."""
        return float(devices > 1) if self.torus else (devices - 1) / devices


NODE = Mesh()
COURSE_MESH = Mesh(16, 4, 4.6e14, 2 * 9e10, torus=True, fsdp_axes=2)  # TPU v5p


class Times(NamedTuple):
    """Seconds of one block's forward on a device: computing, gathering weights, exchanging activations."""

    math_s: float
    fsdp_s: float
    tensor_s: float


def times(mesh: Mesh, model: Model, tokens: float) -> Times:
    """Return the seconds that `tokens` in all take. A dimension of one device sends nothing."""
    d, f = model.d_model, model.d_ff
    weights, activations = 2 * mesh.weight_bytes * d * f, 2 * mesh.activation_bytes * tokens * d
    return Times(
        math_s=4 * tokens * d * f / (mesh.devices * mesh.flop_per_s),
        fsdp_s=mesh.sent(mesh.fsdp) * weights / (mesh.tensor * mesh.bytes_per_s * mesh.fsdp_axes),
        tensor_s=mesh.sent(mesh.tensor) * activations / (mesh.fsdp * mesh.bytes_per_s * mesh.tensor_axes),
    )


def least_tokens(mesh: Mesh, model: Model, together: bool = False) -> float:
    """Return the tokens in all from which computing covers communication; infinite where it never does.

    Weights and activations travel in turn, and their sum is to be covered. `together`: at the same time, on axes of
    their own, and the longer is.
    """
    per_token = times(mesh, model, 1)
    left = per_token.math_s - (0 if together else per_token.tensor_s)
    return per_token.fsdp_s / left if per_token.math_s > per_token.tensor_s else math.inf
