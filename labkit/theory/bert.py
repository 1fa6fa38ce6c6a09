"""What a forward of BERT keeps."""

from __future__ import annotations


def bert_activations(
    layers: int,
    hidden: int,
    heads: int,
    batch: int,
    sequence: int,
    element_bytes: int = 4,
    *,
    attention: str = "fused",
    dropout: bool = False,
) -> int:
    """Return the bytes that BERT's forward keeps for its backward on a GPU.

    In units of batch × sequence × hidden a layer keeps 16: its input, q, k and v, the attention's output, what goes
    into the first LayerNorm and comes out, four before GELU and four after it, what goes into the second LayerNorm.
    The embeddings' LayerNorm and the last layer's output add one each. Beside them stand rows of statistics: one
    number per head and token from the attention, two per token from each LayerNorm.

    "plain" attention keeps its weights instead, one number per head and pair of tokens. Dropout keeps a mask of one
    byte per number that it may drop, three times per layer and once after the embeddings; plain attention also keeps
    the weights that are left.
    """
    tokens = batch * sequence
    kept = (16 * layers + 2) * tokens * hidden * element_bytes + tokens * 2 * (2 * layers + 1) * 4
    if dropout:
        kept += (2 * layers + 1) * tokens * hidden
    if attention == "fused":
        return kept + tokens * layers * heads * 4
    return kept + layers * heads * tokens * sequence * (2 * element_bytes + 1 if dropout else element_bytes)


def autocast_activations(layers: int, hidden: int, heads: int, batch: int, sequence: int) -> int:
    """Return the bytes that BERT's forward keeps under bfloat16 autocast; rounded copies of weights come on top.

    Attention is fused, and there is no dropout. In units of batch × sequence × hidden × 2 bytes a layer keeps 20: its
    input, rounded anew for q, k and v each, these three, the attention's output, what goes into both LayerNorms in
    float32, what comes out of the first one, rounded, four before GELU and four after it. The embeddings' LayerNorm
    adds its input in float32. Statistics are those of `bert_activations`.
    """
    tokens = batch * sequence
    return tokens * (2 * (20 * layers + 2) * hidden + 2 * (2 * layers + 1) * 4 + layers * heads * 4)
