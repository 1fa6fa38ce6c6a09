"""Renew the second part of requirements.txt: one version of each package that the first part needs, on every Python.

    .venv/bin/python .ci/lock.py

pip resolves the first part for each Python. "3.11" means 3.11.0, so that the versions fit each of its releases. A
version that not all Pythons use carries a marker.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "requirements.txt"
LAST_LINE_KEPT = "# `make lock` writes the lines below.\n"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LEFT_TO_TORCH = ("cuda-", "nvidia-")  # only torch's CUDA build needs these, and says which versions


def main() -> None:
    """Write the pins below the line that says so."""
    kept, line, _ = REQUIREMENTS.read_text(encoding="utf-8").partition(LAST_LINE_KEPT)
    pythons: dict[str, list[str]] = {}  # of each pin
    with tempfile.TemporaryDirectory() as folder:
        first_part = Path(folder, "requirements.txt")
        first_part.write_text(kept, encoding="utf-8")
        # The pip of a new .venv can be old: before 23.3 it downloads whole wheels to learn what they need, torch's too.
        pip = Path(folder, "pip")
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", pip, "pip"], check=True)
        for python in PYTHONS:
            for pin in pins(python, first_part, pip):
                pythons.setdefault(pin, []).append(python)
    lines = [f"{pin}{marker(pythons[pin])}\n" for pin in sorted(pythons)]
    REQUIREMENTS.write_text("".join([kept, line, *lines]), encoding="utf-8")


def pins(python: str, first_part: Path, pip: Path) -> list[str]:
    """Return `name==version` of what the first part needs beyond itself on this Python."""
    pip_for = ROOT / "labkit" / "tools" / "pip_for.py"
    command = [sys.executable, pip_for, python, "install", "--quiet", "--dry-run", "--report=-", "--ignore-installed"]
    command += ["--target", pip.parent / "none", "--requirement", first_part]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(pip)}, check=True, stdout=subprocess.PIPE)
    needed = [package["metadata"] for package in json.loads(done.stdout)["install"] if not package["requested"]]
    versions = {re.sub(r"[-_.]+", "-", package["name"]).lower(): package["version"] for package in needed}
    return [f"{name}=={versions[name]}" for name in versions if not name.startswith(LEFT_TO_TORCH)]


def marker(pythons: list[str]) -> str:
    """Return the marker of a pin of these Pythons; a newer Python than all of PYTHONS counts as the newest."""
    first, last = pythons[0], pythons[-1]
    bounds = [f'>= "{first}"'] * (first != PYTHONS[0]) + [f'<= "{last}"'] * (last != PYTHONS[-1])
    if first == last and len(bounds) == 2:
        bounds = [f'== "{first}"']
    return "; " * bool(bounds) + " and ".join(f"python_version {bound}" for bound in bounds)


if __name__ == "__main__":
    main()
