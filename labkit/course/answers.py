"""The student's own code: `%%answer lab.function` saves a cell as a file, and workers import that file."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

from labkit.engine.run import REPOSITORY


def folder() -> Path:
    """Where answers are kept: $LABKIT_ANSWERS, or notebooks/answers/, which git ignores."""
    return Path(os.environ.get("LABKIT_ANSWERS") or REPOSITORY / "notebooks" / "answers")


def file_of(name: str) -> Path:
    """Give the file of the answer `name`, such as "broadcast.pipelined".

    Raises ValueError where the name is not of the form lab.function.
    """
    if not re.fullmatch(r"[a-z_]+\.[a-z_]+", name):
        raise ValueError(f"%%answer {name}: say lab.function, such as %%answer broadcast.pipelined")
    return folder() / f"{name.replace('.', '_')}.py"


def is_answered(text: str) -> bool:
    """Say whether code is an answer: a skeleton still holds a bare `...` where its steps belong."""
    try:
        steps = ast.walk(ast.parse(text))
    except SyntaxError:
        return True  # somebody wrote something; the check says what is wrong with it
    alone = [step.value for step in steps if isinstance(step, ast.Expr)]
    return not any(isinstance(value, ast.Constant) and value.value is ... for value in alone)


def save(name: str, text: str) -> str:
    """Save an answer and say what was done; a skeleton never replaces an answer that was given before.

    Raises SyntaxError, naming the cell's line, where the text is no Python.
    """
    file = file_of(name)
    compile(text, str(file), "exec")
    if not is_answered(text) and file.exists() and is_answered(file.read_text()):
        return f"`{name}`: this cell is still the skeleton; your answer saved earlier in `{file.name}` is kept."
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    state = "saved" if is_answered(text) else "not answered yet: replace each `...` by your own steps"
    return f"`{name}`: {state} (`{file.name}`)."


def register() -> None:
    """Make `%%answer` known to the notebook, if this is one."""
    from IPython import get_ipython
    from IPython.display import Markdown

    if (shell := get_ipython()) is not None:
        shell.register_magic_function(lambda line, cell: Markdown(save(line.strip(), cell)), "cell", "answer")
