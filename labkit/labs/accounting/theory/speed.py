"""Seconds of a block's forward on a mesh of FSDP × tensor parallelism, and the batch from which it is compute-bound.

After Austin and others, "How to Scale Your Model" (2025), part 5, in its symbols: B tokens in all, D = d_model,
F = d_ff, X FSDP shards, Y tensor shards, M_X and M_Y mesh axes for each, C FLOP/s a device, W bytes/s an axis, both
directions together. A block is two matrices; backward has twice of each term, so its bound is the same. Collectives
take bytes over bandwidth: no latency, and (n − 1)/n counts as 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from labkit.labs.accounting.theory.models import Model


@dataclass(frozen=True)
class Mesh:
    """A mesh of devices, by default the course's: 16 × 4 of TPU v5p, two axes for FSDP and one for the other.

    `weight_bytes` and `activation_bytes` are those of a number that travels.
    """

    fsdp: int = 16
    tensor: int = 4
    fsdp_axes: int = 2
    tensor_axes: int = 1
    flop_per_s: float = 4.6e14
    axis_bytes_per_s: float = 2 * 9e10
    weight_bytes: int = 2
    activation_bytes: int = 2

    @property
    def devices(self) -> int:
        return self.fsdp * self.tensor


COURSE = Mesh()


class Times(NamedTuple):
    """Seconds of one block's forward on a device: computing, gathering weights, exchanging activations."""

    math_s: float
    fsdp_s: float
    tensor_s: float


def times(mesh: Mesh, model: Model, tokens: float) -> Times:
    """Give the seconds that `tokens` in all take. A dimension of one device sends nothing."""
    d, f = model.d_model, model.d_ff
    weights, activations = 2 * mesh.weight_bytes * d * f, 2 * mesh.activation_bytes * tokens * d
    return Times(
        math_s=4 * tokens * d * f / (mesh.devices * mesh.flop_per_s),
        fsdp_s=(mesh.fsdp > 1) * weights / (mesh.tensor * mesh.axis_bytes_per_s * mesh.fsdp_axes),
        tensor_s=(mesh.tensor > 1) * activations / (mesh.fsdp * mesh.axis_bytes_per_s * mesh.tensor_axes),
    )


def least_tokens(mesh: Mesh, model: Model, at_once: bool = True) -> float:
    """Give the tokens in all from which computing covers communication; infinite where it never does.

    `at_once`: weights and activations travel at the same time, on axes of their own, and the longer is to be covered.
    Else they travel in turn, and their sum is.
    """
    one = times(mesh, model, 1)
    left = one.math_s - (0 if at_once else one.tensor_s)
    return one.fsdp_s / left if one.math_s > one.tensor_s else inf
