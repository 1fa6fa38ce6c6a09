"""The batch runs notebooks in order, goes on after a failure, and leaves a report that stands on its own."""

import os
import platform
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from jupyter_lab import BROWSER, CHROMIUM, NEEDS_CHROMIUM
from loaded import from_elsewhere
from notebook_rules import BOX
from playwright.sync_api import sync_playwright

from labkit.batch import sources
from labkit.batch.__main__ import main
from labkit.batch.publish import Pages
from labkit.report.record import Machine, Record, duration
from labkit.repository import chosen_notebooks
from labkit.story.claims import VERDICTS
from labkit.tables.claims import Figures, claims_table

FIGURE = """
from matplotlib.figure import Figure
from IPython.display import Image
import io
figure = Figure(figsize=(2, 1)); figure.subplots().plot([1, 2]); file = io.BytesIO(); figure.savefig(file)
Image(file.getvalue())
"""
PARAMETERS = ('size = "auto"\ngpus: int = 2  # how many', ["parameters"])
WHERE = "import pathlib\nf'cwd: {pathlib.Path.cwd().name}'"
ASKS = "from labkit import predict\npredict('How <much>?', unit='GB/s')"
RAISES = "raise ValueError('<script>alert(1)</script> & more')"


CLAIMS = {  # of invented labs: (what the report says, the figure recomputed, whether it holds)
    "pipeline": [("the rate is <b>high</b>", 5.0, True), ("the loss falls", 0.25, None)],
    "sharding": [("the memory is a quarter", 0.5, False)],
}


def claims_of(lab):
    """Recompute nothing: return an invented lab's claims as rows."""
    names = [f"claim_{number}" for number in range(len(CLAIMS[lab]))]
    claims_of_lab = pd.DataFrame(
        {
            "claim": names,
            "report": "hpml4",
            "where": "table 1",
            "says": [says for says, _, _ in CLAIMS[lab]],
            "unit": "GB",
            "digits": 3,
            "recomputes": "",
            "reason": [f"The reason of {lab} {number} & <more>." for number in range(len(names))],
            "chosen": True,
        }
    )
    figures = {
        name: Figures(lambda: 5.0, lambda ours=ours: ours, lambda *_, verdict=verdict: verdict)
        for name, (_, ours, verdict) in zip(names, CLAIMS[lab], strict=True)
    }
    return claims_table(claims_of_lab, figures)


@pytest.fixture(autouse=True)
def few_claims(monkeypatch):
    """Lets the batch recompute the claims of two invented labs: those of all labs take seconds."""
    monkeypatch.setattr(sources, "labs_with_claims", lambda: list(CLAIMS))
    monkeypatch.setattr(sources, "claims_of", claims_of)


@pytest.fixture
def folder(tmp_path, write_notebook):
    """Return a folder of three notebooks: one with parameters, one that raises, one with a figure and widgets."""
    folder = tmp_path / "notebooks"
    rule = f"{BOX}<b>Rule.</b> Look first.</div>"
    write_notebook(folder / "00_knobs.ipynb", f"# Knobs\n\n{rule}", PARAMETERS, "f'size {size} gpus {gpus}'")
    write_notebook(folder / "01_broken.ipynb", "# Broken <b>title</b>", "'before'", RAISES, "'after'")
    widgets = "from tqdm.auto import tqdm\nimport ipywidgets\n[_ for _ in tqdm(range(3))]\nipywidgets.IntSlider()"
    write_notebook(folder / "02_figure.ipynb", "# Figure\n\ns = ½ a t²", FIGURE, widgets, WHERE, ASKS)
    return folder


def run(folder, *arguments):
    """Runs the batch on `folder` in this process; gives its exit status and the report's folder."""
    report = folder.parent / "report"
    return main(["--notebooks-folder", str(folder), "--report", str(report), *arguments]), report


