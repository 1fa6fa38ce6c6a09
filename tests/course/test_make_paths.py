"""`make` in a checkout of any path: no command is run from it, and what is written lies where it should."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from labkit.repository import NOTEBOOKS, REPOSITORY

STUB = f"""#!{sys.executable}
import json, os, pathlib, sys
kept = [sys.argv[1:], os.environ.get("JUPYTER_PREFER_ENV_PATH")]
with open(os.environ["STUB_LOG"], "a") as log:
    log.write(json.dumps(kept) + chr(10))
"""
PATHS = [
    "plain",
    "a$HOME b",
    "a`touch ran`b",
    "a$(touch ran)b",
    'a"; touch ran; "b',
    "a'b'",
    "a\\\\b",
    "a;touch ran&#%*b",
]
HOSTILE = PATHS[1:]


@pytest.fixture
def called(tmp_path):
    """Return a function that calls make in a checkout of some name, with a stand-in for Python; it gives the calls."""
    stub, log = tmp_path / "python", tmp_path / "log"
    stub.write_text(STUB)
    stub.chmod(0o755)

    def make(name: str, *arguments: str, **more: str) -> list:
        checkout = tmp_path / name
        checkout.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / "Makefile", checkout)
        own = {word: value for word, value in os.environ.items() if not word.startswith(("LABKIT_WORK", "MAKE"))}
        own |= {"STUB_LOG": str(log), **more}
        subprocess.run(["make", *arguments, f"PY={stub}"], cwd=checkout, env=own, check=True, capture_output=True)
        assert not [*tmp_path.rglob("ran")]
        calls = [json.loads(line) for line in log.read_text().splitlines()]
        log.unlink()
        return calls

    make.folder = tmp_path
    return make


@pytest.mark.parametrize("path", PATHS)
def test_make_lab_opens_the_copies_of_the_checkout_with_its_own_kernel(called, path):
    (refreshed, _), (opened, prefers) = called(path, "lab")
    work = str(called.folder / path / "work")
    assert refreshed == ["-m", "labkit.tools.work", "--folder", work, "refresh"]
    assert opened[:2] == ["-m", "jupyterlab"] and f"--ServerApp.root_dir={work}" in opened and prefers == "1"
    assert f"--LabApp.app_settings_dir={called.folder / path}/labkit/tools/lab_settings" in opened


@pytest.mark.parametrize("path", PATHS)
def test_paths_in_variables_are_handed_on_as_they_are(called, path):
    given = path.replace("$", "$$")  # as make reads it
    assert called("plain", "grade", f"DIR={given}")[0][0][2:] == [path]
    assert called("plain", "reset", f"NB={given}", LABKIT_WORK=f"/x/{path}")[0][0][2:] == [
        "--folder",
        f"/x/{path}",
        "reset",
        path,
    ]
    assert called("plain", "compare", f"A={given}", f"B={given}")[0][0][2:] == [path, path]


@pytest.mark.parametrize("target", ["run", "report", "book", "card", "handout", "data", "scorecard", "bench", "test"])
@pytest.mark.parametrize("path", HOSTILE)
def test_no_target_runs_a_command_from_the_path(called, path, target):
    assert called(path, target)


def test_the_hub_and_make_lab_take_the_workbooks_kernel(tmp_path):
    """A user's own kernel of the name python3, as `ipykernel install --user` leaves it, comes second."""
    kernel = tmp_path / ".local" / "share" / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text('{"argv": ["/other/python", "{connection_file}"], "display_name": "other"}')
    asked = """if True:
        import jupyter_core.paths
        jupyter_core.paths._do_i_own = lambda path: False  # as for a hub's user
        from jupyter_client.kernelspec import get_kernel_spec
        print(get_kernel_spec("python3").argv[0])"""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "XDG"))}
    own["HOME"] = str(tmp_path)

    def first(**more: str) -> str:
        command = [sys.executable, "-c", asked]
        return subprocess.run(command, env=own | more, capture_output=True, text=True, check=True).stdout.strip()

    config = (NOTEBOOKS / "teaching" / "README.md").read_text(encoding="utf-8")
    assert first() == "/other/python"
    told = dict(re.findall(r'"(JUPYTER_PREFER_ENV_PATH)": "(.*?)"', config))
    assert first(**told) not in ("", "/other/python")
