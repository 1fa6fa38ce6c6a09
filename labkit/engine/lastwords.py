"""What a worker reports of the exception that ends it, whatever that exception is made of."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from typing import Any

from labkit.engine.excerpt import shorten

MOST_TRACEBACK = 12_000  # characters that cross the wall; the worker's log has all of them
MOST_MESSAGE = 2_000

# What a rank raises when another one is gone: never the first cause.
VICTIM = re.compile(
    r"connection (was )?(likely )?(closed|reset)|by peer|broken pipe|remote process exited|socket (closed|timeout)"
    r"|pair closure|got 0 bytes|communicator was aborted",
    re.I,
)


def of(error: BaseException) -> dict[str, Any]:
    """Give kind, message, traceback and errno of an exception, and whether another rank's end is behind it."""
    return {
        "kind": type(error).__name__,
        "message": message(error),
        "victim": any(VICTIM.search(message(earlier)) for earlier in _chain(error)),
        "errno": error.errno if isinstance(error, OSError) else None,
        "traceback": shorten(formatted(error), MOST_TRACEBACK),
    }


def formatted(error: BaseException) -> str:
    try:
        return _writable("".join(traceback.format_exception(error)))
    except BaseException as another:  # the student's own exception class may be the broken one
        return f"{type(error).__name__}, whose traceback cannot be shown ({type(another).__name__})\n"


def message(error: BaseException) -> str:
    try:
        return shorten(_writable(str(error)), MOST_MESSAGE)
    except BaseException:
        return "(its message could not be read)"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it was raised from or during, latest first, at most ten."""
    for _ in range(10):
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if error is None:
            return


def _writable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()  # half a surrogate pair is text, but cannot be written
