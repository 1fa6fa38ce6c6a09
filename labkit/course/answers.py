"""The student's own code: `%%answer lab.function` saves a cell as a file, which workers import, and runs it.

Each cell is a version in the record. The answer's own file, which workers import and students hand in, holds the last
version that can be judged; until there is one, the newest. Another text in that file becomes a version, too.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import linecache
import re
import warnings
from pathlib import Path
from traceback import format_exception_only
from typing import TYPE_CHECKING

from labkit.course import record
from labkit.course.record import Attempt
from labkit.course.record import answers_folder as folder
from labkit.course.syntax import ANSWER, MAGIC, OPEN, answer_cell, state_of
from labkit.engine.errors import NowhereToWrite, ShownAsSentence
from labkit.engine.files import replace_file
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


def newest_version(name: str) -> tuple[Attempt, bytes] | None:
    """Return the entry and the text of what the student wrote last for `name`; None where the answer has no file."""
    unkept, attempts = _unkept(name), record.exercise_record(name)["attempts"]
    if unkept:
        try:
            attempts = _keep(name)
        except OSError:  # the folder cannot be written
            state = state_of(unkept[-1], *functions_of(name))
            return Attempt(number=0, saved=record.timestamp(), state=state, outcome=""), unkept[-1]
    return (attempts[-1], record.code_of(name, attempts[-1])) if file_of(name).exists() else None


def _unkept(name: str) -> list[bytes]:
    """Return what was written into an answer's file and is no version yet, then the draft of an earlier workbook."""
    held = *record.answered(name)[-1:], *record.exercise_record(name)["attempts"][-1:]  # the file holds one of them
    kept = [record.code_of(name, version) for version in held]
    files = file_of(name), file_of(name).with_suffix(".draft.py")
    return [code for file in files if file.exists() and (code := file.read_bytes()) not in kept]


def _keep(name: str, *cells: bytes) -> list[Attempt]:
    """Make versions of what is none yet, then of cells, and return all, oldest first. Raises OSError."""
    file, functions = file_of(name), functions_of(name)
    with record.changing() as entries:
        attempts = record.entry_in(entries, name)["attempts"]
        for code in (*_unkept(name), *cells):
            state = state_of(code, *functions)
            if not attempts or record.code_of(name, attempts[-1]) != code:
                attempts.append(record.new_version(name, code, state))
            if not file.exists() or state == ANSWER or state_of(file.read_bytes(), *functions) != ANSWER:
                replace_file(file, code.decode("utf-8", "surrogateescape"), errors="surrogateescape")
    file.with_suffix(".draft.py").unlink(missing_ok=True)
    return attempts


def save(name: str, text: str) -> str:
    """Save a cell and say what was done; what cannot be judged never replaces an answer that was given before.

    Raises SyntaxError, naming the cell's line, where the text is no Python, and NowhereToWrite where an answer cannot
    be saved. A skeleton that cannot be saved loses nothing: a notebook in a read-only checkout goes on.
    """
    file, code = file_of(name), text.encode("utf-8", "surrogatepass")
    is_open = state_of(code, *functions_of(name)) == OPEN
    try:
        _keep(name, code)
    except OSError as error:
        reason = f"{folder()} cannot be written ({error.strerror}): set LABKIT_ANSWERS to a folder of your own"
        if is_open:
            return f"`{name}`: not answered yet, and {reason} before you answer."
        raise NowhereToWrite(f"`{name}` is not saved; {reason}") from None
    compile(text, f"below %%answer {name}", "exec")  # by the name of a file, an error would show a line of that
    state = "not answered yet: replace each `...` by your own steps" if is_open else "saved"
    if file.read_bytes() != code:
        return f"`{name}`: {state}; your answer saved earlier in `{file.name}` is kept, but not judged in its place."
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
            shown, answered = Markdown(save(name, cell)), state_of(cell, *functions_of(name)) == ANSWER
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
