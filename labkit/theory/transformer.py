"""The course's transformer in five sizes, as the shapes of its parameters."""

from __future__ import annotations

import math

from labkit.theory.shapes import Model, configuration

NAMES = ("small", "medium", "large", "xl", "2.7b")
CONFIGURATIONS = {name: configuration(f"transformer-{name}") for name in NAMES}
SIZES = {  # hidden, inner, layers, heads
    name: (knobs["d_model"], knobs["d_ff"], knobs["num_layers"], knobs["num_heads"])
    for name, knobs in CONFIGURATIONS.items()
}
VOCABULARY: int = CONFIGURATIONS["xl"]["vocab_size"]
SMALL_VOCABULARY, SMALL_SEQUENCE = 500, 32


def transformer(hidden: int, inner: int, layers: int, vocabulary: int = VOCABULARY) -> Model:
    """Return a decoder with RMSNorms, SwiGLU and a head of its own: no bias anywhere, positions by rotation."""
    square, row, wide, narrow = (hidden, hidden), (hidden,), (inner, hidden), (hidden, inner)
    block = (row, square, square, square, square, row, wide, wide, narrow)
    return Model(((vocabulary, hidden),), block, (row, (vocabulary, hidden)), layers)


def forward_flop(model: Model, hidden: int, sequence: int, samples: int) -> int:
    """Return the FLOP of one forward: matrix products alone, a multiply-add as two.

    Every matrix but the embedding, which is looked up, multiplies every token; attention counts as if it were not
    causal, 4·sequence·hidden per token and block (Chowdhery and others, "PaLM", 2022, appendix B). Backward takes twice
    as many.
    """
    matrices = sum(math.prod(shape) for shape in model.shapes if len(shape) > 1) - math.prod(model.before[0])
    return samples * sequence * (2 * matrices + 4 * sequence * hidden * model.blocks)


def activations(
    tokens: int,
    hidden: int,
    inner: int,
    layers: int,
    heads: int,
    vocabulary: int,
    precision: str = "float32",
    *,
    gpu: bool = True,
) -> int:
    """Return the bytes that the transformer's forward keeps for its backward, attention by a fused kernel.

    In float32 a layer keeps 8 × hidden a token (what goes into both norms and comes out of them, q, k, v, the
    attention's output) and 4 × inner (gate, its SiLU, up, their product); a last norm 2 × hidden, the loss the
    vocabulary's log-probabilities. Under autocast ("bfloat16", "float16") what goes into a norm and the loss's numbers
    stay float32. All else has two bytes, but what comes out of a norm is rounded anew for each matrix that multiplies
    it: three times for q, k and v, twice for gate and up; the attention's output is kept in two layouts, and on a GPU
    the loss keeps its logits, too. Copies of the weights are not counted here. Statistics: a number a head from the
    attention, one a token from each norm. On a CPU (`gpu` False) a norm is no fused kernel and keeps one more row, and
    the attention's output is kept in two layouts at any precision.
    """
    statistics = 4 * (layers * heads + 2 * layers + 1)
    norms = 4 * (2 * layers + 1) * hidden * (1 if gpu else 2)
    if precision == "float32":
        rest = 4 * (layers * ((6 if gpu else 7) * hidden + 4 * inner) + hidden)
    else:
        rest = 2 * (layers * (10 * hidden + 4 * inner) + hidden + (vocabulary if gpu else 0))
    return tokens * (norms + rest + 4 * vocabulary + statistics)
