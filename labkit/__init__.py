"""labkit: the package under the workbook.

A run crosses a wall: the notebook's kernel on one side, torchrun's worker processes (one a GPU) on the other. Only two
things cross it: a plan, inward, and rows, outward.

    from labkit import launch
    from lessons import broadcast

    run = launch(broadcast.Sweep(gpus=4))
    broadcast.methods_chart(broadcast.methods(run))

Importing labkit loads neither torch nor a drawing library: the kernel holds no GPU memory and cannot disturb what it
measures.
"""

import importlib
import importlib.util
import io
import sys
from typing import TYPE_CHECKING

from labkit.repository import put_lessons_on_path

if TYPE_CHECKING:
    from labkit.front import *  # noqa: F403

put_lessons_on_path()
if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
    sys.stdout.reconfigure(errors="backslashreplace")  # "→" in an ASCII terminal ends no command


def __getattr__(name: str):
    """Return a name of labkit/front.py, whose rooms load now: `import labkit` itself takes no time."""
    if name.startswith("__") or importlib.util.find_spec(f"labkit.{name}"):
        raise AttributeError(name)  # Python goes on and imports the room of this name
    front = importlib.import_module("labkit.front")
    if name not in vars(front):
        raise AttributeError(f"labkit has no {name!r}; it has {', '.join(__dir__())}")
    return getattr(front, name)


def __dir__() -> list[str]:
    """List what a notebook may use, for Tab completion."""
    return sorted(name for name in vars(importlib.import_module("labkit.front")) if not name.startswith("_"))


if "IPython" in sys.modules:  # in a notebook `%%answer` works from here on, and tables show whole texts
    importlib.import_module("labkit.course")
    # By default pandas cuts names and error messages at 50 characters.
    importlib.import_module("pandas").set_option("display.max_colwidth", None)
