"""pip for another Python than the one that runs, with the packages that only that version needs.

    python labkit/tools/pip_for.py 3.12 download papermill

pip's own --python-version chooses wheels alone: `python_version` in a marker stays that of the Python that runs.
On 3.11, pip would leave out aiohttp, which papermill needs on 3.12 alone.
"""

from __future__ import annotations

import runpy
import sys


def main(version: str, *arguments: str) -> None:
    """Run pip with wheels and markers of a version such as "3.12"; pip's status ends the process."""
    from pip._vendor.packaging import markers

    environment = markers.default_environment()
    environment |= {"python_version": version, "python_full_version": f"{version}.0"}
    markers.default_environment = lambda: environment
    sys.argv = ["pip", *arguments, "--only-binary=:all:", "--python-version", version]
    runpy.run_module("pip", run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
