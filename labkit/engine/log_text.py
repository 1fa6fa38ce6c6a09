"""The head and the tail of a log: short enough to be read, and safe to be shown."""

from __future__ import annotations

import os
import re
from pathlib import Path
from unicodedata import category

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # colours and cursor movements of a terminal
LAST_ERROR = re.compile(r"^Last error:\s*(\S.*)", re.M)  # NCCL's own words, below what torch says of its error code
NAMED_ERROR = re.compile(r"^[\w.]*(?:Error|Exception)\b.*", re.M)
UNSHOWABLE = re.compile(r"[^\n\t -~\u00a1-\ud7ff\ue000-\ufffc\U00010000-\U0010ffff]+")


def log_excerpt(file: Path, most: int, *, end: int | None = None) -> str:
    """Return at most `most` bytes of a file, a quarter from its head, and how many are left out between.

    What a carriage return wrote over is left out, as on a terminal; bytes that are no text become one dot. `end`: bytes
    of the file from there on do not count.
    """
    if not (os.path.isfile(file) and os.access(file, os.R_OK)):
        return ""
    with file.open("rb") as log:
        size = log.seek(0, 2) if end is None else end
        log.seek(0)
        if size <= most:
            return printable_text(log.read(size))
        head = log.read(most // 4)
        log.seek(size - (most - len(head)))
        tail = log.read(most - len(head))
    gap = f"… {size - most:,} bytes are left out here: all of them are in {file.name} …"
    return f"{printable_text(head)}\n{gap}\n{printable_text(tail)}"


def shorten(text: str, most: int) -> str:
    """Return a text as it is, or its head and tail where it has more than `most` characters."""
    if len(text) <= most:
        return text
    head, tail = text[: most // 4], text[-(most - most // 4) :]
    return f"{head}\n… {len(text) - most:,} characters are left out here …\n{tail}"


def one_line(text: str, most: int) -> str:
    """Return a text as one line of at most about `most` characters: its head and tail where it has more.

    What is no printable character is escaped: it could change how a terminal or a page shows the rest.
    """
    text = "".join(map(_shown, text)) if not text.isprintable() else text
    return text if len(text) <= most else f"{text[: most * 3 // 4]} … {text[-most // 4 :]}"


def _shown(character: str) -> str:
    if character in "\n\t":
        return " "
    spaces = character.isprintable() or category(character) == "Zs"
    return character if spaces else character.encode("unicode_escape").decode()


def reason_in_brief(message: str, most: int) -> str:
    """Return an exception's first line and the later one that tells the cause, each of at most `most` characters.

    A later line tells it where NCCL tells its last error, where the message holds another process's traceback, and
    where the first line ends with a colon, as a compiler's does.
    """
    first, _, more = message.strip().partition("\n")
    first, later = first[:most].strip(), ""
    if found := LAST_ERROR.search(more):
        later = f"Last error: {found[1]}"
    elif "Traceback (most recent call last)" in more or first.endswith(":"):
        later = (NAMED_ERROR.findall(more) or more.strip().split("\n"))[-1]
    if not (later := later.strip()[:most]):
        return first
    return f"{first} {later}" if first.endswith(":") else f"{first.rstrip('.')}; {later}"


def printable_text(data: bytes) -> str:
    """Return what a program wrote as text that a notebook can show."""
    lines = ESCAPES.sub("", data.decode(errors="replace")).split("\n")
    return UNSHOWABLE.sub("·", "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines))
