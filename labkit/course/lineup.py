"""Suspects for "find the bug": who is who must not show in their order."""

from __future__ import annotations

import zlib
from collections.abc import Iterable


def lined_up(names: Iterable[str]) -> tuple[str, ...]:
    """Give the names in an order that says nothing about them, the same every time."""
    return tuple(sorted(names, key=lambda name: zlib.crc32(name.encode())))
