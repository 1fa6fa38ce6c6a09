"""Which labkit a node has: its kernel, its agents and its workers all import one, from the checkout that they see."""

from __future__ import annotations

import hashlib
from pathlib import Path

import labkit


def source_state() -> tuple[int, int]:
    """Return how many source files labkit has here, and when the newest changed (ns): quicker than their digest."""
    times = [file.stat().st_mtime_ns for file in Path(labkit.__file__).parent.rglob("*.py")]
    return len(times), max(times)


def source_digest() -> str:
    """Return 16 digits that differ where any source file of labkit does, in its name or its text."""
    digest, folder = hashlib.sha256(), Path(labkit.__file__).parent
    for file in sorted(folder.rglob("*.py")):
        text = file.read_bytes()
        digest.update(f"{file.relative_to(folder)} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()[:16]
