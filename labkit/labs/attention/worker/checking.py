"""What an attention keeps, and how far it is from an exact one."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.labs.attention.plan import PROBE
from labkit.labs.attention.worker.implementations import ATTENTIONS, implementation
from labkit.labs.attention.worker.plain import exact

_PRODUCTS = (
    "mm",
    "bmm",
    "baddbmm",
    "addmm",
    "_softmax",
    "scaled_dot_product",
    "einsum",
    "flash_attention",
    "efficient_attention",
    "cudnn_attention",
)


class Kept:
    """A tensor for as long as autograd keeps it for backward."""

    def __init__(self, x: torch.Tensor):
        self.x = x


def kept(work: Callable[[], object]) -> dict[str, int]:
    """Return `kept_bytes` of the distinct storages that `work` keeps for backward, and `largest_kept` in elements.

    What it saved and let go again, as the maximum of a softmax does that is detached, does not count.
    """
    alive: weakref.WeakSet[Kept] = weakref.WeakSet()

    def pack(x: torch.Tensor) -> Kept:
        alive.add(saved := Kept(x.detach()))  # with its graph it would keep itself
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.x):
        result = work()
    tensors = [saved.x for saved in alive]
    del result
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}
    return {"kept_bytes": sum(storages.values()), "largest_kept": max((x.numel() for x in tensors), default=0)}


def peaks(forward: Callable[[], torch.Tensor], do: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> dict[str, float]:
    """Return MiB beyond what was allocated before: at most in forward, held between, at most in backward.

    `reserved_mib`: what torch has taken from the GPU at most meanwhile, used or not. GPUs only.
    """
    gpu = do.device
    torch.cuda.synchronize(gpu)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(gpu)

    def beyond(allocated: int) -> float:
        return (allocated - before) / 2**20

    torch.cuda.reset_peak_memory_stats(gpu)
    o = forward()
    found = {
        "forward_mib": beyond(torch.cuda.max_memory_allocated(gpu)),
        "held_mib": beyond(torch.cuda.memory_allocated(gpu)),
    }
    torch.cuda.reset_peak_memory_stats(gpu)
    torch.autograd.grad(o, inputs, do)
    found["backward_mib"] = beyond(torch.cuda.max_memory_allocated(gpu))
    return found | {"reserved_mib": torch.cuda.max_memory_reserved(gpu) / 2**20}


class Watch(TorchDispatchMode):
    """Notes what torch's operators make: the largest tensor, in bytes, and how many of them multiply matrices."""

    def __init__(self):
        super().__init__()
        self.largest, self.products = 0, 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **kwargs or {})
        name = operator.__name__ if hasattr(operator, "__name__") else str(operator)
        self.products += any(word in name for word in _PRODUCTS)
        made = result if isinstance(result, tuple | list) else (result,)
        self.largest = max([self.largest, *(x.nbytes for x in made if isinstance(x, torch.Tensor))])
        return result


TENSORS = ("O", "L", "dQ", "dK", "dV")


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the largest |found − wanted| / (1 + |wanted|): the least t at which allclose(rtol=t, atol=t) holds."""
    return ((found.double() - wanted).abs() / (1 + wanted.abs())).max().item()


def row_lse(o: torch.Tensor, q: torch.Tensor) -> torch.Tensor | None:
    """Return the row log-sum-exp (…, Nq), the last tensor that attention saves for backward; None if it saves none.

    The shape alone does not tell: with one key and Nq = d, K and V saved as (heads, 1, d) may have it, too.
    """
    saved = getattr(o.grad_fn, "saved_tensors", ())
    return saved[-1] if saved and saved[-1] is not None and saved[-1].shape == q.shape[:-1] else None


def attended(attention: Callable, q, k, v, do, causal: bool) -> dict[str, torch.Tensor]:
    """Return O, L (where it was kept) and the gradients."""
    o = attention(q, k, v, causal)
    lse = row_lse(o, q)
    found = {"O": o.detach()} | ({} if lse is None else {"L": lse})
    return found | dict(zip(("dQ", "dK", "dV"), torch.autograd.grad(o, (q, k, v), do), strict=True))


def errors(point: SimpleNamespace, device: torch.device) -> dict:
    """Return the error of each tensor, and whether a second run gives the same bits."""
    q, k, v, do = _tensors(point, point.queries, point.keys, device)
    found, again = (attended(implementation(point.implementation), q, k, v, do, point.causal) for _ in range(2))
    wanted = exact(q, k, v, do, point.causal)
    same = all(torch.equal(found[name], again[name]) for name in found)
    return {f"{name}_error": error(found[name], wanted[name]) for name in found} | {"same_bits": same}


def symptoms(point: SimpleNamespace, device: torch.device) -> dict:
    """Return what one variant shows.

    `all_error`, `causal_error`, `gradient_error`: the worst without and with a mask, and of gradients with one.
    `keeps_lse`; `sees_ahead`: how many keys after its own a query attends to at most, with a mask. `early_weight`: the
    most that a probability is too large, times. `forward_largest`, `backward_largest`: the largest tensor that torch
    makes, in N×N matrices; `products`: its operators that multiply matrices.
    """
    attention = ATTENTIONS[point.variant]
    q, k, v, do = _tensors(point, point.sequence, point.sequence, device)
    found, causal = (attended(attention, q, k, v, do, mask) for mask in (False, True))
    wanted, wanted_causal = (exact(q, k, v, do, mask) for mask in (False, True))
    square = point.heads * point.sequence**2 * q.element_size()
    with Watch() as forward:
        o = attention(q, k, v, True)
    with Watch() as backward:
        torch.autograd.grad(o, (q, k, v), do)
    ahead, early = _probed(attention, device, point.seed)
    return {
        "all_error": error(found["O"], wanted["O"]),
        "causal_error": error(causal["O"], wanted_causal["O"]),
        "gradient_error": max(error(causal[name], wanted_causal[name]) for name in ("dQ", "dK", "dV")),
        "keeps_lse": "L" in causal,
        "sees_ahead": ahead,
        "early_weight": early,
        "forward_largest": forward.largest / square,
        "backward_largest": backward.largest / square,
        "products": forward.products + backward.products,
    }


def _probed(attention: Callable, device: torch.device, seed: int) -> tuple[int, float]:
    """Return how far ahead queries see under a mask, and the largest excess of a probability without one.

    With V the identity, O is the matrix of probabilities itself.
    """
    generator = torch.Generator(device).manual_seed(seed)
    q, k = (torch.randn(1, PROBE, PROBE, generator=generator, device=device) for _ in range(2))
    v = torch.eye(PROBE, device=device)[None].contiguous()
    rows, columns = (attention(q, k, v, True)[0] > 0).nonzero(as_tuple=True)
    wanted = exact(q, k, v, torch.ones_like(v))["O"]
    return int((columns - rows).max()), (attention(q, k, v, False).double() / wanted).max().item()


def _tensors(point: SimpleNamespace, queries: int, keys: int, device: torch.device) -> list[torch.Tensor]:
    """Return Q, K, V that want gradients, and dO."""
    generator = torch.Generator(device).manual_seed(point.seed)
    form = {"generator": generator, "dtype": getattr(torch, point.precision), "device": device}
    lengths = (queries, keys, keys, queries)
    q, k, v, do = (torch.randn(point.heads, n, point.head_dim, **form) for n in lengths)
    return [*(x.requires_grad_() for x in (q, k, v)), do]
