"""Lab 08, attention: from the N×N matrix to FlashAttention-2 in Triton; who moves fewer bytes wins."""

from labkit.labs import front_door

RECORDED = {
    name: f"h200/attention/{name}" for name in ("errors", "memory", "plain", "race", "sweep", "trial", "tuning")
}

__getattr__, __all__ = front_door(
    __name__,
    plan=["Answer", "Errors", "Memory", "Plain", "Race", "Sweep", "Trial", "Tuning"],
    tables=[],
)
