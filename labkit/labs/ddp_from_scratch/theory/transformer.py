"""The course's transformer in five sizes, as the shapes of its parameters."""

from __future__ import annotations

from labkit.labs.ddp_fsdp.theory.shapes import Model

SIZES = {  # hidden, inner, layers, heads
    "small": (768, 3072, 12, 12), "medium": (1024, 4096, 24, 16), "large": (1280, 5120, 36, 20),
    "xl": (1600, 6400, 48, 25), "2.7b": (2560, 10240, 32, 32),
}  # fmt: skip
VOCABULARY = 10_000


def transformer(hidden: int, inner: int, layers: int, vocabulary: int = VOCABULARY) -> Model:
    """Give a decoder with RMSNorms, SwiGLU and a head of its own: no bias anywhere, positions by rotation."""
    square, row, wide, narrow = (hidden, hidden), (hidden,), (inner, hidden), (hidden, inner)
    block = (row, square, square, square, square, row, wide, wide, narrow)
    return Model(((vocabulary, hidden),), block, (row, (vocabulary, hidden)), layers)
