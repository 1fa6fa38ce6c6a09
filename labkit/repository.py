"""Where this checkout is, the folders of its data, the modules of its plans, and the state of its code."""

import hashlib
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType

REPOSITORY = Path(__file__).resolve().parents[1]
NOTEBOOKS = REPOSITORY / "notebooks"  # on Python's path: `lessons` is a folder in it
LESSONS = NOTEBOOKS / "lessons"  # what the notebooks call, a folder each
CODE = (REPOSITORY / "labkit", LESSONS)  # the workbook's own
PUBLISHED = REPOSITORY / "data" / "published"  # figures that reports printed
RECORDED = REPOSITORY / "data" / "recorded"  # runs on real nodes, replayable
MODELS = REPOSITORY / "data" / "models"  # configurations of models, as JSON
CIFAR10 = REPOSITORY / "data" / "cifar-10"  # where `make data` puts the images of CIFAR-10

# Files of figures and models that notebooks read.
DATA = (
    "labkit/**/*.csv",
    "notebooks/lessons/**/*.csv",
    "data/models/*.json",
    "data/published/**/*.csv",
    "data/published/**/*.txt",
)

# The modules that define plans. A plan file names one of them, and no other module of a file's choice is imported.
PLAN_MODULES = re.compile(r"lessons\.\w+\.plan|labkit\.engine\.call")


def lesson_names() -> list[str]:
    """Return the names of the lessons, which are the folders of notebooks/lessons, in the order of their notebooks."""
    order = [file.stem.partition("_")[2] for file in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))]
    names = [file.parent.name for file in front_doors()]
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


def front_doors() -> list[Path]:
    """Return the `__init__.py` of each lesson: what its notebook calls, with its charts, stories and exercises."""
    return [*LESSONS.glob("*/__init__.py")]


def without_front_doors() -> None:
    """Have this process import a lesson's files without running its front door: a worker needs its plan and worker."""
    for file in front_doors():
        package = ModuleType(f"lessons.{file.parent.name}")
        package.__path__ = [str(file.parent)]
        sys.modules.setdefault(package.__name__, package)


def chosen_notebooks(names: Sequence[str] = (), folder: Path = NOTEBOOKS) -> list[Path]:
    """Return the notebooks of a folder in order: all NN_*.ipynb, or those named ("02", "02_broadcast", a path).

    ValueError for a name that fits none, with the names that there are.
    """
    paths = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not paths:
        raise ValueError(f"no notebooks (NN_name.ipynb) in {folder}")
    wanted = set()
    for name in names:
        stem = Path(name).name.removesuffix(".ipynb")
        matching = {path for path in paths if stem in (path.stem, *path.stem.split("_", 1))}
        if not matching:
            raise ValueError(f"no notebook {name!r}; there are: {', '.join(path.stem for path in paths)}")
        wanted |= matching
    return [path for path in paths if not names or path in wanted]


def put_lessons_on_path() -> None:
    """Have Python find `lessons` in this checkout, in this process and in those that it starts.

    notebooks/ comes behind Python's own modules, which no file beside a notebook may hide, and before what is
    installed: a .pth file there may name another checkout.
    """
    if str(NOTEBOOKS) not in sys.path:
        installed = (place for place, folder in enumerate(sys.path) if "-packages" in str(folder))
        sys.path.insert(next(installed, len(sys.path)), str(NOTEBOOKS))


def source_digest() -> str:
    """Return 16 digits that differ where any source file of the workbook does, in its name or its text."""
    return _digest_of(file for folder in CODE for file in folder.rglob("*.py"))


def data_digest() -> str:
    """Return 16 digits that differ where any file of figures or models does: what a notebook reads besides code."""
    return _digest_of(file for pattern in DATA for file in REPOSITORY.glob(pattern))


def _digest_of(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        text = file.read_bytes()
        digest.update(f"{file.relative_to(REPOSITORY)} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()[:16]
