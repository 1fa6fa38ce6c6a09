"""Transformers as a handful of numbers: parameters, and what a token leaves behind for the backward."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.theory.transformer import SIZES, VOCABULARY


@dataclass(frozen=True)
class Model:
    """A stack of equal blocks. Without heads a block is the course's: two matrices, no attention, no norm.

    `kv_heads` are those of keys and values (0: as many as heads), `matrices` the feed-forward's: 2, or 3 with a gate.
    `tied`: embedding and head are one matrix. Biases and tables of positions, below 0.2 %, are left out.
    """

    d_model: int
    d_ff: int
    blocks: int
    heads: int = 0
    kv_heads: int = 0
    matrices: int = 2
    vocabulary: int = 0
    tied: bool = False

    @property
    def block_parameters(self) -> int:
        """Feed-forward; query, key, value and output; two norms."""
        d, feed_forward = self.d_model, self.matrices * self.d_model * self.d_ff
        return feed_forward + (2 * d * (d + self._kv) + 2 * d if self.heads else 0)

    @property
    def root_parameters(self) -> int:
        """What is no block's: embedding, head, last norm."""
        tables = self.vocabulary * self.d_model * (1 if self.tied else 2)
        return tables + (self.d_model if self.heads else 0)

    @property
    def parameters(self) -> int:
        return self.blocks * self.block_parameters + self.root_parameters

    @property
    def block_kept(self) -> int:
        """Numbers that a token leaves in a block for the backward, attention by a fused kernel.

        The course's block keeps the inputs of its two matrices. Others keep: the block's input, the norm's output,
        query, key, value, the attention's output, the second norm's input and output; of the feed-forward what goes
        into the activation and comes out, and with a gate also the other branch and the product.
        """
        if not self.heads:
            return self.d_model + self.d_ff
        return 6 * self.d_model + 2 * self._kv + (4 if self.matrices == 3 else 2) * self.d_ff

    def kept(self, recompute: bool = False) -> int:
        """Numbers that a token leaves for the backward; `recompute` keeps the blocks' inputs, and one block whole."""
        head = 2 * self.d_model * bool(self.heads) + self.vocabulary
        if recompute:
            return self.blocks * self.d_model + self.block_kept + head
        return self.blocks * self.block_kept + head

    @property
    def _kv(self) -> int:
        return self.d_model * (self.kv_heads or self.heads) // self.heads if self.heads else 0


XXL = Model(16384, 53248, 126)  # width, depth and d_ff of Llama 3.1 405B, whose feed-forward has a third matrix
COURSE = {
    name: Model(d_model, d_ff, blocks, heads, matrices=3, vocabulary=VOCABULARY)
    for name, (d_model, d_ff, blocks, heads) in SIZES.items()
}
# Radford and others, 2019; Touvron and others, "Llama 2", 2023; Grattafiori and others, "The Llama 3 Herd", 2024
MODELS = COURSE | {
    "GPT-2 XL": Model(1600, 6400, 48, 25, vocabulary=50257, tied=True),
    "7 B": Model(4096, 11008, 32, 32, matrices=3, vocabulary=32_000),
    "13 B": Model(5120, 13824, 40, 40, matrices=3, vocabulary=32_000),
    "70 B": Model(8192, 28672, 80, 64, 8, matrices=3, vocabulary=32_000),
    "405 B": Model(16384, 53248, 126, 128, 8, matrices=3, vocabulary=128_256),
    "XXL": XXL,
}
