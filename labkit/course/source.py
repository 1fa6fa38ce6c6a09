"""Show worker code, highlighted, from its file and without importing it."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

from IPython.display import Code

Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def source(*names: str) -> Code:
    """Show the code that dotted names stand for, one after another: modules, or functions and classes in them.

    `source("lessons.broadcast.worker.methods.pipelined")` reads the file; nothing in it runs, so torch stays out
    of the kernel. Raises ValueError, listing what the module holds, where the name is not in it.
    """
    return Code("\n\n\n".join(map(code_of, names)), language="python")


def code_of(name: str) -> str:
    """Return the code that a dotted name stands for, from its file. Raises ValueError where there is none."""
    module, path = located(name)
    file = _file(module)
    assert file is not None, f"{module} was located"
    return _part(file, path, name)


def located(name: str) -> tuple[str, list[str]]:
    """Return the module that a dotted name begins with, and the names inside it. ValueError where there is none."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        if _file(".".join(parts[:cut])) is not None:
            return ".".join(parts[:cut]), parts[cut:]
    raise ValueError(f"{name!r}: no module {parts[0]!r} here")


def _file(module: str) -> Path | None:
    """Return the module's file, found along the folders so that no parent package other than the first is run."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.origin:
        return None
    path = Path(spec.origin).parent.joinpath(*rest)
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _part(file: Path, path: list[str], name: str) -> str:
    text = file.read_text()
    node: Named | ast.Module = ast.parse(text)
    for part in path:
        inside = {node.name: node for node in ast.iter_child_nodes(node) if isinstance(node, Named)}
        if part not in inside:
            raise ValueError(f"{name!r}: {file.name} holds {', '.join(inside) or 'nothing by name'}, not {part!r}")
        node = inside[part]
    if isinstance(node, ast.Module):
        return text
    first = min([node.lineno, *[decorator.lineno for decorator in node.decorator_list]])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
