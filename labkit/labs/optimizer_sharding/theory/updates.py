"""What an optimizer keeps, makes and moves for each element: read from torch's kernels."""

from __future__ import annotations

STATE_BYTES = {"sgd": 0, "momentum": 4, "adam": 8, "adamw": 8, "rmsprop": 4, "adagrad": 4}  # float32

# torch/optim/adam.py, _multi_tensor_adam keeps √v of all its tensors at once; the fused kernel nothing.
TEMPORARY_BYTES = {("adamw", "foreach"): 4, ("adamw", "fused"): 0, ("momentum", "foreach"): 0}

# Bytes read and written an element, each kernel its operands once. AdamW by torch's many: decay 8, lerp 12, two of v
# 8 + 12, √v 8, its correction 8, + ε 8, the update 16. In one kernel: p, g, m, v in and p, m, v out. SGD with
# momentum by many: 8 + 12 + 12.
MOVED_BYTES = {("adamw", "foreach"): 80, ("adamw", "fused"): 28, ("momentum", "foreach"): 32, ("momentum", "fused"): 20}


def sent_s(parameters: int, ranks: int, gb_per_s: float, in_turn: bool, element_bytes: int = 4) -> float:
    """Give the least seconds in which parameters reach all ranks, at a link's rate in one direction.

    Gathered, a rank takes in (N−1)/N of them while it sends its own. `in_turn`, one rank after another sends its part
    to all, and the links of the others wait to send: N parts in a row.
    """
    if ranks == 1:
        return 0.0
    return element_bytes * parameters * (1 if in_turn else (ranks - 1) / ranks) / (1e9 * gb_per_s)
