"""What a transfer takes by its size, as a line: a latency and a bandwidth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from labkit.theory.sizes import GB


@dataclass(frozen=True)
class Link:
    """A call takes α, and β moves its bytes; `residual` is the largest relative miss of the fit that made it."""

    alpha_s: float
    beta_gb_per_s: float
    residual: float = 0.0

    def seconds(self, sent_bytes: float) -> float:
        return self.alpha_s + sent_bytes / (GB * self.beta_gb_per_s)

    @property
    def knee_bytes(self) -> float:
        """The size α·β, at which latency and transfer take equally long."""
        return self.alpha_s * self.beta_gb_per_s * GB


def fit(sizes_bytes: Sequence[float], seconds: Sequence[float]) -> Link:
    """Fit t = α + bytes/β by least squares of the relative misses, so that small messages count as large ones do.

    Neither α nor 1/β is let below 0. Raises ValueError where the sizes are not two or more.
    """
    if len(set(sizes_bytes)) < 2:
        raise ValueError("a line needs two sizes or more")
    # Divided by t, the line is to be 1 everywhere: α·u + s·v = 1 with u = 1/t, v = bytes/t and the slope s = 1/β.
    u, v = [1 / t for t in seconds], [size / t for size, t in zip(sizes_bytes, seconds, strict=True)]
    uu, uv, vv = _dot(u, u), _dot(u, v), _dot(v, v)
    alpha, slope = (sum(u) * vv - sum(v) * uv) / (uu * vv - uv**2), (sum(v) * uu - sum(u) * uv) / (uu * vv - uv**2)
    if alpha < 0:
        alpha, slope = 0.0, sum(v) / vv
    elif slope <= 0:
        alpha, slope = sum(u) / uu, 0.0
    residual = max(abs(alpha * a + slope * b - 1) for a, b in zip(u, v, strict=True))
    return Link(alpha, 1 / slope / GB if slope else math.inf, residual)


def _dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
