"""Find the bug: three sharded trainings that look right. `SYMPTOMS` says what each shows."""

from __future__ import annotations

SYMPTOMS = {
    "root_only": "the blocks are never wrapped: all parameters are gathered at once",
    "synced_every_time": "gradients are exchanged after every micro-batch, though one exchange a step would do",
    "undivided": "the micro-batches' losses are added up and never divided by their number",
}
