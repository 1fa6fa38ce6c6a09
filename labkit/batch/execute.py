"""Executes one notebook with papermill in a kernel of this very interpreter, and says how it went."""

import os
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import nbformat
import papermill
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from papermill.engines import NBClientEngine, NotebookExecutionManager, papermill_engines
from papermill.exceptions import PapermillExecutionError

from labkit.engine.log_text import ESCAPES
from labkit.report.record import FAILED, INTERRUPTED, Outcome
from labkit.repository import REPOSITORY

_SAVE_EVERY = timedelta(seconds=2)
_KERNELSPEC = {"name": "python3", "display_name": "Python 3", "language": "python"}


class ThisInterpreter(AsyncKernelManager):
    """Starts the Python that runs the batch as the kernel, whatever kernelspecs are installed, even none."""

    @property
    def kernel_spec(self) -> KernelSpec:
        """Return a specification whose interpreter is ours and whose path holds this labkit."""
        path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
        # The kernel warns at every start that loopback TCP is not encrypted; its messages are signed. At an interrupt
        # it logs as an error that it could not answer. What a cell raises is in the notebook, not in this log.
        argv = [sys.executable, "-m", "ipykernel_launcher", "--log-level=CRITICAL", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="labkit batch", language="python", env={"PYTHONPATH": path})


class SeldomSaving(NBClientEngine):
    """papermill's engine, which saves the executed copy at every cell's start and end, made to save it more seldom.

    A copy of 3 MB takes 30 ms: 4 s of a notebook's 15 went there.
    """

    @classmethod
    def execute_managed_notebook(cls, nb_man: NotebookExecutionManager, kernel_name: str, **options: Any) -> None:
        """Run the cells; what papermill does after them saves the copy, also after an error or an interrupt."""
        save = nb_man.save

        def save_seldom(**_: Any) -> None:
            if nb_man.now() - nb_man.last_save_time >= _SAVE_EVERY:
                save()

        nb_man.save = save_seldom
        try:
            super().execute_managed_notebook(nb_man, kernel_name, **options)
        finally:
            nb_man.save = save


papermill_engines.register(SeldomSaving.__name__, SeldomSaving)


def title(notebook: nbformat.NotebookNode) -> str:
    """Return the notebook's first heading, without its marks; an empty text where there is none."""
    lines = (line for cell in notebook.cells if cell.cell_type == "markdown" for line in cell.source.splitlines())
    return next((line.lstrip("# ").strip() for line in lines if line.startswith("#")), "")


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """Return the notebook at `path`, whatever kernel its metadata name."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["kernelspec"] = dict(_KERNELSPEC)  # only a label: the kernel is ThisInterpreter
    return notebook


def execute(path: Path, executed: Path, parameters: dict, bar: Any) -> Outcome:
    """Run the notebook at `path` in its own folder and write its executed copy, complete or not.

    Of `parameters` only those that the notebook declares are passed. `bar` goes to tqdm, one step a cell.
    """
    outcome = Outcome(path.stem, path.stem, datetime.now().isoformat(timespec="seconds"))
    begin = time.monotonic()
    try:
        notebook = read_notebook(path)
        outcome.title = title(notebook) or path.stem
        outcome.parameters = declared_parameters(notebook, parameters)
        _run(notebook, path.parent, executed, outcome.parameters, bar)
    except KeyboardInterrupt:
        outcome.status, outcome.why = INTERRUPTED, "interrupted"
    except PapermillExecutionError as error:
        outcome.status, outcome.why = FAILED, _cell_failure(error)
    except Exception as error:  # a dead kernel, an unreadable file: the other notebooks still run
        outcome.status, outcome.why = FAILED, _truncate(f"{type(error).__name__}: {error}")
        if isinstance(error, OSError):  # a disk that is full takes a part of the copy, which is no notebook
            executed.unlink(missing_ok=True)
    outcome.seconds = time.monotonic() - begin
    return outcome


def _run(notebook: nbformat.NotebookNode, folder: Path, executed: Path, parameters: dict, bar: Any) -> None:
    executed.parent.mkdir(parents=True, exist_ok=True)
    executed.unlink(missing_ok=True)  # a kept report may hold the same file: it stays as it was
    papermill.execute_notebook(
        notebook,
        str(executed.resolve()).replace("{", "{{").replace("}", "}}"),  # papermill formats paths
        parameters=parameters,
        cwd=str(folder.resolve()),
        kernel_name=_KERNELSPEC["name"],
        language="python",
        engine_name=SeldomSaving.__name__,
        progress_bar=bar,
        kernel_manager_class=ThisInterpreter,
    )


def declared_parameters(notebook: nbformat.NotebookNode, parameters: dict) -> dict:
    """Return those of the parameters that the notebook declares."""
    names = papermill.inspect_notebook(notebook) if parameters else {}
    return {name: value for name, value in parameters.items() if name in names}


def _cell_failure(error: PapermillExecutionError) -> str:
    where = f"in cell [{error.exec_count}]: " if error.exec_count else ""
    return _truncate(f"{where}{error.ename}: {error.evalue}")


def _truncate(text: str, limit: int = 600) -> str:
    text = ESCAPES.sub("", text).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"