def test_all_run_in_order_and_one_failure_stops_no_other(folder, capsys):
    status, report = run(folder)
    outcomes = Record.load(report / "record.json").ordered()
    assert status == 1
    assert [(o.name, o.status) for o in outcomes] == [("00_knobs", "ok"), ("01_broken", "failed"), ("02_figure", "ok")]
    printed = capsys.readouterr().out
    assert printed.index("00_knobs") < printed.index("01_broken") < printed.index("02_figure")
    assert "ValueError: <script>" in printed
    assert str(report / "index.html") in printed
    _pages_hold_what_ran(report)


def _pages_hold_what_ran(report):
    index, broken, figure = ((report / f"{name}.html").read_text() for name in ("index", "01_broken", "02_figure"))
    for page in (index, broken, figure):
        assert from_elsewhere(page) == []
        assert "<script>alert" not in page
    assert "ValueError: &lt;script&gt;alert(1)" in index
    assert "Broken &lt;b&gt;title" in index
    assert 'href="01_broken.html#papermill-error-cell"' in index
    assert 'id="papermill-error-cell"' in broken
    assert "before" in broken and "ValueError" in broken
    (picture,) = re.findall('<img[^>]*src="(_images/[^"]*)"', figure)
    assert (report / picture).is_file() and (report / "pictures" / "02_figure.png").is_file()
    assert "cwd: notebooks" in figure
    assert "½ a t²" in figure
    assert figure.count("open the notebook in JupyterLab") == 2
    assert "How &lt;much&gt;? [GB/s]" in figure and "IntSlider(value" not in figure
    assert "0%|" not in figure


def test_a_bar_of_a_notebook_that_was_cut_off_is_no_control(folder):
    _, report = run(folder, "02")
    executed = report / "notebooks" / "02_figure.ipynb"
    notebook = nbformat.read(executed, as_version=4)
    assert notebook.metadata.pop("widgets"), "an interrupt comes before they are stored"
    nbformat.write(notebook, executed)
    run(folder, "02", "--report-only")
    assert (report / "02_figure.html").read_text().count("open the notebook in JupyterLab") == 2


# Red, green, blue of the page's ground, and of the letters of a rule, of a cell's code and of its output.
COLOURS = """() => [getComputedStyle(document.body).backgroundColor,
  ...[...document.querySelectorAll('article .alert, article .highlight pre')].map(one => getComputedStyle(one).color)]
  .map(text => text.match(/\\d+/g).map(Number))"""


@pytest.mark.slow
@NEEDS_CHROMIUM
def test_a_notebooks_page_is_dark_where_the_reader_prefers_it(folder):
    _, report = run(folder, "00")
    ground_of = {}
    with sync_playwright() as player, player.chromium.launch(executable_path=CHROMIUM, args=BROWSER) as browser:
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme)
            page.goto((report / "00_knobs.html").as_uri())
            ground_of[scheme], *letters = (sum(colour) for colour in page.evaluate(COLOURS))
            assert len(letters) > 2 and all(abs(one - ground_of[scheme]) > 300 for one in letters), "readable"
            page.goto((report / "index.html").as_uri())
            assert sum(page.evaluate(COLOURS)[0]) == ground_of[scheme]
    assert ground_of["light"] == 3 * 255 and ground_of["dark"] < 100


def test_what_is_folded_in_a_notebook_is_folded_in_its_page(tmp_path, write_notebook):
    (tmp_path / "notebooks").mkdir()
    folded = "<details><summary>All figures</summary>\\n\\n| a |\\n| --- |\\n| 17 |\\n\\n</details>"
    cell = f"from IPython.display import Markdown\nMarkdown('{folded}')"
    write_notebook(tmp_path / "notebooks" / "00_folded.ipynb", "# Folded", cell)
    _, report = run(tmp_path / "notebooks")
    page = (report / "00_folded.html").read_text()
    opened = page.rpartition("<details><summary>All figures</summary>")[2]
    assert "<p>17</p></td>" in opened.partition("</details>")[0]


