"""`make … OFFLINE=1` and HOST=1 on a node whose python3 is a virtual environment: real, tiny packages, no network."""

import json
import os
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


def wheel(folder, name, version="1.0", needs=()):
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"version = {version!r}\n",
        f"{info}/METADATA": metadata(name, version, needs),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)


class Node:
    """A checkout on a node, and the virtual environment that is called python3 there."""

    def __init__(self, folder: Path):
        self.checkout, self.outer = folder / "ada's checkout", folder / "outer"
        self.wheelhouse = self.checkout / "wheelhouse"
        (self.checkout / "labkit" / "batch").mkdir(parents=True)
        shutil.copytree(ROOT / "labkit" / "tools", self.checkout / "labkit" / "tools")
        (self.checkout / "labkit" / "batch" / "__main__.py").write_text(SEEN)
        for name in ("Makefile", "requirements.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, self.checkout)
        venv.EnvBuilder(symlinks=True).create(self.outer)
        self.packages = next(self.outer.glob("lib/*/site-packages"))
        for name in ("on_node", "shared", "torch", "transformers"):
            installed(self.packages, name)
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "editable.py").write_text("")
        (self.packages / "editable.pth").write_text(f"{elsewhere}\n")
        (self.outer / "share" / "jupyter" / "labextensions" / "@maker" / "widgets").mkdir(parents=True)
        self.wheelhouse.mkdir()
        (self.wheelhouse / "requirements.txt").write_text("extra\non_node\n")
        wheel(self.wheelhouse, "extra", needs=["shared>=2", "on_node"])
        wheel(self.wheelhouse, "on_node", "2.0")

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
def lacking(node, refused):
    """The second call, with what pip asked for, on a node without one of the packages that no wheelhouse has."""
    wheel(node.wheelhouse, "shared", "2.0")
    return node.make("run", "OFFLINE=1")


@pytest.fixture(scope="module")
def built(node, lacking):
    """The third call, with everything."""
    installed(node.packages, "triton")
    done = node.make("run", "OFFLINE=1")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_pip_names_what_neither_the_node_nor_the_wheelhouse_has(refused):
    assert refused.returncode
    assert "No matching distribution found for shared>=2" in refused.stderr


def test_python_names_what_only_the_node_can_have(lacking):
    assert lacking.returncode
    assert "No module named 'triton'" in lacking.stderr


def test_the_environment_of_the_python3_that_was_called_is_seen(node, built):
    assert built["prefix"] == str(node.checkout / ".venv")
    assert built["editable"], "a .pth file of the node's environment counts"
    assert built["numpy"] is None, "an environment that hides the base Python's packages hides them here, too"


def test_the_nodes_packages_are_not_replaced(node, built):
    """Neither by a newer version in the wheelhouse, nor by the version that requirements.txt pins."""
    assert built["on_node"] == str(node.packages / "on_node.py")


def test_what_the_node_lacks_comes_from_the_wheelhouse(node, built):
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


def test_the_hosts_packages_are_kept_and_the_registry_gives_what_is_missing(tmp_path):
    """In the versions that the workbook names; the registry is a folder here."""
    node = Node(tmp_path)
    installed(node.packages, "triton")
    registry = tmp_path / "registry"
    registry.mkdir()
    wheel(registry, "shared", "2.0")
    wheel(registry, "extra", "1.0", needs=["shared>=2", "on_node"])
    wheel(registry, "extra", "3.0")
    with (node.checkout / "requirements.txt").open("a", encoding="utf-8") as file:
        file.write("extra==1.0  # what is tested\non_node==2.0\n")
    pip = ("PIP_NO_INDEX=1", f"PIP_FIND_LINKS={registry.as_uri()}")
    done = node.make("run", "HOST=1", "WHEELS=extra", *pip)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["on_node"] == str(node.packages / "on_node.py"), "extra needs it in any version"
    assert seen["extra"].startswith(str(node.checkout)) and seen["shared"].startswith(str(node.checkout))
    assert Path(seen["extra"]).read_text() == "version = '1.0'\n"


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
