"""What `make` does on a node without a registry: build .venv over what python3 has, and name what is missing.

    python3 labkit/tools/offline.py build TARGET  .venv: first its own packages from wheelhouse/, then those of python3
    .venv/bin/python … offline.py require TARGET  one sentence where `make TARGET` lacks a package

Started by its path, so that it needs nothing but Python and pip; it imports nothing of labkit.
"""

from __future__ import annotations

import importlib.util
import json
import re
import site
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OLDEST = (3, 11)
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
VENV = ROOT / ".venv"
WHEELHOUSE = ROOT / "wheelhouse"
TOOLS = {
    "lab": ["jupyterlab"],
    "test": ["jupyterlab", "pytest", "pytest-xdist", "pytest-timeout", "nbval", "hypothesis", "playwright"],
    "lint": ["ruff", "basedpyright"],
}
NO_NOTEBOOKS = {"card", "compare"}  # targets that run and show no notebook
NOTEBOOKS = ["jupyterlab", "ipykernel", "ipywidgets", "papermill", "nbclient", "nbconvert", "nbformat", "networkx"]
MODULES = {"nvidia-ml-py": "pynvml", "pytest-xdist": "xdist"}  # where the name differs from the distribution's
# Jupyter looks for these under .venv only, whatever sys.path says.
JUPYTER = [
    "share/jupyter/kernels/python3",
    "share/jupyter/lab",
    "share/jupyter/nbconvert/templates/*",
    "share/jupyter/labextensions/*",
    "share/jupyter/labextensions/@*/*",
    "etc/jupyter/*/*.json",
]


def build(target: str) -> None:
    """Build .venv from this Python; a virtual environment's packages are seen as well as the base Python's."""
    if sys.version_info < OLDEST:
        sys.exit(f"{sys.executable} is Python {VERSION}, and the workbook needs {OLDEST[0]}.{OLDEST[1]} or newer.")
    if Path(sys.prefix).resolve() == VENV.resolve():
        sys.exit(f"python3 is that of {VENV}, which make is to build: run `deactivate`, then make again.")
    outer = sys.prefix != sys.base_prefix
    folder = VENV / "lib" / f"python{VERSION}" / "site-packages"
    shared = not outer or _sees_base()
    # Debian leaves ensurepip out; then python3's own pip serves, which .venv sees.
    bundled = importlib.util.find_spec("ensurepip") is not None and not (folder / "pip").exists()
    venv.EnvBuilder(system_site_packages=shared, symlinks=True, with_pip=bundled).create(VENV)
    seen = [path for path in site.getsitepackages() if outer and Path(path).is_relative_to(sys.prefix)]
    # addsitedir reads the .pth files there, too: editable installs, and environments that this one is built over.
    lines = [f"import site; site.addsitedir({path!r})\n" for path in seen]
    (folder / "node.pth").write_text("".join(lines), encoding="utf-8")
    if code := subprocess.call([str(VENV / "bin" / "python"), __file__, "install", target, sys.executable]):
        sys.exit(code)
    _link_jupyter(Path(sys.prefix))


def _sees_base() -> bool:
    settings = (Path(sys.prefix) / "pyvenv.cfg").read_text(encoding="utf-8")
    return bool(re.search(r"(?im)^include-system-site-packages *= *true", settings))


def _link_jupyter(outer: Path) -> None:
    """Link what Jupyter's packages keep outside site-packages, where .venv has none of its own."""
    for source in [path for pattern in JUPYTER for path in sorted(outer.glob(pattern))]:
        target = VENV / source.relative_to(outer)
        if not target.exists() and _serves_any_python(source):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)


def _serves_any_python(source: Path) -> bool:
    """False for a kernel that names its Python by path: it would run without .venv."""
    kernel = source / "kernel.json"
    return not kernel.exists() or not json.loads(kernel.read_text(encoding="utf-8"))["argv"][0].startswith("/")


def install(target: str, python3: str) -> None:
    """Install from wheelhouse/ what the environment lacks; end in one sentence where both lack a package."""
    wanted, wheels = _wheelhouse_requirements(), _wheels()
    requirements = _requirement_closure(wanted, lambda need: _installed(need) or _newest(need, wheels))
    missing = {need.name: _package_text(need) for need, there in requirements if there is None}
    missing |= {name: name for name in _missing_packages(target) if not _newest(_requirements([name])[0], wheels)}
    if missing:
        sys.exit(_sentence(missing, target, python3))
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-index"]
    if wanted and subprocess.call([*pip, "--find-links", str(WHEELHOUSE), "-r", str(WHEELHOUSE / "requirements.txt")]):
        sys.exit(f"pip could not install wheelhouse/ over the packages of {python3}, for the reason above.")


