"""Triton's kernels are Python by syntax only: what is in them is not checked against the compiler's own types."""

from typing import Any

def __getattr__(name: str) -> Any: ...
