"""`make … OFFLINE=1` on a node whose python3 is a virtual environment: real ones, with tiny packages and no network."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SEEN = """
import importlib, json, sys
names = ("on_node", "shared", "editable", "extra", "numpy")
seen = {name: importlib.util.find_spec(name) for name in names}
print(json.dumps({name: spec and spec.origin for name, spec in seen.items()} | {"prefix": sys.prefix}))
"""


def metadata(name, version, needs=()):
    return "".join(
        [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", *(f"Requires-Dist: {need}\n" for need in needs)]
    )


def installed(folder, name, version="1.0"):
    """Put a package into a site-packages folder, as pip leaves it."""
    (folder / f"{name}.py").write_text(f"version = {version!r}\n")
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(metadata(name, version))


def wheel(folder, name, version="1.0", needs=(), tags="py3-none-any"):
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"version = {version!r}\n",
        f"{info}/METADATA": metadata(name, version, needs),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tags}\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-{tags}.whl", "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)


class Node:
    """A checkout on a node, and the virtual environment that is called python3 there."""

    def __init__(self, folder: Path):
        self.checkout, self.outer = folder / "ada's checkout", folder / "outer"
        self.wheelhouse = self.checkout / "wheelhouse"
        shutil.copytree(ROOT / "labkit" / "tools", self.checkout / "labkit" / "tools")
        shutil.copy(ROOT / "Makefile", self.checkout)
        for package in ("batch", "scorecard"):
            self.write(f"labkit/{package}/__main__.py", SEEN)
        self.write("pyproject.toml", "")
        self.write(
            "requirements.txt",
            "on_node==1.0  # pinned\nshared>=2\nabsent\nextra\njupyterlab\npytest\npytest-xdist==3\n",
        )
        venv.EnvBuilder(symlinks=True).create(self.outer)
        self.packages = next(self.outer.glob("lib/*/site-packages"))
        installed(self.packages, "on_node")
        installed(self.packages, "shared")
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "editable.py").write_text("")
        (self.packages / "editable.pth").write_text(f"{elsewhere}\n")
        self.wheelhouse.mkdir()
        (self.wheelhouse / "requirements.txt").write_text("extra\n")
        wheel(self.wheelhouse, "extra", needs=["shared>=2", "on_node", 'winreg; sys_platform == "win32"'])

    def write(self, name, text):
        file = self.checkout / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def make(self, *arguments):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "MAKE"))}
        path = f"{self.outer / 'bin'}:{kept['PATH']}"
        return subprocess.run(
            ["make", *arguments],
            cwd=self.checkout,
            env=kept | {"PATH": path, "PIP_CONFIG_FILE": os.devnull, "VIRTUAL_ENV": str(self.outer)},
            capture_output=True,
            text=True,
        )


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    return Node(tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="module")
def refused(node):
    """The first call, whose wheelhouse lacks the newer version that one of its own packages needs."""
    return node.make("run", "OFFLINE=1")


@pytest.fixture(scope="module")
def built(node, refused):
    """The second call, with what the first one asked for."""
    wheel(node.wheelhouse, "shared", "2.0")
    wheel(node.wheelhouse, "absent")
    (node.wheelhouse / "requirements.txt").write_text("extra\nshared\nabsent\n")
    labextension = node.outer / "share" / "jupyter" / "labextensions" / "@maker" / "widgets"
    labextension.mkdir(parents=True)
    done = node.make("run", "OFFLINE=1")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def said(done):
    """The one line that is neither make's own nor the command that it runs."""
    assert done.returncode
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith(("make", "python3 "))]
    return line


def test_a_package_that_neither_has_is_named_with_the_command_that_brings_it(refused):
    sentence = said(refused)
    assert "shared>=2" in sentence
    assert "1.0" in sentence
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f'make wheels PYTHON={version} WHEELS="extra shared absent"' in sentence
    assert "make run" in sentence


def test_the_environment_of_the_python3_that_was_called_is_seen(node, built):
    assert built["prefix"] == str(node.checkout / ".venv")
    assert built["on_node"] == str(node.packages / "on_node.py")
    assert built["editable"], "a .pth file of the node's environment counts"
    assert built["numpy"] is None, "an environment that hides the base Python's packages hides them here, too"


def test_the_wheelhouse_comes_before_the_node(node, built):
    for name in ("shared", "extra"):
        assert built[name].startswith(f"{node.checkout}/.venv/")


def test_jupyter_finds_what_the_node_keeps_outside_site_packages(node, built):
    assert (node.checkout / ".venv" / "share" / "jupyter" / "labextensions" / "@maker" / "widgets").is_dir()


def test_labkit_is_found_in_a_checkout_with_an_apostrophe_in_its_name(node, built):
    (file,) = node.checkout.glob(".venv/lib/*/site-packages/labkit.pth")
    assert file.read_text().splitlines() == [str(node.checkout), str(node.checkout / "notebooks")]


def test_a_second_call_builds_nothing(node, built):
    ready = (node.checkout / ".venv" / ".ready").stat().st_mtime_ns
    assert node.make("run").returncode == node.make("run", "OFFLINE=1").returncode == 0
    assert (node.checkout / ".venv" / ".ready").stat().st_mtime_ns == ready


@pytest.mark.parametrize(
    ("target", "wheels"),
    [("lab", "extra shared absent jupyterlab"), ("test", "extra shared absent jupyterlab pytest pytest-xdist")],
)
def test_a_target_that_lacks_a_package_says_so_in_one_sentence(node, built, target, wheels):
    sentence = said(node.make(target, "OFFLINE=1"))
    assert f"make {target}" in sentence
    assert f'WHEELS="{wheels}"' in sentence


def test_wheels_for_another_python_count_as_missing(node, built, tmp_path):
    other = shutil.copytree(node.wheelhouse, tmp_path / "kept")
    try:
        (node.wheelhouse / "requirements.txt").write_text("compiled\n")
        wheel(node.wheelhouse, "compiled", tags="cp27-cp27m-manylinux2014_x86_64")
        assert said(node.make("run", "OFFLINE=1")).startswith("compiled is missing")
    finally:
        shutil.rmtree(node.wheelhouse)
        shutil.copytree(other, node.wheelhouse)


def test_what_only_testing_needs_is_not_asked_for_by_a_run():
    """`make run OFFLINE=1` once refused a node without basedpyright."""
    offline = runpy.run_path(str(ROOT / "labkit" / "tools" / "offline.py"))
    text = (ROOT / "requirements.txt").read_text()
    testing = re.findall(r"(?m)^([A-Za-z0-9._-]+)==", text.split("# testing\n")[1])
    assert len(testing) > 5
    assert set(testing) <= {name for tools in offline["TOOLS"].values() for name in tools}


def test_a_python_that_is_too_old_is_told_in_one_sentence(tmp_path):
    """Not in pip's list of the versions that exist."""
    old, lines = tmp_path / "python3", ["import sys", "sys.version_info = (3, 10, 13)", "exec(sys.argv[2])"]
    old.write_text("\n".join([f"#!{sys.executable}", *lines, ""]))
    old.chmod(0o755)
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    ended = subprocess.run(["make", "run", f"PYTHON3={old}"], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode and not (tmp_path / ".venv").exists()
    sentence = ended.stderr.splitlines()[0]
    assert sentence.startswith(f"The workbook needs Python 3.11 or newer, and {old} is ")
    assert sentence.endswith("Name another one: make run PYTHON3=python3.12")
