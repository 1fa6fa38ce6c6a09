"""What the forkserver imports before it forks anything, so that workers start with torch and more already loaded.

Loaded are the installed packages that the labs' workers import, as their text says. The labs' own code is not run
here: it may change between two launches, and what it does while it is imported is for a worker to meet and to report.
Nothing here may touch CUDA: a forked process cannot use a context of its parent.
"""

import ast
import contextlib
import functools
import importlib.util
import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from labkit.repository import front_doors

KERNEL_PATH: list[str] = []  # where a worker's module may lie; what is installed is never taken from there
ALWAYS_LOADED = (
    "torch",
    "torch.distributed",
    "torch.distributed.elastic.multiprocessing.api",
    "labkit.engine.elastic",
)


def import_statements(module: str, seen: set[Path]) -> Iterator[str]:
    """Yield the statements by which a module, and modules that are not installed but that it imports, import others."""
    file = _uninstalled_file(module)
    if file is None:
        yield f"import {module}"
    if file is None or file in seen:
        return
    seen.add(file)
    if above := module.rpartition(".")[0]:  # importing a.b.c runs a and a.b first
        yield from import_statements(above, seen)
    package = module if file.name == "__init__.py" else above
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from import_statements(alias.name, seen)
        elif isinstance(node, ast.ImportFrom):
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            if _uninstalled_file(source) is None:
                yield ast.unparse(node)
                continue
            for name in (source, *(f"{source}.{alias.name}" for alias in node.names)):
                if _uninstalled_file(name):
                    yield from import_statements(name, seen)


def _uninstalled_file(module: str) -> Path | None:
    """Return the module's file, where it is neither installed nor of the standard library."""
    return _file_of(module, tuple(dict.fromkeys([*sys.path, *KERNEL_PATH])))


@functools.cache
def _file_of(module: str, folders: tuple[str, ...]) -> Path | None:
    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    for folder in folders:
        for name in ("{}/__init__.py", "{}.py"):
            file = os.path.join(folder, name.format(module.replace(".", "/")))
            if os.path.isfile(file):
                return None if file.startswith(installed) or "-packages" in file else Path(file)
    return None


def load_packages(modules: list[str]) -> None:
    """Import what the modules import; what cannot be imported is left to the worker."""
    seen = {*front_doors()}  # what several modules import is read once; a worker runs no lesson's front door
    for module in modules:
        statements = []
        with contextlib.suppress(Exception):
            statements.extend(import_statements(module, seen))
        for statement in statements:
            with contextlib.suppress(BaseException):
                exec(statement, {})


def load_from_environment() -> None:
    """Import what every worker needs, and what the modules need that the environment names."""
    wanted = json.loads(os.environ.get("LABKIT_PRELOAD", '{"modules": [], "path": []}'))
    KERNEL_PATH.extend(wanted["path"])
    load_packages([*ALWAYS_LOADED, *wanted["modules"]])
