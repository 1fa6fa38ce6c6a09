"""What the forkserver loads ahead is all that a worker's module imports of installed packages, by whatever way."""

import os
import subprocess
import sys

import pytest

from labkit.engine.preload import import_statements
from labkit.engine.session import AgentSession

pytestmark = pytest.mark.slow


def test_the_packages_of_a_module_are_run_before_it(tmp_path, monkeypatch):
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    files = {"outer/__init__.py": "import seaborn", "outer/inner/__init__.py": "from outer import other"}
    files |= {"outer/inner/module.py": "import torch", "outer/other.py": "from pandas import DataFrame"}
    for name, text in (files | {"worker.py": "from outer.inner.module import nothing"}).items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert set(import_statements("worker", set())) == {"import torch", "import seaborn", "from pandas import DataFrame"}


@pytest.mark.parametrize("module", ["lessons.attention.worker", "lessons.sharding.worker"])
def test_a_worker_finds_all_that_is_installed_loaded_already(module):
    code = f"""if True:
        import importlib, sys
        from labkit.engine.preload import ALWAYS_LOADED, load_packages
        from labkit.repository import without_front_doors
        load_packages([*ALWAYS_LOADED, "{module}"])
        without_front_doors()
        loaded = set(sys.modules)
        assert "IPython" not in loaded, "only what the lesson's front door loads needs it"
        importlib.import_module("{module}")
        print([name for name in set(sys.modules) - loaded if not name.startswith(("labkit", "lessons"))])"""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert ended.stdout.strip() == "[]", ended.stderr


def test_an_engine_s_own_module_needs_no_new_agent():
    with AgentSession.borrow("lessons.start.worker") as session:
        assert session.serves("labkit.engine.call")
        assert not session.serves("lessons.nowhere.worker")
