"""GPT-2 as shapes, bytes and FLOP."""

from __future__ import annotations

from labkit.theory.shapes import Model, configuration

FILES = {"GPT-2 small": "gpt2", "GPT-2 medium": "gpt2-medium", "GPT-2 Large": "gpt2-large", "GPT-2 XL": "gpt2-xl"}
GPT2 = {name: configuration(file) for name, file in FILES.items()}
# layers, hidden, heads; the last three have their authors' sizes (Touvron and others, 2023)
SIZES = {name: (knobs["n_layer"], knobs["n_embd"], knobs["n_head"]) for name, knobs in GPT2.items()} | {
    "7 B": (32, 4096, 32),
    "13 B": (40, 5120, 40),
    "65 B": (80, 8192, 64),
}
VOCABULARY: int = GPT2["GPT-2 Large"]["vocab_size"]


def gpt(layers: int, hidden: int, vocabulary: int = VOCABULARY, positions: int = 1024) -> Model:
    """Return GPT-2 with its head tied to the embedding: LayerNorms, q, k, v in one matrix, four times wider inside."""
    row = (hidden,)
    block = (
        row,
        row,
        (3 * hidden, hidden),
        (3 * hidden,),
        (hidden, hidden),
        row,
        row,
        row,
        (4 * hidden, hidden),
        (4 * hidden,),
        (hidden, 4 * hidden),
        row,
    )
    return Model(((vocabulary, hidden), (positions, hidden)), block, (row, row), layers)


def flop_per_token(parameters: int, layers: int, hidden: int, sequence: int) -> float:
    """Return the FLOP of training on one token: 6 per parameter, and 12·layers·hidden·sequence for attention.

    A multiply-add counts as two, backward as twice the forward; attention as if it were not causal (Chowdhery and
    others, "PaLM", 2022, appendix B).
    """
    return 6.0 * parameters + 12.0 * layers * hidden * sequence


def activations(
    layers: int, hidden: int, heads: int, vocabulary: int, micro_batch: int, sequence: int, element_bytes: int = 4
) -> int:
    """Return the bytes that the forward of one micro-batch keeps for its backward, attention by a fused kernel.

    In units of tokens × hidden a block keeps 16: its input, the first LayerNorm's output, q, k and v, the attention's
    output, the second LayerNorm's input and output, four before GELU and four after. The head keeps its LayerNorm's
    input and output, and one number per token and word. Beside them stand rows of statistics in float32: one number per
    head and token from the attention, two per token from each LayerNorm. Compiled or not: it is the same.
    """
    tokens = micro_batch * sequence
    statistics = tokens * (layers * (heads + 4) + 2) * 4
    return tokens * ((16 * layers + 2) * hidden + vocabulary) * element_bytes + statistics
