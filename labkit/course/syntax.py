"""What the text of an answer tells before it runs: its exercise, whether it is Python, and which steps are still open.

Imports nothing of labkit: it also runs where an answer is graded, and labkit is out of reach there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from textwrap import dedent

MAGIC = "%%answer"
OPEN, INVALID, ANSWER = "open", "invalid", "answer"
_AROUND = re.compile(r"%%(time|timeit|capture|prun)\b")  # IPython runs the cell below it as a cell of its own
_MOST_AROUND = 3
_PROMPT = re.compile(r"^(>>> ?|\.\.\.(?: |$)|In \[\d+\]: |[ \t]*\.{3,}: ?)", re.MULTILINE)
_LIKE_MAGIC = re.compile(r"^[^\w\n]*%[ \t]*answers?\b[^\n]*", re.MULTILINE | re.IGNORECASE)


def answer_cell(source: str) -> tuple[str, str] | None:
    """Return the exercise that a cell's `%%answer` names, and the code below it; None for any other cell.

    It is read as IPython reads it, without empty lines, indent or prompts before it; a comment may follow the name.
    """
    for _ in range(_MOST_AROUND if MAGIC in source else 0):
        begin = len(source) - len(source.lstrip())
        source = dedent(source[source.rfind("\n", 0, begin) + 1 :])
        if re.match(r">>> |In \[\d+\]: ", source):
            source = _PROMPT.sub("", source)
        first = next(iter(source.splitlines(keepends=True)), "")
        said = first.partition("#")[0].split(maxsplit=1)
        if said[:1] == [MAGIC]:
            return said[1].strip() if said[1:] else "", source[len(first) :]
        if not _AROUND.match(first):
            break
        source = source[len(first) :]
    return None


def refused_answer(source: str) -> str:
    """Return the line of a cell that is meant as `%%answer`, but that IPython does not run as such; "" without one."""
    refused = None if answer_cell(source) else _LIKE_MAGIC.search(source)
    return refused[0].strip() if refused else ""


def syntax_error(code: str | bytes) -> str:
    """Return line, text and message of the first syntax error in some code; "" for valid Python."""
    try:
        compile(code, "answer", "exec")
    except SyntaxError as error:
        text = f" (`{error.text.strip()}`)" if error.text and error.text.strip() else ""
        return f"{error.msg} in line {error.lineno or 1}{text}"
    except ValueError as error:  # a null byte, half a surrogate pair
        return str(error)
    except (RecursionError, MemoryError):
        return "it is nested too deeply, or one of its lines is too long"
    return ""


def open_steps(code: str | bytes, *functions: str) -> list[int]:
    """Return the lines of the bare `...` that stand where steps of `functions` belong, of valid Python.

    Classes and functions inside them do not count, nor does code beside them: `class Odd(Exception): ...` is complete.
    Without any such function, all code counts but classes.
    """
    tree = ast.parse(code)
    last = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in functions}
    statements = [node for part in last.values() or [tree] for node in _statements(part, into_functions=part is tree)]
    return sorted(node.lineno for node in statements if isinstance(node, ast.Expr) and _is_ellipsis(node.value))


def _statements(tree: ast.AST, into_functions: bool) -> Iterator[ast.stmt]:
    parents = [tree]
    for parent in parents:  # a function that calls itself would reach no deep ends
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.stmt):
                yield node
            inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not into_functions
            if not isinstance(node, ast.ClassDef) and not inner:
                parents.append(node)


def _is_ellipsis(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is ...


def state_of(code: str | bytes, *functions: str) -> str:
    """Return INVALID for no Python, OPEN for a skeleton (a bare `...` where steps of `functions` belong), or ANSWER."""
    return INVALID if syntax_error(code) else OPEN if open_steps(code, *functions) else ANSWER


def returns_something(code: str | bytes, function: str) -> bool:
    """Return whether some `return` or `yield` with a value stands in code, or `function` is made in another way."""
    nodes = [*ast.walk(ast.parse(code))]
    defined = any(isinstance(node, ast.FunctionDef) and node.name == function for node in nodes)
    gives = any(isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) and node.value is not None for node in nodes)
    return gives or not defined
