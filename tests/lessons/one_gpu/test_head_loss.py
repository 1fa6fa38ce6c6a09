"""Lab 17's loss in pieces: right however it is written, each mistake by its kind; a right one is timed."""

import dataclasses

import pytest

from labkit.course import answers
from labkit.course.source import code_of
from labkit.course.verdict import RIGHT, UNANSWERED, WRONG, Verdict
from labkit.launching import launch
from lessons import one_gpu
from lessons.one_gpu.exercises import judge_run
from lessons.one_gpu.tables import head

pytestmark = pytest.mark.usefixtures("elsewhere")

REFERENCE = f"import torch\n\n{code_of('lessons.one_gpu.worker.pieces.head_loss')}"
OWN = """
import torch

def head_loss(hidden, head, targets, pieces):
    tokens = len(targets)
    size = -(-tokens // pieces)
    loss, d_hidden, d_head = 0.0, torch.zeros_like(hidden), torch.zeros_like(head)
    for start in range(0, tokens, size):
        h, t = hidden[start : start + size], targets[start : start + size]
        logits = h @ head.T
        total = logits.logsumexp(-1, keepdim=True)
        loss += (total.squeeze(1) - logits[range(len(t)), t]).sum().item() / tokens
        d = logits.sub_(total).exp_()
        d[range(len(t)), t] -= 1
        d /= tokens
        d_hidden[start : start + size] = d @ head
        d_head += d.T @ h
    return loss, d_hidden, d_head
"""
AUTOGRAD = """
import torch
from torch.nn import functional

def head_loss(hidden, head, targets, pieces):
    head = head.detach().requires_grad_()
    loss, rows = 0.0, []
    for h, t in zip(hidden.chunk(pieces), targets.chunk(pieces)):
        h = h.detach().requires_grad_()
        piece = functional.cross_entropy(h @ head.T, t, reduction="sum") / len(targets)
        piece.backward()
        loss += piece.item()
        rows.append(h.grad)
    return loss, torch.cat(rows), head.grad
"""
WASTEFUL = """
import torch
from torch.nn import functional

def head_loss(hidden, head, targets, pieces):
    loss, rows, d_head = 0.0, [], torch.zeros_like(head)
    for h, t in zip(hidden.chunk(pieces), targets.chunk(pieces)):
        logits = h @ head.T
        loss = loss + functional.cross_entropy(logits, t, reduction="sum") / len(targets)
        probabilities = logits.softmax(-1)
        one_hot = functional.one_hot(t, len(head))
        d = (probabilities - one_hot.float()) / len(targets)
        rows.append(d @ head)
        d_head = d_head + d.T @ h
    return loss, torch.cat(rows), d_head
"""
ONE_BY_ONE = ("size = -(-tokens // pieces)", "size = 1")
TOTAL = "total = logits.logsumexp(-1, keepdim=True)"
PROBABILITIES = "d = logits.sub_(total).exp_()"
ONE_HOT = "        d[range(len(t)), t] -= 1\n"
RETURN = "return loss, d_hidden, d_head"
RIGHT_ONES = {
    "reference": (REFERENCE, []),
    "own": (OWN, []),
    "autograd": (AUTOGRAD, []),
    "much of each piece": (WASTEFUL, []),
    "token by token": (OWN, [ONE_BY_ONE]),
    "a tensor of one number": (OWN, [(RETURN, "return torch.tensor([loss]), d_hidden, d_head")]),
    "a list": (OWN, [(RETURN, "return [loss, d_hidden, d_head]")]),
}
WRONG_ONES = {
    "exp of what it is": ("overflow", [(TOTAL, "total = logits.exp().sum(-1, keepdim=True).log()")]),
    "softmax by hand": ("overflow", [(PROBABILITIES, "d = logits.exp() / logits.exp().sum(-1, keepdim=True)")]),
    "not divided": ("summed", [("        d /= tokens\n", "")]),
    "nothing divided": ("summed", [("        d /= tokens\n", ""), (".item() / tokens", ".item()")]),
    "by a piece's tokens": ("mean_of_pieces", [("d /= tokens", "d /= len(t)")]),
    "mean of a piece": ("mean_of_pieces", [("d /= tokens", "d /= len(t)"), ("/ tokens", "/ len(t)")]),
    "turned around": ("sign", [("d /= tokens", "d /= -tokens")]),
    "overwritten": ("last_piece", [("d_head += d.T @ h", "d_head = d.T @ h")]),
    "rows of the first piece": ("d_hidden", [("d_hidden[start : start + size] =", "d_hidden[: len(t)] =")]),
    "rows of probabilities": ("d_hidden", [("= d @ head", "= (logits - 1 / tokens) @ head")]),
    "no target": ("wrong", [(ONE_HOT, "")]),
    "twice the target": ("wrong", [("] -= 1\n", "] -= 2\n")]),
    "the last piece's loss": ("loss", [("loss += ", "loss = ")]),
    "a sum of losses": ("loss", [(".item() / tokens", ".item()")]),
    "log of a softmax": (
        "overflow",
        [(".item() / tokens", ".item() / tokens + 0 * logits.softmax(-1).log().sum().item()")],
    ),
    "the loss by exp": ("overflow", [(".item() / tokens", ".item() / tokens + (0 * logits.exp().sum()).item()")]),
    "one piece": ("whole", [("size = -(-tokens // pieces)", "size = tokens")]),
    "all logits kept": ("whole", [("loss, d_hidden", "kept = hidden @ head.T\n    loss, d_hidden")]),
    "all pieces kept": (
        "whole",
        [
            ("loss, d_hidden", "kept = []\n    loss, d_hidden"),
            ("        d_head +=", "        kept.append(d)\n        d_head +="),
        ],
    ),
    "one token left out": ("wrong", [("range(0, tokens, size)", "range(0, tokens - 1, size)"), ONE_BY_ONE]),
    "pieces of equal length, the rest left out": (
        "uneven",
        [
            ("size = -(-tokens // pieces)", "size = tokens // pieces"),
            ("range(0, tokens, size)", "range(0, size * pieces, size)"),
        ],
    ),
    "a mean of the pieces' means": (
        "uneven",
        [("d /= tokens", "d /= len(t) * pieces"), ("/ tokens", "/ (len(t) * pieces)")],
    ),
    "no gradient of the head": ("form", [(RETURN, "return loss, d_hidden")]),
    "turned head": ("form", [(RETURN, "return loss, d_hidden, d_head.T")]),
    "a loss a token": ("form", [(RETURN, "return torch.zeros(tokens), d_hidden, d_head")]),
    "nothing": ("form", [(RETURN, "pass")]),
}
QUICK = ("overwritten", "one piece")


