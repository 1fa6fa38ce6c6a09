"""Lab 08's suspects: the code that the page shows of each, run, has its bug and no other one."""

import html
import math
import re

import pytest
import torch

from lessons import attention
from lessons.attention.exercises import RIGHT_PROGRAM


class Tile(torch.Tensor):
    """Some rows of a matrix that know their numbers; the suspects' `max` and `sum` are those of each row."""

    at: range

    @staticmethod
    def of(matrix, at):
        tile = matrix[at.start : at.stop].as_subclass(Tile)
        tile.at = at
        return tile

    def max(self):
        return self.amax(-1, keepdim=True)

    def sum(self):
        return super().sum(-1, keepdim=True)


def tiles(n, size):
    return [range(start, min(start + size, n)) for start in range(0, n, size)]


WORDS = {
    "inf": math.inf,
    "scale": 0.5,
    "exp": lambda x: torch.as_tensor(x).exp(),
    "log": torch.log,
    "max": lambda old, new: torch.as_tensor(old, dtype=new.dtype).maximum(new),
    "where": torch.where,
    "tiles": lambda K, V: [(Tile.of(K, at), Tile.of(V, at)) for at in tiles(len(K), 3)],
    "first": lambda tile: tile.at[0],
    "last": lambda tile: tile.at[-1],
    "keys": lambda k: torch.tensor(k.at)[None, :],
    "queries": lambda q: torch.tensor(q.at)[:, None],
}


def errors_of(code: str, queries: int) -> tuple[float, float]:
    """Run a suspect's code as it is shown, with a causal mask; give the errors of O and of all gradients."""
    scope = dict(WORDS)
    exec(code, scope)
    q, k, v, do = torch.randn(4, 11, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = [Tile.of(x, range(11)) for x in (k, v)]
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    hidden = torch.ones(11, 11, dtype=torch.bool).triu(1)
    wanted = (leaves[0] @ leaves[1].T / 2).masked_fill(hidden, -math.inf).softmax(-1) @ leaves[2]
    outputs = [(at, scope["forward"](Tile.of(q, at), *whole)) for at in tiles(11, queries)]
    o, lse = (torch.cat([parts[n] for _, parts in outputs]).as_subclass(torch.Tensor) for n in (0, 1))
    delta, gradients = (do * o).sum(-1, keepdim=True), [torch.zeros_like(x) for x in (q, k, v)]
    for at in tiles(11, queries):
        rows = slice(at.start, at.stop)
        steps = scope["backward"](Tile.of(q, at), *whole, do[rows], delta[rows], lse[rows])
        for place, (dq, dk, dv) in enumerate(steps):
            gradients[0][rows] += dq
            for sums, part in zip(gradients[1:], (dk, dv), strict=True):
                sums[3 * place : 3 * place + len(part)] += part
    exact = torch.autograd.grad(wanted, leaves, do)
    apart = (float((x - y).abs().amax()) for x, y in zip(gradients, exact, strict=True))
    return float((o - wanted.detach()).abs().amax()), max(apart)


SHOWN = dict(
    zip(attention.suspects(), re.findall(r"<pre[^>]*>(.*?)</pre>", attention.show_suspects().data, re.S), strict=True)
)


@pytest.mark.parametrize(
    ("code", "queries", "wrong"),
    [
        (RIGHT_PROGRAM, 4, (False, False)),
        (RIGHT_PROGRAM, 2, (False, False)),
        (html.unescape(SHOWN["square_backward"]), 11, (False, False)),
        (html.unescape(SHOWN["no_diagonal_mask"]), 4, (True, True)),
        (html.unescape(SHOWN["not_rescaled"]), 4, (True, True)),
    ],
    ids=["right", "right, small tiles", "square_backward", "no_diagonal_mask", "not_rescaled"],
)
def test_the_code_that_is_shown_has_its_bug_and_no_other_one(code, queries, wrong):
    assert tuple(not error < 1e-12 for error in errors_of(code, queries)) == wrong
