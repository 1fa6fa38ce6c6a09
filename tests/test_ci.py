"""Continuous integration installs what tests would otherwise be skipped for."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
SKIPS = re.compile(r'importorskip\("([a-z_]+)"')
PINNED = re.compile(r"([a-z_]+)==[0-9.]+")


def test_every_package_that_a_test_is_skipped_without_is_installed(tmp_path):
    """`make` is asked what it would do in a fresh clone, which has no .venv."""
    needed = {name for file in (ROOT / "tests").rglob("test_*.py") for name in SKIPS.findall(file.read_text())}
    calls = [line.split() for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make test")]
    assert needed and len(calls) == 1
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    asked = subprocess.run([*calls[0], "--dry-run"], cwd=tmp_path, capture_output=True, text=True, check=True, env=own)
    assert {*PINNED.findall(asked.stdout)} >= needed
