"""A rank of tests of split layers: gradients of awkward steps beside those of whole layers."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from labkit.worker.transformer import Transformer
from lessons.tensor_parallel.worker.layers import Ranks
from lessons.tensor_parallel.worker.model import ParallelTransformer, rotated

WORDS, POSITIONS, DROP = 36, 12, 0.25


def work(rank: int, count: int, store: str) -> None:
    """Run every check on this rank; raises AssertionError."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    try:
        for sequence in (False, True):
            for frozen in ((), ("embedding",), ("norm",), ("out", "down")):
                check_gradients(Ranks(None, sequence), frozen)
            check_dtype(Ranks(None, sequence))
            check_evaluation(Ranks(None, sequence))
        check_masks(rank, count)
        check_refusal(count)
        check_sums(count)
    finally:
        dist.destroy_process_group()


def whole(frozen: tuple[str, ...] = (), *, tied: bool = False) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(WORDS, POSITIONS, 24, 48, 2, 12)
    if tied:
        model.head.weight = model.embedding.weight
    for name, weight in model.named_parameters():
        weight.requires_grad_(not any(part in name for part in frozen))
    return model


def split(model: Transformer, ranks: Ranks, drop: float = 0.0) -> ParallelTransformer:
    return ParallelTransformer(copy.deepcopy(model), ranks, rotated(model.turn), drop)


def batch(seed: int, samples: int = 2, positions: int = POSITIONS) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(WORDS, (samples, positions + 1), generator=torch.Generator().manual_seed(seed))
    return tokens[:, :-1], tokens[:, 1:]


def check_gradients(ranks: Ranks, frozen: tuple[str, ...]) -> None:
    """Accumulate over two forwards with one backward and a third batch, of one sample, with its own; one sum counts."""
    reference = whole(frozen, tied=not frozen)
    model = split(reference, ranks)
    for each in (model, reference):
        (each(*batch(1)) + each(*batch(2))).backward()
        each(*batch(3, samples=1, positions=6)).backward()
    model.finish()
    model.finish()
    for weight in reference.parameters():
        weight.data = torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
    due = split(reference, ranks)
    for (name, weight), right in zip(model.named_parameters(), due.parameters(), strict=True):
        own = torch.zeros_like(weight) if weight.grad is None else weight.grad
        torch.testing.assert_close(own, right.data, rtol=1e-4, atol=1e-6, msg=lambda told, name=name: f"{name}: {told}")


def check_dtype(ranks: Ranks) -> None:
    reference = whole().to(torch.bfloat16)
    model = split(reference, ranks)
    loss = model(*batch(1))
    loss.backward()
    model.finish()
    assert abs(loss.item() / reference(*batch(1)).item() - 1) < 0.01
    assert {weight.grad.dtype for weight in model.parameters() if weight.grad is not None} == {torch.bfloat16}


def check_evaluation(ranks: Ranks) -> None:
    """An evaluation between steps drops nothing."""
    reference = whole()
    model = split(reference, ranks, DROP)
    model(*batch(1)).backward()
    model.eval()
    with torch.no_grad():
        assert abs(model(*batch(1)).item() / reference(*batch(1)).item() - 1) < 1e-5


def check_masks(rank: int, count: int) -> None:
    """With dropout, a split model trains as that of one rank does that draws the same masks."""
    alone: Any = [dist.new_group([each]) for each in range(count)][rank]
    model, single = split(whole(), Ranks(), DROP), split(whole(), Ranks(alone), DROP)
    for each in (model, single):
        each(*batch(1)).backward()
    norms = [
        [module.weight.grad for module in each.modules() if isinstance(module, nn.RMSNorm)] for each in (model, single)
    ]
    for own, right in zip(*norms, strict=True):
        torch.testing.assert_close(own, right, rtol=1e-4, atol=1e-6)


def check_refusal(count: int) -> None:
    try:
        split(whole(), Ranks(None, True))(*batch(1, positions=count + 1))
    except ValueError as error:
        assert f"{count + 1} positions do not divide among {count} ranks" in str(error)
    else:
        raise AssertionError("positions that do not divide were taken")


def check_sums(count: int) -> None:
    """`sum` has no gradient, and `sum_over_ranks` has one."""
    ranks, x = Ranks(), torch.ones(3, requires_grad=True)
    assert not ranks.sum(x).requires_grad and not ranks.max(x).requires_grad
    total = ranks.sum_over_ranks(x)
    total.sum().backward()
    assert total.tolist() == [count] * 3 and x.grad is not None and x.grad.tolist() == [1] * 3
