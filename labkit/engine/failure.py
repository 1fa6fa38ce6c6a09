"""What a worker reports of the exception that ends it, whatever that exception is made of."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from json import dumps  # a lab may patch the module's
from time import monotonic
from time import time as unix_time
from typing import Any

from labkit.engine.json_lines import open_to_append
from labkit.engine.log_text import shorten
from labkit.engine.worker import Worker

MOST_TRACEBACK = 12_000  # characters that cross the wall; the worker's log has all of them
MOST_MESSAGE = 2_000
VICTIM_SECONDS = 1  # how long a rank that raised because another one is gone lets that one speak and end first
CLASS_NAME = type.__dict__["__name__"].__get__  # of a class whose own metaclass may raise

CPP_FRAMES = re.compile(r"\nException raised from .* \(most recent call first\):\n.*", re.S)  # the traceback has them

# What a rank raises when another one is gone: never the first cause.
VICTIM_MESSAGE = re.compile(
    r"connection (was )?(likely )?(closed|reset)|by peer|broken pipe|remote process exited|socket (closed|timeout)"
    r"|pair closure|got 0 bytes|communicator was aborted",
    re.I,
)


def report(worker: Worker, error: BaseException) -> None:
    """Tell the host, then the log, of the exception that ends this rank.

    Each step stands by itself: the lab may have closed files, patched modules or set off interrupts and alarms.
    """
    at, words, written, misses_a_peer = monotonic(), class_description(error), None, False
    with suppress(BaseException):
        misses_a_peer = worker.misses_a_peer()  # first of all: a peer that ends later is no reason
    with suppress(BaseException):
        for number in (signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
    if os.getpid() != worker.pid and isinstance(error, SystemExit):
        os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))  # a forked one's own end
    with suppress(BaseException):
        words = description(error)
    words["victim"] |= misses_a_peer
    with suppress(BaseException):
        written = os.fstat(2).st_size
    report = {
        **words,
        "time": unix_time(),
        "at": at,
        "point": getattr(worker.point, "point", None),
        "log_bytes": written,
    }
    for events in (lambda: worker._events, lambda: open_to_append(worker.run.events_file(worker.rank))):
        with suppress(BaseException):
            events().write(dumps({"event": "raised", **report}) + "\n")
            break
    with suppress(BaseException):
        sys.stderr.write(traceback_text(error))
    with suppress(BaseException):
        time.sleep(VICTIM_SECONDS if words["victim"] else 0)


def class_description(error: BaseException) -> dict[str, Any]:
    """Return what `description` does, where nothing can be found out about the exception but its class."""
    return {"kind": CLASS_NAME(type(error)), "message": "", "victim": False, "errno": None, "traceback": ""}


def description(error: BaseException) -> dict[str, Any]:
    """Return kind, message, traceback and errno of an exception, and whether another rank's end is behind it."""
    return {
        "kind": CLASS_NAME(type(error)),
        "message": message(error),
        "victim": any(VICTIM_MESSAGE.search(message(earlier)) for earlier in _chain(error)),
        "errno": error.errno if isinstance(error, OSError) else None,
        "traceback": shorten(traceback_text(error), MOST_TRACEBACK),
    }


def traceback_text(error: BaseException) -> str:
    try:
        return _writable("".join(traceback.format_exception(error)))
    except BaseException as another:  # the student's own exception class may be the broken one
        frames = "".join(traceback.format_tb(error.__traceback__))
        cannot = f"whose traceback cannot be shown ({CLASS_NAME(type(another))})"
        return _writable(f"{frames}{CLASS_NAME(type(error))}, {cannot}\n")


def message(error: BaseException) -> str:
    try:
        return shorten(CPP_FRAMES.sub("", _writable(str(error))), MOST_MESSAGE)
    except BaseException:
        return "(its message could not be read)"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it was raised from or during, latest first, at most ten.

    `raise … from None` hides the earlier one from a traceback, but that came first all the same.
    """
    at: BaseException | None = error
    for _ in range(10):
        if at is None:
            return
        yield at
        at = at.__cause__ or at.__context__


def _writable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()  # half a surrogate pair is text, but cannot be written
