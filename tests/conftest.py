"""Fixtures: small notebooks for the tests, which keep their runs and answers away from the reader's own."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import hypothesis
import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager, KernelManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbval.plugin import IPyNbCell

from labkit import node
from labkit.engine.session import AgentSession
from labkit.repository import NOTEBOOKS, REPOSITORY

_SCRATCH = tempfile.mkdtemp(prefix="labkit-tests-")
_SETTINGS: dict[str, str] = {}  # those that each file of tests begins with


def pytest_configure():
    """The notebooks' kernels inherit this: an answer that the reader saved must not change what a test sees.

    A shell has what it starts in the background ignore interrupts, and so would every process that a test starts.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not node.here().has_gpus:  # as the workers' environment says, before any test loads Triton
        os.environ.setdefault("TRITON_INTERPRET", "1")
    # A kernel binds the free ports that were found for it a second before. In between, one of the many sockets of other
    # tests took one, and the kernel died as it started. A socket in a file is nobody else's; by its full path it is the
    # same one for a kernel that stands in another folder. traitlets asks a manager's own class alone.
    KernelManager.transport.default_value = "ipc"
    for manager in (KernelManager, AsyncKernelManager):
        manager._ip_default = lambda _self: os.path.join(tempfile.mkdtemp(dir=_SCRATCH), "kernel")
    # A loaded machine stops any example for longer than hypothesis's 200 ms; pytest's own limit remains.
    # CI tries the same examples every time; elsewhere they are new ones.
    hypothesis.settings.register_profile("labkit", deadline=None, derandomize="CI" in os.environ)
    hypothesis.settings.load_profile("labkit")
    _share_one_agent()
    os.environ.update(LABKIT_RUNS=f"{_SCRATCH}/runs", LABKIT_ANSWERS=f"{_SCRATCH}/answers", LABKIT_LOCKS=_SCRATCH)
    _SETTINGS.update(_settings())


def _share_one_agent() -> None:
    """The agent that the first launch starts serves the launches of all rooms: another would import torch again.

    It serves modules that it knows, under the Python path that it was started with.
    """
    tests = Path(__file__).parent
    plans = [*NOTEBOOKS.glob("lessons/*/plan.py"), *tests.glob("*/*_plan.py"), *tests.glob("lessons/*_worker.py")]
    named = (re.findall(r'worker: ClassVar\[str\] = "(.+)"', plan.read_text()) for plan in plans)
    AgentSession.expected = tuple(sorted({module for modules in named for module in modules}))
    paths = [str(REPOSITORY), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def pytest_unconfigure():
    """Nothing is left behind."""
    shutil.rmtree(_SCRATCH, ignore_errors=True)


def pytest_collection_modifyitems(items):
    """nbval runs the notebooks as `labkit.batch.store` did: on recorded runs, and without what it leaves out."""
    for cell in (item for item in items if isinstance(item, IPyNbCell)):
        if "parameters" in cell.cell.metadata.get("tags", []):
            cell.cell.source += '\nsize = "recorded"'
        cell.parent.skip_compare = (*cell.parent.skip_compare, "text/html", "text/latex")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """No file of tests leaves labkit's settings changed: one that hid the progress bars failed another's test."""
    yield
    if nextitem is None or nextitem.path != item.path:
        left = _settings()
        for name in left.keys() | _SETTINGS.keys():
            os.environ.pop(name, None)
        os.environ.update(_SETTINGS)
        assert left == _SETTINGS, f"{item.path.name}, or a fixture that it is the first to use, changes os.environ"


def _settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("LABKIT_")}


@pytest.fixture(scope="session")
def confined():
    """Skips a test of confined answers where the kernel refuses namespaces. A wall that is broken skips nothing."""
    from labkit.course.grading import confine  # most tests need none of it

    if shutil.which("unshare") is None or subprocess.run([*confine._entrance(), "true"]).returncode:
        pytest.skip("unshare is missing, or it may not mount here")


@pytest.fixture
def write_notebook():
    """Return a function that writes a notebook of alternating text and code cells and returns its path.

    A string that starts with "# " or "text:" is a text cell; a pair is a code cell and its tags.
    """

    def write(path, *cells):
        path.parent.mkdir(parents=True, exist_ok=True)
        notebook = new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
        for cell in cells:
            source, tags = cell if isinstance(cell, tuple) else (cell, [])
            text = source.startswith(("# ", "text:"))
            made = new_markdown_cell(source) if text else new_code_cell(source, metadata={"tags": tags})
            notebook.cells.append(made)
        nbformat.write(notebook, path)
        return path

    return write
