"""Which labkit a node has: its kernel, its agents and its workers all import one, from the checkout that they see."""

from __future__ import annotations

import hashlib

from labkit.repository import CODE, REPOSITORY


def source_state() -> tuple[int, int]:
    """Return how many source files there are here, and when the newest changed (ns): quicker than their digest."""
    times = [file.stat().st_mtime_ns for folder in CODE for file in folder.rglob("*.py")]
    return len(times), max(times)


def source_digest() -> str:
    """Return 16 digits that differ where any source file of the workbook does, in its name or its text."""
    digest = hashlib.sha256()
    for file in sorted(file for folder in CODE for file in folder.rglob("*.py")):
        text = file.read_bytes()
        digest.update(f"{file.relative_to(REPOSITORY)} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()[:16]
