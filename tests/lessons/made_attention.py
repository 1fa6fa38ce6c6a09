"""Makes tensors to attend, in every layout, and holds what an attention gives to float64."""

from __future__ import annotations

from typing import NamedTuple

import torch

from lessons.attention.worker import TENSORS, scaled_error
from lessons.attention.worker.plain import exact

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
# Where O is kept in bfloat16, δ comes from what is rounded. With few keys plain attention's gradients are as far off.
LIMITS_ROUNDED = LIMITS | {torch.bfloat16: 4e-2}
LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.mT.contiguous().mT,
    "heads inside": lambda x: x.transpose(0, -2).contiguous().transpose(0, -2),
    "every second": lambda x: torch.stack([x, -x], -1).flatten(-2)[..., ::2],
    "misaligned": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
}


class Problem(NamedTuple):
    """What there is to attend: (…, queries, width) over (…, keys, width); a layout each for q, k, v and dO."""

    leading: tuple[int, ...] = (2,)
    queries: int = 33
    keys: int = 47
    width: int = 16
    causal: bool = False
    precision: str = "float32"
    layouts: tuple[str, ...] = ("contiguous",) * 4
    seed: int = 0

    def tensors(self) -> list[torch.Tensor]:
        """Give q, k and v, which want gradients, and dO."""
        generator = torch.Generator().manual_seed(self.seed)
        lengths = (self.queries, self.keys, self.keys, self.queries)
        made = [torch.randn(*self.leading, n, self.width, generator=generator) for n in lengths]
        made = [x.to(DEVICE, getattr(torch, self.precision)) for x in made]
        q, k, v, do = (LAYOUTS[layout](x) for layout, x in zip(self.layouts, made, strict=True))
        return [*(x.detach().requires_grad_() for x in (q, k, v)), do]


def assert_exact(found: dict[str, torch.Tensor], tensors: list[torch.Tensor], causal: bool, limits=LIMITS) -> None:
    """Assert that O, L, dQ, dK and dV are float64's, in shape, precision and value."""
    wanted, dtype = exact(*tensors, causal), tensors[0].dtype
    assert set(found) == set(TENSORS), f"it gives {list(found)}"
    for name in TENSORS:
        assert found[name].shape == wanted[name].shape, f"{name} is {tuple(found[name].shape)}"
        assert found[name].dtype == (torch.float32 if name == "L" else dtype), f"{name} is {found[name].dtype}"
        off = scaled_error(found[name], wanted[name])
        assert off <= limits[dtype], f"{name} is off by {off:.1g}"
