"""Which labkit a node has: its kernel, its agents and its workers all import one, from the checkout that they see."""

from __future__ import annotations

import hashlib

from labkit.repository import REPOSITORY

PACKAGE = REPOSITORY / "labkit"


def source_state() -> tuple[int, int]:
    """Return how many source files labkit has here, and when the newest changed (ns): quicker than their digest."""
    times = [file.stat().st_mtime_ns for file in PACKAGE.rglob("*.py")]
    return len(times), max(times)


def source_digest() -> str:
    """Return 16 digits that differ where any source file of labkit does, in its name or its text."""
    digest = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_bytes()
        digest.update(f"{file.relative_to(PACKAGE)} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()[:16]
