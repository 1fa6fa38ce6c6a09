"""requirements.txt pins what its packages need: environments that are built on different days are the same."""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FILE = Path(__file__).parents[1] / "requirements.txt"
LEFT_TO_TORCH = ("cuda-", "nvidia-")


def applies(need: Requirement, extra: str = "") -> bool:
    return need.marker is None or need.marker.evaluate({"extra": extra})


def part(text: str) -> dict[str, Requirement]:
    """Return the requirements that hold for this Python, by canonical names."""
    lines = [line for line in (line.split("#")[0].strip() for line in text.splitlines()) if line]
    return {canonicalize_name(need.name): need for need in map(Requirement, lines) if applies(need)}


def is_installed(need: Requirement) -> bool:
    try:
        return need.specifier.contains(distribution(need.name).version, prereleases=True)
    except PackageNotFoundError:
        return False


def needed_by(packages: dict[str, Requirement]) -> set[str]:
    """Return the canonical names of what these packages need here, themselves among them."""
    reached, waiting = set(), list(packages.values())
    while waiting:
        need = waiting.pop()
        for package in {(canonicalize_name(need.name), extra) for extra in ("", *need.extras)} - reached:
            reached.add(package)
            inner = map(Requirement, distribution(need.name).requires or [])
            waiting += [other for other in inner if applies(other, package[1])]
    return {name for name, _ in reached}


def test_what_the_packages_need_has_the_version_that_is_pinned():
    first, pins = map(part, FILE.read_text(encoding="utf-8").split("`make lock` writes the lines below.\n"))
    if others := [name for name, need in first.items() if not is_installed(need)]:
        pytest.skip(f"not built from requirements.txt: there is no {', '.join(others)} of the version that it names")
    names = [name for name in needed_by(first) - set(first) if not name.startswith(LEFT_TO_TORCH)]
    versions = {name: f"=={distribution(name).version}" for name in names}
    assert len(versions) > 50
    assert versions == {name: str(pins[name].specifier) if name in pins else "not pinned" for name in names}