def test_formulas_are_typeset_without_a_script(tmp_path, write_notebook):
    text = r"text: # Sums" "\n\n" r"$\frac{a}{b}$ and $\frac{c}{$, then" "\n\n" r"$$x \ge \sqrt{y}$$"
    write_notebook(tmp_path / "n" / "00_sums.ipynb", text)
    assert main(["--notebooks-folder", str(tmp_path / "n"), "--report", str(tmp_path / "r"), "00"]) == 0
    html = (tmp_path / "r" / "00_sums.html").read_text()
    assert (
        "<mfrac>" in html
        and "<msqrt>" in html
        and r"<code>\frac{c}{</code>" in html
        and "$" not in html.partition("<article")[2].partition("</article")[0]
    )
    assert from_elsewhere(html) == []


def test_declared_parameters_are_passed_and_no_others(folder, capfd):
    status, report = run(folder, "00", "-p", "gpus", "4", "-p", "seeds", "3", "-p", "size", "small")
    assert status == 0
    assert Record.load(report / "record.json").outcomes["00_knobs"].parameters == {"gpus": 4, "size": "small"}
    executed = nbformat.read(report / "notebooks" / "00_knobs.ipynb", as_version=4)
    assert executed.cells[-1].outputs[0].data["text/plain"] == "'size small gpus 4'"
    assert "unknown" not in capfd.readouterr().err


def test_originals_stay_as_they_were(folder):
    before = (folder / "00_knobs.ipynb").read_bytes()
    run(folder, "00", "-p", "gpus", "4")
    assert (folder / "00_knobs.ipynb").read_bytes() == before


@pytest.mark.parametrize("names", [["02"], ["02_figure"], ["figure"], ["notebooks/02_figure.ipynb"], ["02", "figure"]])
def test_a_notebook_is_known_by_number_name_and_path(folder, names):
    assert [path.stem for path in chosen_notebooks(names, folder)] == ["02_figure"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["07_absent"], "there are: 00_knobs, 01_broken, 02_figure"),
        (["-p", "gpu", "4"], "there are: size, gpus, seeds"),
        (["-p", "gpus", "four"], "gpus='four': give a number of worker processes"),
        (["-p", "seeds", "-1"], "seeds=-1: give a number of repetitions"),
        (["-p", "size", "huge"], "size='huge' is not known; it is one of auto, small, full"),
        (["-p", "size", "full", "-p", "seeds", "2.5"], "seeds=2.5"),
    ],
)
def test_a_wrong_name_lists_the_known_ones(folder, capsys, arguments, says):
    with pytest.raises(SystemExit) as stop:
        run(folder, *arguments)
    assert stop.value.code == 2
    assert says in capsys.readouterr().err


def test_the_report_goes_where_runs_go_unless_it_is_named(folder, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "elsewhere"))
    assert main(["--notebooks-folder", str(folder), "00"]) == 0
    assert (tmp_path / "elsewhere" / "report" / "index.html").exists()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "file"))
    with pytest.raises(SystemExit):
        main(["--notebooks-folder", str(folder), "00"])
    said = capsys.readouterr().err
    assert "cannot be written (Not a directory): set LABKIT_RUNS, or name a folder with --report" in said


def test_the_folders_that_a_report_makes_are_private(folder, monkeypatch, tmp_path):
    """As those of runs are: what stands in a report is its user's to show."""
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "of" / "mine"))
    before = os.umask(0)
    try:
        main(["--notebooks-folder", str(folder), "00"])
    finally:
        os.umask(before)
    made = [tmp_path / "of", tmp_path / "of" / "mine", tmp_path / "of" / "mine" / "report"]
    assert [stat.filemode(one.stat().st_mode) for one in made] == ["drwx------"] * 3


def test_an_empty_folder_is_an_error(tmp_path, capsys):
    with pytest.raises(SystemExit):
        run(tmp_path / "notebooks")
    assert "no notebooks" in capsys.readouterr().err


def test_pages_are_rebuilt_without_running(folder):
    _, report = run(folder, "00")
    executed = report / "notebooks" / "00_knobs.ipynb"
    stamp = executed.stat().st_mtime_ns
    (report / "00_knobs.html").unlink()
    assert run(folder, "--report-only")[0] == 0
    assert (report / "00_knobs.html").exists()
    assert executed.stat().st_mtime_ns == stamp


