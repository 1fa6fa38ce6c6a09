"""The head's loss and its gradients piece by piece: so that there are never the logits of all tokens."""

import torch


def head_loss(hidden, head, targets, pieces):
    tokens, loss = len(targets), 0.0
    d_hidden, d_head = torch.empty_like(hidden), torch.zeros_like(head)
    for h, target, d_h in zip(hidden.chunk(pieces), targets.chunk(pieces), d_hidden.chunk(pieces), strict=True):
        log_p = (h @ head.T).float().log_softmax(-1)
        picked = target[:, None]
        loss = loss - log_p.gather(1, picked).sum() / tokens
        d_logits = log_p.exp_().scatter_add_(1, picked, -torch.ones_like(picked, dtype=log_p.dtype)) / tokens
        d_logits = d_logits.to(head.dtype)
        torch.mm(d_logits, head, out=d_h)
        d_head.addmm_(d_logits.T, h)
    return loss, d_hidden, d_head
