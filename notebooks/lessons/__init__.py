"""The lessons, one folder each, named like its notebook."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

# The rooms of a lab that a notebook may use, in the order of the data. A worker, and bugs, are for worker processes;
# `labkit.show_claims(lab)` shows what is in claims.py.
ROOMS = ("plan", "faults", "tables", "charts", "story", "targets", "exercise", "explorer", "theory")


def front_door(package: str) -> tuple[Callable, Callable]:
    """Return a lab's `__getattr__` and `__dir__`: every public name of its rooms, found without importing them.

    A public name is a function, class or constant that a room defines, or imports by `from … import name as name`,
    without a leading underscore; constants are found, but not listed. A module is imported when one of its names is
    first used: a worker that imports its lab's plan loads no drawing library.
    """

    def fetch(name: str):
        modules = public_names(package)
        if name not in modules:
            near = " or ".join(difflib.get_close_matches(name, listed(), n=3, cutoff=0.5))
            raise AttributeError(f"{package} has no {name!r}{near and f'; did you mean {near}?'}")
        found = getattr(importlib.import_module(modules[name]), name)
        in_story = modules[name].startswith(f"{package}.story") and inspect.isfunction(found)
        return _knowing_its_tables(found) if in_story else found

    def listed() -> list[str]:
        own = {name for name in vars(sys.modules[package]) if name.isupper() or name.startswith("__")} - {
            "TYPE_CHECKING"
        }
        return sorted({*own, *(name for name in public_names(package) if not name.isupper())})

    return fetch, listed


@functools.cache
def _knowing_its_tables(story: Callable) -> Callable:
    """Return the story, whose sentences know the tables that it was given: `beside` compares their conditions."""

    @functools.wraps(story)
    def said(*arguments, **named):
        from labkit.story.words import about

        return about(story(*arguments, **named), *arguments, *named.values())

    return said


@functools.cache
def public_names(package: str) -> dict[str, str]:
    """Return the public names of a lab's rooms, each with the module that defines it; files are read, not run."""
    folder = Path(str(sys.modules[package].__file__)).parent
    names: dict[str, str] = {}
    for room in ROOMS:
        for file in (folder / f"{room}.py", *sorted((folder / room).glob("*.py"))):
            if file.exists():
                module = ".".join((package, *file.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
                for name in _defined(file):
                    names.setdefault(name, module)
    return names


def _defined(file: Path) -> list[str]:
    """Return the public names that a file defines at its top level, or imports under the same name explicitly."""
    names: list[str] = []
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.ImportFrom):
            names += [alias.name for alias in node.names if alias.asname == alias.name]
        elif isinstance(node, ast.Assign):
            targets = [part for target in node.targets for part in getattr(target, "elts", [target])]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    return [name for name in names if not name.startswith("_")]
