"""Show the code that workers run, highlighted, from its file and without importing it."""

from __future__ import annotations

import ast
import importlib.util
import textwrap
from html import escape
from pathlib import Path
from types import ModuleType

from IPython.display import Code

Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Folded(Code):
    """Code below a line that unfolds it."""

    def __init__(self, code: str, summary: str):
        super().__init__(code, language="python")
        self._summary = summary

    def _repr_html_(self) -> str:
        return f"<details><summary>{escape(self._summary)}</summary>{super()._repr_html_()}</details>"


def source(*names: str | ModuleType, folded: str = "") -> Code:
    """Show code, one part after another: `source(broadcast, "direct", "staged")` what the lesson's workers run.

    After a lesson, a name is a function or class of its worker, and "Lanes.wait" a method of one. Without a lesson, a
    dotted name stands for a module, or for a function or class in it. The file is read; nothing in it runs, so torch
    stays out of the kernel. `folded` is the line that the code is folded below. Raises ValueError, listing what there
    is, where a name is not in it.
    """
    lesson, parts = "", []
    for name in names:
        if isinstance(name, ModuleType):
            lesson = name.__name__
        else:
            parts.append(_in_worker(lesson, name) if lesson else name)
    code = "\n\n\n".join(map(code_of, parts))
    return Folded(code, folded) if folded else Code(code, language="python")


def _in_worker(lesson: str, name: str) -> str:
    """Return the dotted name of a function or class of a lesson's worker, which is a file or a folder."""
    file = _module_file(f"{lesson}.worker")
    if file is None:
        raise ValueError(f"{lesson} has no worker whose code could be shown")
    files = sorted(file.parent.glob("*.py")) if file.name == "__init__.py" else [file]
    modules = {
        node.name: f"{lesson}.worker" if path == file else f"{lesson}.worker.{path.stem}"
        for path in files
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, Named)
    }
    if (first := name.partition(".")[0]) not in modules:
        raise ValueError(f"the worker of {lesson} holds {', '.join(modules)}, not {first!r}")
    return f"{modules[first]}.{name}"


def code_of(name: str) -> str:
    """Return the code that a dotted name stands for, from its file. Raises ValueError where there is none."""
    module, path = locate(name)
    file = _module_file(module)
    assert file is not None, f"{module} was located"
    return _source_part(file, path, name)


def locate(name: str) -> tuple[str, list[str]]:
    """Return the module that a dotted name begins with, and the names inside it. ValueError where there is none."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        if _module_file(".".join(parts[:cut])) is not None:
            return ".".join(parts[:cut]), parts[cut:]
    raise ValueError(f"{name!r}: no module {parts[0]!r} here")


def _module_file(module: str) -> Path | None:
    """Return the module's file, found along the folders so that no parent package other than the first is run."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.origin:
        return None
    path = Path(spec.origin).parent.joinpath(*rest)
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _source_part(file: Path, path: list[str], name: str) -> str:
    text = file.read_text(encoding="utf-8")
    node: Named | ast.Module = ast.parse(text)
    for part in path:
        inside = {node.name: node for node in ast.iter_child_nodes(node) if isinstance(node, Named)}
        if part not in inside:
            raise ValueError(f"{name!r}: {file.name} holds {', '.join(inside) or 'nothing by name'}, not {part!r}")
        node = inside[part]
    if isinstance(node, ast.Module):
        return text
    first = min([node.lineno, *[decorator.lineno for decorator in node.decorator_list]])
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno]))
