"""A reader's first hour: real JupyterLab, a real browser, a lesson run from top to bottom."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
# LABKIT_TEST_NOTEBOOK tries the test on another notebook.
LESSON = Path(os.environ.get("LABKIT_TEST_NOTEBOOK", ROOT / "notebooks" / "02_broadcast.ipynb"))
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
FEWEST_IMAGES = 4
# JupyterLab puts the cells near the window into the page, and the others when the browser has nothing else to do: on a
# busy machine a bar came and went in a cell that was not there yet. "none" puts all cells into the page at once.
ALL_CELLS = '{"windowingMode": "none"}'
LONGEST_S = 240

CELL = ".jp-Notebook .jp-CodeCell"
IDLE = '.jp-Notebook-ExecutionIndicator[data-status="idle"]'
# A bar may come and go between two looks, so the page itself notes each that appears.
WATCH_BARS = """() => {
  window.bars = 0;
  const look = () => { window.bars = Math.max(window.bars,
    document.querySelectorAll('.jp-OutputArea .jupyter-widgets.widget-hprogress, .jp-OutputArea .progress').length) };
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true});
}"""
# What a cell holds is asked of the notebook's model, not of the page.
OUTPUTS = """() => jupyterapp.shell.currentWidget.content.model.sharedModel.cells
  .filter(cell => cell.cell_type === 'code')
  .map(cell => ({source: cell.getSource(), count: cell.execution_count, outputs: cell.toJSON().outputs}))"""

# While JupyterLab opens, it may start a kernel and replace it; cells sent to the first one are lost.
KERNEL = """() => {
  const session = jupyterapp.shell.currentWidget.sessionContext.session, kernel = session && session.kernel;
  return kernel && kernel.connectionStatus === 'connected' && kernel.status === 'idle' ? kernel.id : null }"""

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.timeout(LONGEST_S + 60),
]


@pytest.fixture
def lab(tmp_path):
    """Return the address of a JupyterLab on a copy of the notebooks; ends it, and all its kernels, afterwards."""
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    shutil.copy(LESSON, notebooks)
    port = _free_port()
    settings = tmp_path / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    (settings / "tracker.jupyterlab-settings").write_text(ALL_CELLS)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={notebooks}", "--LabApp.news_url=None"]
    command += ["--LabApp.expose_app_in_browser=True", "--ServerApp.port_retries=0"]
    command += ["--allow-root"] if os.getuid() == 0 else []
    with (tmp_path / "jupyter.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=_environment(tmp_path), start_new_session=True)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(f"{address}/api/status?token={TOKEN}", server, tmp_path / "jupyter.log")
        yield address
    finally:
        _end(server)


def test_a_lesson_runs_from_top_to_bottom_in_the_browser(lab):
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=BROWSER)
        try:
            page = browser.new_page(viewport={"width": 1366, "height": 768})
            page.goto(f"{lab}/lab/tree/{LESSON.name}?token={TOKEN}")
            cells = _run_all(page)
            bars = page.evaluate("window.bars")
        finally:
            browser.close()
    _no_cell_failed(cells)
    images = [sum("image/png" in output.get("data", {}) for output in cell["outputs"]) for cell in cells]
    assert max(images) == 1, "a chart is drawn more than once"
    assert sum(images) >= FEWEST_IMAGES
    assert bars > 0, "no progress bar appeared"


def _run_all(page) -> list[dict]:
    """Runs all cells and gives source, execution count and outputs of each code cell."""
    page.wait_for_selector(CELL, timeout=60_000)
    page.wait_for_selector(IDLE, timeout=60_000)
    _wait_for_one_kernel(page)
    page.evaluate(WATCH_BARS)
    page.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        page.wait_for_timeout(500)
        cells = page.evaluate(OUTPUTS)
        failed = any(output["output_type"] == "error" for cell in cells for output in cell["outputs"])
        ran = all(cell["count"] for cell in cells if cell["source"].strip())
        if page.query_selector(IDLE) and (ran or failed):
            return cells
    raise AssertionError(
        f"still busy after {LONGEST_S} s: {[cell['source'][:40] for cell in cells if not cell['count']]}"
    )


def _wait_for_one_kernel(page, steady_s: float = 2.0) -> None:
    """Waits until the same kernel has been connected and idle for a while."""
    kernel, since, deadline = None, time.monotonic(), time.monotonic() + 60
    while kernel is None or time.monotonic() - since < steady_s:
        assert time.monotonic() < deadline, "no kernel stayed connected"
        page.wait_for_timeout(200)
        if (now := page.evaluate(KERNEL)) != kernel:
            kernel, since = now, time.monotonic()


def _no_cell_failed(cells):
    for cell in cells:
        for output in cell["outputs"]:
            complaint = output.get("traceback") or (output.get("name") == "stderr" and output["text"])
            assert not complaint, f"{cell['source']}\n{complaint}"


def _environment(folder: Path) -> dict:
    """Keeps the reader's own Jupyter settings out, and the student's answers and runs of the test away from theirs."""
    own = {"LABKIT_ANSWERS": str(folder / "answers"), "LABKIT_RUNS": str(folder / "runs")}
    own |= {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **own, "PYTHONPATH": path, "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings")}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(address: str, server: subprocess.Popen, log: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


def _end(server: subprocess.Popen) -> None:
    """Asks the server to end its kernels and itself; after ten seconds ends it and whatever it started."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(10)
