"""Attention in plain PyTorch: with the N×N matrix, and tile by tile."""

from __future__ import annotations

from collections.abc import Callable

import torch


def scores(q: torch.Tensor, k: torch.Tensor, is_causal: bool) -> torch.Tensor:
    """Return Q·Kᵀ/√d (…, Nq, Nk), −inf where a key comes after its query."""
    s = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if is_causal:
        later = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1)
        s = s.masked_fill_(later, float("-inf"))  # in place: no second matrix of scores, but a mask of N×N bytes
    return s


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False) -> torch.Tensor:
    """Return attention as its formula says it: softmax(Q·Kᵀ/√d)·V. Keeps P (…, Nq, Nk) for backward."""
    return scores(q, k, is_causal).softmax(-1) @ v


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False) -> torch.Tensor:
    """Return the same with a softmax written out, as one does in an exercise. Keeps exp(S − max), too."""
    s = scores(q, k, is_causal)
    exponents = (s - s.detach().amax(-1, keepdim=True)).exp()
    return (exponents / exponents.sum(-1, keepdim=True)) @ v


def exact(q, k, v, do, is_causal: bool = False) -> dict[str, torch.Tensor]:
    """Return O, L (the row log-sum-exp), dQ, dK and dV in float64."""
    q, k, v = (x.detach().double().requires_grad_() for x in (q, k, v))
    s = scores(q, k, is_causal)
    lse = s.detach().logsumexp(-1)
    o = s.softmax(-1) @ v
    dq, dk, dv = torch.autograd.grad(o, (q, k, v), do.double())
    return {"O": o.detach(), "L": lse, "dQ": dq, "dK": dk, "dV": dv}


ROWS, COLUMNS = 32, 32


def add_tile(m, l, o, s, v):
    """Return m, l (…, rows) and o (…, rows, d) after a tile of scores s (…, rows, keys) and values v (…, keys, d)."""
    m_new = torch.maximum(m, s.amax(-1))
    p, factor = (s - m_new[..., None]).exp(), (m - m_new).exp()
    return m_new, factor * l + p.sum(-1), factor[..., None] * o + p @ v


def forward_by_tiles(q, k, v, is_causal: bool, step: Callable = add_tile) -> tuple[torch.Tensor, torch.Tensor]:
    """Algorithm 1: return O and L. For a block of queries, `step` adds one tile of keys after the other."""
    output, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
    for rows in _slices(q.shape[-2], ROWS):
        m = torch.full(q[..., rows, 0].shape, float("-inf"), dtype=torch.float32, device=q.device)
        l, o = torch.zeros_like(m), torch.zeros_like(q[..., rows, :], dtype=torch.float32)
        for columns in _slices(k.shape[-2], COLUMNS):
            if is_causal and columns.start >= rows.stop:
                break
            s = _scores(q, k, rows, columns, is_causal)
            m, l, o = step(m, l, o, s, v[..., columns, :].float())
        output[..., rows, :] = o / l[..., None]
        lse[..., rows] = m + l.log()
    return output, lse


class Tiled(torch.autograd.Function):
    """Attention of q (…, Nq, d) over k and v (…, Nk, d); keeps q, k, v, O and, last, the row log-sum-exp (…, Nq)."""

    @staticmethod
    def forward(ctx, q, k, v, is_causal=False, step=add_tile):
        o, lse = forward_by_tiles(q, k, v, is_causal, step)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.is_causal = is_causal
        return o

    @staticmethod
    def backward(ctx, do):
        """Algorithm 2: P comes back from L, and dS = P ∘ (dP − δ) with δ = rowsum(dO ∘ O)."""
        q, k, v, o, lse = ctx.saved_tensors
        dq, dk, dv = (torch.zeros_like(x, dtype=torch.float32) for x in (q, k, v))
        delta = (do.float() * o.float()).sum(-1)
        for columns in _slices(k.shape[-2], COLUMNS):
            for rows in _slices(q.shape[-2], ROWS):
                if ctx.is_causal and columns.start >= rows.stop:
                    continue
                p = (_scores(q, k, rows, columns, ctx.is_causal) - lse[..., rows, None]).exp()
                g = do[..., rows, :].float()
                dv[..., columns, :] += p.transpose(-1, -2) @ g
                ds = p * (g @ v[..., columns, :].float().transpose(-1, -2) - delta[..., rows, None])
                dq[..., rows, :] += ds @ k[..., columns, :].float() * q.shape[-1] ** -0.5
                dk[..., columns, :] += ds.transpose(-1, -2) @ q[..., rows, :].float() * q.shape[-1] ** -0.5
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None


def tiled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False, step=add_tile) -> torch.Tensor:
    """Return the attention of q over k and v as `Tiled` computes it."""
    return Tiled.apply(q, k, v, is_causal, step)


def _slices(length: int, size: int) -> list[slice]:
    return [slice(at, min(at + size, length)) for at in range(0, length, size)]


def _scores(q: torch.Tensor, k: torch.Tensor, rows: slice, columns: slice, is_causal: bool) -> torch.Tensor:
    """Return one tile of scores in float32, −inf where a key comes after its query."""
    s = q[..., rows, :].float() @ k[..., columns, :].float().transpose(-1, -2) * q.shape[-1] ** -0.5
    if is_causal:
        at_rows, at_columns = (torch.arange(at.start, at.stop, device=q.device) for at in (rows, columns))
        s = s.masked_fill(at_columns > at_rows[:, None], float("-inf"))
    return s
