"""A real JupyterLab and a real browser, for the tests that act as a reader does."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TOKEN = "a-token-for-this-test"
BROWSER = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Waits end at an event; this limit is for what never comes. On two cores with a load of 13, JupyterLab starts in 80 s.
STARTS_WITHIN_S = 300
WINDOW = {"width": 1366, "height": 768}
# JupyterLab puts the cells near the window into the page, and the others when the browser has nothing else to do: on a
# busy machine a bar came and went in a cell that was not there yet. "none" puts all cells into the page at once.
ALL_CELLS = '{"windowingMode": "none"}'

CELL = ".jp-Notebook .jp-CodeCell"
IDLE = '.jp-Notebook-ExecutionIndicator[data-status="idle"]'
# What a cell holds is asked of the notebook's model, not of the page.
OUTPUTS = """() => jupyterapp.shell.currentWidget.content.model.sharedModel.cells
  .filter(cell => cell.cell_type === 'code')
  .map(cell => ({source: cell.getSource(), count: cell.execution_count, outputs: cell.toJSON().outputs}))"""

# While JupyterLab opens, it may start a kernel and replace it; cells sent to the first one are lost.
KERNEL = """() => {
  const session = jupyterapp.shell.currentWidget.sessionContext.session, kernel = session && session.kernel;
  return kernel && kernel.connectionStatus === 'connected' && kernel.status === 'idle' ? kernel.id : null }"""

NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@contextmanager
def served(folder: Path, notebooks: Path) -> Iterator[str]:
    """Yield the address of a JupyterLab on a folder of notebooks; it, and all its kernels, are ended afterwards."""
    port, settings = _free_port(), folder / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    (settings / "tracker.jupyterlab-settings").write_text(ALL_CELLS)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={notebooks}", "--LabApp.news_url=None"]
    command += [f"--LabApp.app_settings_dir={ROOT / 'labkit/tools/lab_settings'}"]  # as `make lab` has it
    command += ["--LabApp.expose_app_in_browser=True", "--ServerApp.port_retries=0"]
    command += ["--allow-root"] if os.getuid() == 0 else []
    with (folder / "jupyter.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=_environment(folder), start_new_session=True)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(f"{address}/api/status?token={TOKEN}", server, folder / "jupyter.log")
        yield address
    finally:
        _end(server)


@contextmanager
def opened(address: str, notebook: str) -> Iterator[Page]:
    """Yield the page of a notebook whose kernel is connected, in a window of 1366 × 768."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=BROWSER)
        try:
            page = browser.new_page(viewport=WINDOW)
            page.set_default_timeout(1000 * STARTS_WITHIN_S)
            page.goto(f"{address}/lab/tree/{notebook}?token={TOKEN}")
            page.wait_for_selector(CELL)
            page.wait_for_selector(IDLE)
            wait_for_one_kernel(page)
            yield page
        finally:
            browser.close()


def wait_for_one_kernel(page: Page, steady_s: float = 2.0) -> None:
    """Waits until the same kernel has been connected and idle for a while."""
    kernel, since, deadline = None, time.monotonic(), time.monotonic() + STARTS_WITHIN_S
    while kernel is None or time.monotonic() - since < steady_s:
        assert time.monotonic() < deadline, "no kernel stayed connected"
        page.wait_for_timeout(200)
        if (now := page.evaluate(KERNEL)) != kernel:
            kernel, since = now, time.monotonic()


def _environment(folder: Path) -> dict:
    """Keeps the reader's own Jupyter settings out, and the student's answers and runs of the test away from theirs."""
    own = {"LABKIT_ANSWERS": str(folder / "answers"), "LABKIT_RUNS": str(folder / "runs")}
    own |= {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    path = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "notebooks"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **own, "PYTHONPATH": path, "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings")}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(address: str, server: subprocess.Popen, log: Path, seconds: float = STARTS_WITHIN_S) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=10):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text(encoding='utf-8')[-2000:]}")


def _end(server: subprocess.Popen) -> None:
    """Asks the server to end its kernels and itself; after ten seconds ends it and whatever it started."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(10)
