"""`make … OFFLINE=1` and `make … HOST=1`: a .venv that sees the packages of the python3 that was called.

    python3 labkit/tools/offline.py                      # adds from wheelhouse/ what that python3 lacks
    python3 labkit/tools/offline.py papermill sphinx …   # adds it from pip's registry, in the workbook's versions

pip names what is nowhere. Started by its path: it needs nothing but Python and pip, and imports nothing of labkit.
"""

from __future__ import annotations

import importlib.util
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
WHEELHOUSE = ROOT / "wheelhouse"
# Jupyter looks for these under .venv only, whatever sys.path says.
JUPYTER = [
    "share/jupyter/lab",
    "share/jupyter/labextensions/*",
    "share/jupyter/labextensions/@*/*",
    "etc/jupyter/*/*.json",
]


def main(*names: str) -> None:
    """Build .venv; the status is pip's, or Python's where the node lacks what no wheelhouse has."""
    build()
    pip = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    of_wheelhouse = ["--no-index", "--find-links", WHEELHOUSE, "--requirement", WHEELHOUSE / "requirements.txt"]
    wheels = pinned(names) if names else of_wheelhouse
    # pip is not asked for these: what their metadata names is often not what a vendor's image has.
    imports = [PYTHON, "-c", "import torch, transformers, triton"]
    if status := subprocess.call([*pip, *wheels]) or subprocess.call(imports):
        sys.exit(status)
    link_jupyter()


def pinned(names: tuple[str, ...]) -> list[str]:
    """Return the packages in the versions of requirements.txt; one that it does not name is left to pip."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    versions = {line.partition("==")[0]: line.split()[0] for line in lines if "==" in line.split("#")[0]}
    return [versions.get(name, name) for name in names]


def build() -> None:
    """Build .venv from this Python; a virtual environment's packages are seen as well as the base Python's."""
    if Path(sys.prefix).resolve() == VENV.resolve():
        sys.exit(f"python3 is that of {VENV}, which make is to build: run `deactivate`, then make again.")
    # Debian leaves ensurepip out; then python3's own pip serves, which .venv sees.
    bundled = importlib.util.find_spec("ensurepip") is not None
    # An environment that hides the base Python's packages hides them here, too.
    venv.EnvBuilder(sys.base_prefix in site.PREFIXES, symlinks=True, with_pip=bundled).create(VENV)
    # addsitedir reads the .pth files there, too: editable installs, and environments that this one is built over.
    line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n" if sys.prefix != sys.base_prefix else ""
    packages = sysconfig.get_path("purelib", "venv", {"base": str(VENV)})
    Path(packages, "node.pth").write_text(line, encoding="utf-8")


def link_jupyter() -> None:
    """Link what Jupyter's packages keep outside site-packages, where .venv has none of its own."""
    for outer in (Path(sysconfig.get_path("data")), Path(sys.prefix)):  # these differ on Debian
        for source in [path for pattern in JUPYTER for path in sorted(outer.glob(pattern))]:
            target = VENV / source.relative_to(outer)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(source)


if __name__ == "__main__":
    main(*sys.argv[1:])
