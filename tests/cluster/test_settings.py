"""cluster.toml: one checked example, and a clear sentence for everything that can be wrong in it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from labkit.cluster.connectivity import choose_interface
from labkit.engine.errors import ClusterError
from labkit.engine.launch_settings import Settings
from labkit.repository import REPOSITORY


def test_the_example_shows_every_key_and_is_right():
    example = REPOSITORY / "cluster.example.toml"
    settings = Settings.read(example)
    assert all(f"\n{field.name} = " in example.read_text() for field in dataclasses.fields(Settings))
    assert settings.interface == "ib0" and settings.setup[0] == "module load cuda"


def test_without_a_file_the_defaults_hold(tmp_path):
    assert Settings.read(tmp_path / "cluster.toml") == Settings()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('interfaec = "ib0"', "'interfaec' is not known; did you mean 'interface'"),
        ("zebra = 1", "'zebra' is not known; there are: interface, setup, python"),
        ("interface = 3", "interface = 3 should be one line of text"),
        ('interface = "a\\nb"', "should be one line of text"),
        ("setup = [1]", "should be a list of lines"),
        ("interface = ", "cannot be read as TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_key(tmp_path, text, why):
    file = tmp_path / "cluster.toml"
    file.write_text(text)
    with pytest.raises(ClusterError) as caught:
        Settings.read(file)
    assert str(file) in str(caught.value) and why in str(caught.value)


def test_a_file_that_is_named_must_exist(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_CLUSTER_FILE", str(tmp_path / "nowhere.toml"))
    with pytest.raises(ClusterError, match="which does not exist"):
        Settings.read()


def test_an_interface_is_chosen_by_its_name_or_is_the_one_that_leads_to_the_kernel(monkeypatch):
    monkeypatch.setenv("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")
    assert choose_interface("lo") == choose_interface("") == ("lo", "127.0.0.1")


@pytest.mark.parametrize(
    ("name", "why"), [("ib7", "no interface 'ib7'.*it has .*lo"), ("", "set `interface` to one of")]
)
def test_interfaces_are_named_where_none_fits(monkeypatch, name, why):
    monkeypatch.delenv("SLURM_LAUNCH_NODE_IPADDR", raising=False)
    with pytest.raises(ValueError, match=why):
        choose_interface(name)


@pytest.mark.slow
def test_a_launch_on_one_node_imports_nothing_of_a_cluster(tmp_path):
    script = (
        "import sys; from labkit import launch; from lessons import start; launch(start.Hello.small(gpus=2)); "
        "print([name for name in sys.modules if name.startswith('labkit.cluster.')])"
    )
    environment = os.environ | {"LABKIT_RUNS": str(tmp_path), "LABKIT_PROGRESS": "0"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
