"""Grading again: what was graded before is kept in a dated folder, and what changed since is told."""

from __future__ import annotations

import csv
import hashlib
import re
import subprocess
import time
from pathlib import Path

from labkit.repository import REPOSITORY, source_digest

FOLDER = "earlier"
_WRITTEN = re.compile(r"grades\.csv|students\.csv|index\.html|.*-\d{3}\.html")


def put_aside(folder: Path) -> dict[tuple[str, str], str]:
    """Move the grades in a folder to earlier/ by their date; return their points by student and exercise as written.

    Raises OSError where they cannot be moved.
    """
    grades = folder / "grades.csv"
    written = [file for file in folder.iterdir() if _WRITTEN.fullmatch(file.name)]
    if not written:
        return {}
    last = max(file.stat().st_mtime for file in written)
    date = time.strftime("%Y-%m-%d %H-%M-%S", time.localtime(last))
    kept, number = folder / FOLDER / date, 1
    while kept.exists():
        number += 1
        kept = kept.with_name(f"{date} ({number})")
    kept.mkdir(parents=True)
    for file in written:
        file.rename(kept / file.name)
    if not (kept / grades.name).exists():
        return {}
    with open(kept / grades.name, newline="", encoding="utf-8") as file:
        return {(row["student"], row["exercise"]): row["points"] for row in csv.DictReader(file)}


def about_run(secret: str) -> str:
    """Return when, by which code and with which secret grades are made; the secret as a part of its hash."""
    asked = ["git", "-C", str(REPOSITORY), "rev-parse", "--short=12", "HEAD"]
    try:
        commit = subprocess.run(asked, capture_output=True, encoding="utf-8").stdout.strip()
    except OSError:
        commit = ""
    code = f"commit {commit}" if commit else f"code {source_digest()}"
    fingerprint = hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()[:8] if secret else "none"
    return f"Graded {time.strftime('%Y-%m-%d %H:%M:%S')}, {code}, secret's fingerprint {fingerprint}."
