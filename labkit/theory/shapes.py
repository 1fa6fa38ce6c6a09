"""A model as the shapes of its parameters, and the published configurations that give them."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from typing import Any

from labkit.repository import MODELS

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Model:
    """The parameters of a transformer: `blocks` equal ones, and the rest, which is the root's.

    Shapes come in the order in which the parameters are registered, `before` and `after` the blocks. `buffers_bytes`
    is what DistributedDataParallel sends of the model's buffers ahead of every forward.
    """

    before: tuple[Shape, ...]
    block: tuple[Shape, ...]
    after: tuple[Shape, ...]
    blocks: int
    buffers_bytes: int = 0

    @property
    def root(self) -> tuple[Shape, ...]:
        return self.before + self.after

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """All parameters, in order."""
        return self.before + self.block * self.blocks + self.after

    @property
    def parameters(self) -> int:
        return elements(self.shapes)


def elements(shapes: tuple[Shape, ...]) -> int:
    """Return how many numbers these parameters hold."""
    return sum(map(math.prod, shapes))


def shard(shapes: tuple[Shape, ...], ranks: int) -> int:
    """Return how many numbers one rank's shard has room for: dimension 0 is cut into equal pieces, rounded up.

    `fully_shard` pads every parameter so, and sends the padding, too (torch.distributed.fsdp, FSDP2).
    """
    return sum(-(-shape[0] // ranks) * math.prod(shape[1:]) for shape in shapes)


def bert(hidden: int, layers: int, vocabulary: int, positions: int, labels: int = 2) -> Model:
    """Return BERT for classification (Devlin and others, 2019): embeddings, layers, pooler and a head of `labels`."""
    square, row, wide = (hidden, hidden), (hidden,), (4 * hidden, hidden)
    attention = (square, row) * 4
    layer = (*attention, row, row, wide, (4 * hidden,), (hidden, 4 * hidden), row, row, row)
    embeddings = ((vocabulary, hidden), (positions, hidden), (2, hidden), row, row)
    # Position and token-type numbers, 8 bytes each, are the model's only buffers.
    return Model(embeddings, layer, (square, row, (labels, hidden), (labels,)), layers, 2 * 8 * positions)


@functools.cache
def configuration(name: str) -> dict[str, Any]:
    """Return a model's configuration by name, such as "bert-base"; data/models/README.md lists them.

    Raises FileNotFoundError, naming what there is.
    """
    file = MODELS / f"{name}.json"
    if not file.is_file():
        names = ", ".join(sorted(path.stem for path in MODELS.glob("*.json")))
        raise FileNotFoundError(f"no configuration {name!r} in data/models; there are {names}")
    return json.loads(file.read_text(encoding="utf-8"))
