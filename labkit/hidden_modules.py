"""Which of the user's files Python imports in place of a module that labkit needs.

A script's own folder comes first on Python's path, and so does the current folder in a notebook.
"""

import os
import sys
from importlib.machinery import PathFinder

STANDARD = (
    "ast",
    "atexit",
    "collections",
    "contextlib",
    "csv",
    "ctypes",
    "dataclasses",
    "datetime",
    "functools",
    "hashlib",
    "html",
    "json",
    "logging",
    "math",
    "multiprocessing",
    "pathlib",
    "platform",
    "random",
    "re",
    "select",
    "shutil",
    "signal",
    "socket",
    "string",
    "subprocess",
    "sysconfig",
    "tempfile",
    "textwrap",
    "threading",
    "traceback",
    "types",
    "typing",
    "zlib",
)
INSTALLED = ("IPython", "ipywidgets", "matplotlib", "numpy", "pandas", "psutil", "seaborn", "tqdm")


def require_none() -> None:
    """Raise ImportError, naming the file, where a file of the user's hides a module that labkit needs."""
    standard_library = os.path.dirname(os.__file__)
    before = sys.path.index(standard_library) if standard_library in sys.path else 0
    folders = {os.path.realpath(folder) for folder in sys.path[:before]}
    for name in (*STANDARD, *INSTALLED):
        file = _file(name)
        if os.path.basename(file) == f"{name}.py" and os.path.realpath(os.path.dirname(file)) in folders:
            kind = "Python's own module" if name in STANDARD else "the installed package"
            raise ImportError(f"{file} hides {kind} {name}, which labkit needs: rename that file", name=name, path=file)


def _file(name: str) -> str:
    """Return the file that `import name` runs, or has run; "" where there is none."""
    if name in sys.builtin_module_names:
        return ""
    if name in sys.modules:
        return getattr(sys.modules[name], "__file__", None) or ""
    spec = PathFinder.find_spec(name)
    return (spec and spec.origin) or ""