def written(text: str, swaps: list) -> str:
    for old, new in swaps:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def judged(code: str) -> Verdict:
    """Give the verdict of the check, without the run that it launches."""
    answers.save("one_gpu.head_loss", code)
    check = one_gpu.check
    return check._verdict(dataclasses.replace(check.by_name["head_loss"], trial=None), 40.0, {})


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT_ONES)
def test_a_right_one_is_right_however_it_is_written(name):
    verdict = judged(written(*RIGHT_ONES[name]))
    assert verdict.outcome == RIGHT, verdict


@pytest.mark.slow
def test_one_backward_for_all_pieces_keeps_the_logits_of_all():
    backward = [
        (
            "        piece.backward()\n        loss += piece.item()\n        rows.append(h.grad)",
            "        loss += piece\n        rows.append(h)",
        )
    ]
    end = [
        ("    return loss, torch.cat(rows)", "    loss.backward()\n    return loss, torch.cat([h.grad for h in rows])")
    ]
    verdict = judged(written(AUTOGRAD, backward + end))
    assert verdict.outcome == WRONG and [*verdict.faults] == ["whole"], verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.quick) if name in QUICK else name for name in WRONG_ONES]
)
def test_each_mistake_by_its_kind(name):
    kind, swaps = WRONG_ONES[name]
    verdict = judged(written(OWN, swaps))
    assert verdict.outcome == WRONG and [*verdict.faults] == [kind], verdict


def test_a_right_answer_is_tried_in_all_cases_and_timed_beside_the_reference():
    assert one_gpu.check("head_loss").outcome == UNANSWERED
    answers.save("one_gpu.head_loss", OWN)
    verdict = one_gpu.check("head_loss", gpus=1)
    assert verdict.outcome == RIGHT, verdict
    said = " ".join(verdict.merits)
    assert "256 tokens × 500 words in 8 pieces" in said and "with your pieces" in said and "all logits at once" in said


def test_pieces_hold_less_than_all_logits(tmp_path):
    (file := tmp_path / "one_gpu_head_loss.py").write_text(OWN)
    run = launch(one_gpu.Head.small(device="cpu", gpus=1, seeds=(0,), yours=str(file)), progress=False)
    assert judge_run(run).outcome == RIGHT
    table = head(run).set_index("way")
    peaks, plan = table["peak_mib"], run.plan
    assert [*table.index] == ["whole", "pieces", "yours"] and (table["status"] == "ok").all()
    assert peaks["whole"] > 2 * 4 * plan.tokens * plan.words / 2**20, "logits and their gradients"
    assert max(peaks["pieces"], peaks["yours"]) < peaks["whole"] / 2
