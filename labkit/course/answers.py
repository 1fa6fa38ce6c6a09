"""The student's own code: `%%answer lab.function` saves a cell as a file, which workers import, and runs it.

A cell that cannot be judged (no valid Python, a bare `...` left) never replaces an answer. It is kept beside it as a
draft, so that a check can tell that the answer is not the newest cell.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import linecache
import re
import time
import warnings
from pathlib import Path
from traceback import format_exception_only
from typing import TYPE_CHECKING

from labkit.course import record
from labkit.course.record import answers_folder as folder
from labkit.course.syntax import MAGIC, answer_cell, is_answered
from labkit.engine.errors import NowhereToWrite, ShownAsSentence
from labkit.repository import lesson_names

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

NAME_FORM = "say lab.function, such as %%answer broadcast.pipelined"


class UnknownExercise(ShownAsSentence, ValueError):
    """No exercise has the name that was given; the message names the nearest ones."""


class InvalidPython(ShownAsSentence, ValueError):
    """The cell below `%%answer` is no valid Python; the message shows its line, counted below that one."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def file_of(name: str) -> Path:
    """Return the file of the answer `name`, such as "broadcast.pipelined".

    Raises ValueError where the name is not of the form lab.function.
    """
    if not re.fullmatch(r"[a-z_]+\.[a-z_]+", name):
        raise ValueError(f"%%answer {name}: {NAME_FORM}")
    return folder() / f"{name.replace('.', '_')}.py"


def draft_of(name: str) -> Path:
    """Return the file of the newest cell of `name` that could not be saved as an answer."""
    return file_of(name).with_suffix(".draft.py")


def newest_version(name: str) -> Path | None:
    """Return the file that holds what the student wrote last for `name`, answer or draft; None where nothing is."""
    versions = [file for file in (file_of(name), draft_of(name)) if file.exists()]
    return max(versions, key=lambda file: file.stat().st_mtime_ns, default=None)


def saved_at(file: Path) -> str:
    """Return the local time at which a file was written, such as "2026-11-21 14:03:22"."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(file.stat().st_mtime))


def save(name: str, text: str) -> str:
    """Save a cell and say what was done; what cannot be judged never replaces an answer that was given before.

    Raises SyntaxError, naming the cell's line, where the text is no Python, and NowhereToWrite where an answer cannot
    be saved. A skeleton that cannot be saved loses nothing: a notebook in a read-only checkout goes on.
    """
    try:
        return _save(name, text)
    except OSError as error:
        reason = f"{folder()} cannot be written ({error.strerror}): set LABKIT_ANSWERS to a folder of your own"
        if is_answered(text, *functions_of(name)):
            raise NowhereToWrite(f"`{name}` is not saved; {reason}") from None
        return f"`{name}`: not answered yet, and {reason} before you answer."


def _save(name: str, text: str) -> str:
    file, draft, functions = file_of(name), draft_of(name), functions_of(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        compile(text, f"below %%answer {name}", "exec")  # by the name of a file, an error would show a line of that
    except (SyntaxError, ValueError):
        draft.write_text(text, encoding="utf-8", errors="backslashreplace")
        raise
    answered = is_answered(text, *functions)
    state = "saved" if answered else "not answered yet: replace each `...` by your own steps"
    if not answered and file.exists() and is_answered(file.read_bytes(), *functions):
        draft.write_text(text, encoding="utf-8")
        return f"`{name}`: {state}; your answer saved earlier in `{file.name}` is kept, but not judged in its place."
    file.write_text(text, encoding="utf-8")
    draft.unlink(missing_ok=True)
    if answered:
        record.keep_version(name, text)
    return f"`{name}`: {state} (`{file.name}`)."


def exercises() -> tuple[str, ...]:
    """Return the names of all labs' exercises, such as "broadcast.pipelined"."""
    return tuple(name for lab in lesson_names() for name in exercises_of(lab))


def exercises_of(lab: str) -> tuple[str, ...]:
    """Return the names of one lab's exercises; none where there is no such lab, or no check in it."""
    with contextlib.suppress(ModuleNotFoundError, AttributeError):
        return tuple(f"{lab}.{exercise}" for exercise in importlib.import_module(f"lessons.{lab}").check.names)
    return ()


def functions_of(name: str) -> tuple[str, ...]:
    """Return the functions that an answer to the exercise `name` defines: of most, the one of its name."""
    lab, _, function = name.partition(".")
    if name in exercises_of(lab):
        return importlib.import_module(f"lessons.{lab}").check.by_name[function].functions
    return (function,)


def require_exercise(name: str) -> None:
    """Raise UnknownExercise, naming the nearest exercise, where no lab has one of this name."""
    lab, _, function = name.partition(".")
    if name in (exercises_of(lab) if re.fullmatch("[a-z_]+", lab) else ()):
        return
    names = exercises()
    near = difflib.get_close_matches(name.lower(), names, n=1)
    near = near or [exercise for exercise in names if exercise.partition(".")[2] == (function or lab)]
    listed = f"did you mean %%answer {near[0]}?" if near else f"there are {', '.join(names)}."
    raise UnknownExercise(f"%%answer {name}: no lab has an exercise of this name; {listed} Nothing was saved.")


def answer(line: str, cell: str):
    """Save the cell below `%%answer lab.function`, show what was done, and define in the notebook what is answered.

    A skeleton is not run: what it imports or names would come into the notebook of a reader who writes no answer.
    """
    from IPython import get_ipython
    from IPython.display import Markdown, display

    name, cell = answer_cell(f"{MAGIC} {line}\n{cell}") or (line, cell)
    require_exercise(name)
    try:
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):  # shown when the cell runs
            shown, answered = Markdown(save(name, cell)), is_answered(cell, *functions_of(name))
    except SyntaxError as error:
        raise InvalidPython("".join(format_exception_only(error)).rstrip()) from None
    if not answered:
        return shown
    display(shown)
    try:
        run_in_notebook(get_ipython(), cell, file_of(name))
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return Markdown("The function is defined in the workers only: this kernel has no torch.")


def run_in_notebook(shell: InteractiveShell, cell: str, file: Path) -> None:
    """Run a cell in the notebook's own names; a traceback begins at the cell's line, and names the file that holds it.

    Only what the cell itself imports from `__future__` holds in it, as in a worker.
    """
    linecache.checkcache(str(file))  # it has just been written
    try:
        exec(compile(cell, str(file), "exec", dont_inherit=True), shell.user_ns)
    except BaseException as error:
        if not isinstance(error, ShownAsSentence):
            own = error.__traceback__ and error.__traceback__.tb_next
            shown = shell.InteractiveTB.structured_traceback(type(error), error, own, tb_offset=0)
            vars(error)["_render_traceback_"] = lambda: shown  # a notebook asks the error what to show
        raise


def register() -> None:
    """Make `%%answer` known to the notebook, if this is one."""
    from IPython import get_ipython

    if (shell := get_ipython()) is not None:
        shell.register_magic_function(answer, "cell", "answer")
