"""Where the lessons were: a student's old import is told the new one."""

from typing import NoReturn


def __getattr__(name: str) -> NoReturn:
    """Raise ImportError with the new import; what Python itself asks a module for, such as `__path__`, is not there."""
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(f"labkit.labs moved: write `from lessons import {name}`")
