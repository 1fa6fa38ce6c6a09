"""Find the bug: attentions that claim to be FlashAttention-2. `SYMPTOMS` says what each of the suspects shows."""

from __future__ import annotations

SYMPTOMS = {
    "no_diagonal_mask": "the tile on the diagonal is not masked: queries see keys up to its end",
    "not_rescaled": "what was summed under a lower maximum keeps its weight when the maximum rises",
    "square_backward": "the backward builds the whole N×N matrix of probabilities again",
}