def require(target: str) -> None:
    """End in one sentence where a package that `make TARGET` imports cannot be found."""
    if missing := {name: name for name in _missing_packages(target)}:
        sys.exit(_sentence(missing, target, sys.executable))


def _missing_packages(target: str) -> list[str]:
    """The packages of requirements.txt that a target imports and this environment does not have."""
    pinned = [match[0] for line in _lines(ROOT / "requirements.txt") if (match := re.match(r"[A-Za-z0-9._-]+", line))]
    others = {name for tools in TOOLS.values() for name in tools} - set(TOOLS.get(target, []))
    others |= set(NOTEBOOKS) if target in NO_NOTEBOOKS else set()
    modules = {name: MODULES.get(name, name.lower().replace("-", "_")) for name in pinned if name not in others}
    return [name for name, module in modules.items() if importlib.util.find_spec(module) is None]


class _Wheel(PathDistribution):
    """The metadata of a wheel, and the wheel's path."""

    def __init__(self, wheel: Path):
        name, version = wheel.name.split("-")[:2]
        super().__init__(zipfile.Path(wheel, f"{name}-{version}.dist-info/"))
        self.wheel = wheel


def _wheels() -> dict[str, list[_Wheel]]:
    """Canonical name → the wheels in wheelhouse/ that this Python can install."""
    from pip._vendor.packaging.tags import sys_tags
    from pip._vendor.packaging.utils import parse_wheel_filename

    tags = set(sys_tags())
    wheels: dict[str, list[_Wheel]] = {}
    for path in sorted(WHEELHOUSE.glob("*.whl")):
        name, _, _, fits = parse_wheel_filename(path.name)
        if tags & fits:
            wheels.setdefault(name, []).append(_Wheel(path))
    return wheels


def _requirement_closure(wanted: Iterable, find: Callable) -> list[tuple]:
    """Each requirement that the wanted ones lead to, with the distribution that `find` gives for it, or None."""
    reached, waiting = {}, list(wanted)
    while waiting:
        need = waiting.pop()
        if str(need) not in reached:
            there = reached[str(need)] = need, find(need)
            inner = _requirements(there[1].requires or []) if there[1] else []
            waiting += [other for other in inner if _applies(other, need.extras)]
    return list(reached.values())


def _requirements(lines: Iterable[str]) -> list:
    """The lines as requirements; old packages print some that no standard allows, and pip names those."""
    from pip._vendor.packaging.requirements import InvalidRequirement, Requirement

    requirements = []
    for line in lines:
        with suppress(InvalidRequirement):
            requirements.append(Requirement(line))
    return requirements


def _applies(need, extras: set[str]) -> bool:
    return need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras or {""})


def _installed(need) -> Distribution | None:
    try:
        there = distribution(need.name)
    except PackageNotFoundError:
        return None
    return there if not str(need.specifier) or _is_satisfied_by(need, there.version) else None


def _is_satisfied_by(need, version: str) -> bool:
    with suppress(ValueError):  # a version that no standard allows
        return need.specifier.contains(version, prereleases=True)
    return False


def _newest(need, wheels: dict[str, list[_Wheel]]) -> _Wheel | None:
    from pip._vendor.packaging.utils import canonicalize_name
    from pip._vendor.packaging.version import Version

    named = wheels.get(canonicalize_name(need.name), [])
    fit = [wheel for wheel in named if _is_satisfied_by(need, wheel.version)]
    return max(fit, key=lambda wheel: Version(wheel.version), default=None)


def _wheelhouse_requirements() -> list:
    return _requirements(_lines(WHEELHOUSE / "requirements.txt"))


def _lines(file: Path) -> list[str]:
    """The requirements in a file, without comments; none where there is no file."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [text for text in (line.split("#")[0].strip() for line in lines) if text]


def _package_text(need) -> str:
    try:
        return f"{need.name}{need.specifier} (not {distribution(need.name).version})"
    except PackageNotFoundError:
        return need.name


def _sentence(missing: dict[str, str], target: str, python: str) -> str:
    described = list(missing.values())
    names = f"{', '.join(described[:-1])} and {described[-1]}" if len(described) > 1 else described[0]
    are, them = ("are", "them") if len(described) > 1 else ("is", "it")
    wheels = " ".join(dict.fromkeys([*_lines(WHEELHOUSE / "requirements.txt"), *missing]))
    return (
        f"{names} {are} missing for `make {target}`: neither {python} nor wheelhouse/ has {them}; where pip reaches a "
        f'registry, run `make wheels PYTHON={VERSION} WHEELS="{wheels}"`, copy wheelhouse/ to this node, and call '
        f"`make {target} OFFLINE=1`."
    )


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    {"build": build, "install": install, "require": require}[command](*arguments)