def test_rebuilding_before_any_run_says_so(folder, capsys):
    assert run(folder, "--report-only")[0] == 1
    assert "nothing ran yet" in capsys.readouterr().err


@pytest.mark.slow
def test_a_second_run_keeps_the_other_notebooks_in_the_report(folder):
    run(folder, "00")
    status, report = run(folder, "02")
    assert status == 0
    assert set(Record.load(report / "record.json").outcomes) == {"00_knobs", "02_figure"}


def test_a_page_that_cannot_be_made_costs_no_other(folder, monkeypatch):
    made = sources.notebook_page

    def breaks(notebook, above, names):
        if "gpus" in notebook.cells[1].source:
            raise KeyError("what a notebook can hold")
        return made(notebook, above, names)

    monkeypatch.setattr(sources, "notebook_page", breaks)
    status, report = run(folder, "00", "02")
    outcomes = Record.load(report / "record.json").outcomes
    assert (status, outcomes["00_knobs"].status, outcomes["02_figure"].status) == (1, "failed", "ok")
    assert "its page could not be made: KeyError" in (report / "index.html").read_text()
    assert "KeyError" in (report / "00_knobs.html").read_text() and "½ a t²" in (report / "02_figure.html").read_text()


def test_a_page_that_cannot_be_parsed_costs_no_other(folder, monkeypatch):
    made = sources.notebook_page
    monkeypatch.setattr(
        sources, "notebook_page", lambda notebook, *_: "{" if "gpus" in str(notebook) else made(notebook, *_)
    )
    status, report = run(folder, "00", "02")
    outcomes = Record.load(report / "record.json").outcomes
    assert (status, outcomes["00_knobs"].status, outcomes["02_figure"].status) == (1, "failed", "ok")
    assert "its page could not be made: " in (report / "index.html").read_text()
    assert "This page could not be made" in (report / "00_knobs.html").read_text()


def test_where_no_page_can_be_made_all_notebooks_run(folder, monkeypatch, capsys):
    def breaks(*_, **__):
        raise ValueError("no theme")

    monkeypatch.setattr("labkit.batch.publish.Site.write", breaks)
    status, report = run(folder, "00", "02")
    said = capsys.readouterr()
    assert status == 1 and "the report's pages could not be made: ValueError: no theme" in said.err
    assert [outcome.status for outcome in Record.load(report / "record.json").ordered()] == ["ok", "ok"]


def test_a_killed_kernel_is_a_failure_with_a_page(tmp_path, write_notebook):
    death = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    write_notebook(tmp_path / "notebooks" / "00_death.ipynb", "# Death", "'before'", death)
    status, report = run(tmp_path / "notebooks")
    assert status == 1
    assert "DeadKernelError" in Record.load(report / "record.json").outcomes["00_death"].why
    assert "before" in (report / "00_death.html").read_text()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_an_interrupted_batch_reports_what_ran(tmp_path, write_notebook, end):
    folder, report, marker = tmp_path / "notebooks", tmp_path / "report", tmp_path / "kernel"
    wait = f"import os, time\nopen({str(marker)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    write_notebook(folder / "00_short.ipynb", "# Short", "1")
    write_notebook(folder / "01_long.ipynb", "# Long", "'reached'", wait)
    write_notebook(folder / "02_never.ipynb", "# Never", "1")
    arguments = ["--notebooks-folder", folder, "--report", report]
    command = [sys.executable, "-m", "labkit.batch", *map(str, arguments)]
    printed = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    batch = subprocess.Popen(command, cwd=Path(__file__).parents[1], start_new_session=True, **printed)
    try:
        _wait_for(marker)
        os.killpg(batch.pid, end) if end == signal.SIGINT else batch.send_signal(end)  # a terminal interrupts the group
        said = batch.communicate(timeout=30)[0]
    finally:
        batch.kill()
    assert batch.returncode == 130
    assert "2 notebooks, 1 of them interrupted, " in said
    assert not re.search("Traceback|ERROR|zmq|failed", said), said
    outcomes = Record.load(report / "record.json").ordered()
    assert [(o.name, o.status) for o in outcomes] == [("00_short", "ok"), ("01_long", "interrupted")]
    assert "2 notebooks, 1 of them interrupted, " in (report / "index.html").read_text()
    assert "reached" in (report / "01_long.html").read_text()
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)


