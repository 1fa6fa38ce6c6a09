"""What attention keeps for backward, how much memory there is at most, and which tensors it makes on the way."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = (
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
    """Give `kept_bytes` of the distinct storages that `work` keeps for backward, and `largest_kept` in elements.

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
    """Give MiB beyond what was allocated before: at most in forward, held between, at most in backward.

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
        self.products += any(word in name for word in PRODUCTS)
        made = result if isinstance(result, tuple | list) else (result,)
        self.largest = max([self.largest, *(x.nbytes for x in made if isinstance(x, torch.Tensor))])
        return result
