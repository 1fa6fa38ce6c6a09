"""Attention that builds its N×N matrices: with torch's softmax, with a softmax written by hand, and in float64."""

from __future__ import annotations

import torch


def scores(q: torch.Tensor, k: torch.Tensor, is_causal: bool) -> torch.Tensor:
    """Give Q·Kᵀ/√d (…, Nq, Nk), −inf where a key comes after its query."""
    s = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if is_causal:
        later = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1)
        s = s.masked_fill_(later, float("-inf"))  # in place: no second matrix of scores, but a mask of N×N bytes
    return s


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False) -> torch.Tensor:
    """Give attention as its formula says it: softmax(Q·Kᵀ/√d)·V. Keeps P (…, Nq, Nk) for backward."""
    return scores(q, k, is_causal).softmax(-1) @ v


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False) -> torch.Tensor:
    """Give the same with a softmax written out, as one does in an exercise. Keeps exp(S − max), too."""
    s = scores(q, k, is_causal)
    exponents = (s - s.detach().amax(-1, keepdim=True)).exp()
    return (exponents / exponents.sum(-1, keepdim=True)) @ v


def exact(q, k, v, do, is_causal: bool = False) -> dict[str, torch.Tensor]:
    """Give O, L (the row log-sum-exp), dQ, dK and dV in float64."""
    q, k, v = (x.detach().double().requires_grad_() for x in (q, k, v))
    s = scores(q, k, is_causal)
    lse = s.detach().logsumexp(-1)
    o = s.softmax(-1) @ v
    dq, dk, dv = torch.autograd.grad(o, (q, k, v), do.double())
    return {"O": o.detach(), "L": lse, "dQ": dq, "dK": dk, "dV": dv}
