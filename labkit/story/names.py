"""What strategies are called: in full in a sentence, short as a label on a chart."""

from __future__ import annotations

STRATEGY_NAMES = {
    "single": "one rank alone",
    "ddp": "DDP",
    "fsdp_root": "FSDP as one group",
    "fsdp_grad": "FSDP gradient-only",
    "fsdp_full": "FSDP full",
    "zero1": "ZeRO-1",
    "zero2": "ZeRO-2",
    "zero3": "ZeRO-3",
}
STRATEGY_LABELS = STRATEGY_NAMES | {
    "single": "alone",
    "fsdp_root": "FSDP, one group",
    "fsdp_grad": "FSDP, gradient-only",
    "fsdp_full": "FSDP, full",
}