def _wait_for(path, seconds=60):
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("seconds", "words"), [(4.06, "4.1 s"), (41.2, "41 s"), (185, "3 min 05 s"), (7500, "2 h 05 min")]
)
def test_durations_read_as_words(seconds, words):
    assert duration(seconds) == words


def test_what_the_machine_says_of_itself_is_text_on_the_first_page(tmp_path):
    told = Machine(facts={"CPU": "Xeon <i>R</i>\n\n# x"}, versions={"driver": "580 & <i>later</i>"})
    Pages(tmp_path, tmp_path).publish(Record(told))
    page = (tmp_path / "index.html").read_text()
    assert "Xeon &lt;i&gt;R&lt;/i&gt;" in page and "<dd>580 &amp; &lt;i&gt;later&lt;/i&gt;</dd>" in page
    assert "<h1>x" not in page


@pytest.mark.parametrize(
    ("label", "host"), [("rack <7>", "rack &lt;7&gt;"), pytest.param("", platform.node(), marks=pytest.mark.slow)]
)
def test_the_index_is_plain_and_names_the_machine(folder, monkeypatch, label, host):
    monkeypatch.setenv("LABKIT_NODE", label)
    _, report = run(folder, "00")
    index = (report / "index.html").read_text()
    node = f"{host}: {Record.load(report / 'record.json').machine.label}"
    assert index.count(node) == 1 and node in (report / "00_knobs.html").read_text()
    monkeypatch.setenv("LABKIT_NODE", "another")
    _, report = run(folder, "02")
    assert node in (report / "index.html").read_text(), "beside the notebook that ran there"
    assert re.search(r"<dt>python</dt>", index, re.IGNORECASE)


def test_the_report_has_a_page_of_all_claims(folder):
    _, report = run(folder, "00")
    shown = (report / "claims.html").read_text()
    assert 'href="claims.html"' in (report / "index.html").read_text() and 'href="index.html"' in shown
    assert from_elsewhere(shown) == []
    assert "Claims: 3. ✔ holds: 1, ✘ does not hold: 1, ○ cannot be decided: 1." in shown
    assert "the rate is &lt;b&gt;high&lt;/b&gt;" in shown and "<b>high" not in shown
    assert "0.500 GB" in shown
    assert "sharding 0 &amp; &lt;more&gt;." in shown and "pipeline 1 &amp;" in shown and "pipeline 0" not in shown
    assert [shown.count(f"<p>{verdict}</p></td>") for verdict in VERDICTS.values()] == [1, 1, 1]
    (report / "claims.html").unlink()
    run(folder, "--report-only")
    assert (report / "claims.html").exists()


def test_a_lab_whose_claims_cannot_be_recomputed_costs_no_other(folder, monkeypatch):
    def damaged(lab):
        if lab == "pipeline":
            raise FileNotFoundError("no <recorded> run")
        return claims_of(lab)

    monkeypatch.setattr(sources, "claims_of", damaged)
    status, report = run(folder, "00")
    shown = (report / "claims.html").read_text()
    assert status == 0 and "the memory is a quarter" in shown and "Claims: 1. ✘ does not hold: 1." in shown
    assert "not recomputed: FileNotFoundError: no &lt;recorded&gt; run" in shown


@pytest.mark.parametrize("size, measured", [("auto", True), ("small", False), ("recorded", False)])
def test_a_run_that_measures_nothing_at_its_size_measures_no_rest_of_the_card(tmp_path, monkeypatch, size, measured):
    asked = []

    class Noted:
        def __init__(self, *_, rest_of_card: bool):
            asked.append(rest_of_card)

        def run(self, *_):
            return 0

    monkeypatch.setattr("labkit.batch.__main__.Batch", Noted)
    monkeypatch.delenv("LABKIT_NODES", raising=False)
    assert main(["-p", "size", size, "--report", str(tmp_path / "report")]) == 0
    assert asked == [measured]
