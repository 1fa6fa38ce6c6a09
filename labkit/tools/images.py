"""Fetches CIFAR-10 into data/cifar-10: `make data`. Nothing is unpickled, and nothing is left half-unpacked."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

from labkit.repository import CIFAR10
from labkit.theory.cifar10 import FILE_BYTES, TESTING_FILES, TRAINING_FILES, damage

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
ARCHIVE_BYTES = 170_052_171
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
WITHOUT_IMAGES = "Without CIFAR-10, lab 13 makes its own images and says so"
PATIENCE_S = 60


class NoImages(Exception):
    """CIFAR-10 was not fetched: the message says why, and what to do."""


def fetch(folder: Path = CIFAR10, url: str = URL, archive_bytes: int = ARCHIVE_BYTES, sha256: str = SHA256) -> str:
    """Download, check and unpack the archive into `folder`; return what was done, in one sentence.

    A folder that is complete stays as it is. Raises NoImages where it is not complete, or where the archive cannot be
    had, is not the published one or cannot be read; `folder` is then as it was before.
    """
    if folder.exists():
        if wrong := damage(folder):
            raise NoImages(f"{folder} is there, but {wrong}: remove the folder and run `make data` again")
        return f"{folder} is complete already."
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as place:
        archive, unpacked = Path(place) / "archive", Path(place) / "unpacked"
        _download(url, archive)
        _check(archive, archive_bytes, sha256)
        _unpack(archive, unpacked)
        unpacked.rename(folder)
    return f"{folder}: 50 000 training and 10 000 test images."


def _download(url: str, archive: Path) -> None:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as source, archive.open("wb") as target:
            shutil.copyfileobj(source, target)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise NoImages(f"{url} cannot be fetched ({reason}). {WITHOUT_IMAGES}") from None


def _check(archive: Path, archive_bytes: int, sha256: str) -> None:
    if (size := archive.stat().st_size) != archive_bytes:
        raise NoImages(f"the archive has {size} bytes, not {archive_bytes}: it is truncated or another file")
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        raise NoImages(f"the archive's SHA-256 is {digest}, not {sha256}: it is not the published file")


def _unpack(archive: Path, folder: Path) -> None:
    """Write the six files of images, and no other member, each checked for its size."""
    folder.mkdir()
    wanted = {*TRAINING_FILES, *TESTING_FILES}
    try:
        with tarfile.open(archive) as members:
            for member in members:
                name = Path(member.name).name
                if name in wanted and member.isfile() and member.size == FILE_BYTES:
                    content = members.extractfile(member)
                    (folder / name).write_bytes(content.read() if content else b"")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise NoImages(f"the archive cannot be read ({error})") from None
    if wrong := damage(folder):
        raise NoImages(f"the archive does not hold what it should: {wrong}")


def main() -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="make data", description="fetch CIFAR-10 into data/cifar-10")
    parser.add_argument(
        "--url", default=URL, help="another place of the same archive, such as file:///tmp/cifar.tar.gz"
    )
    try:
        print(fetch(url=parser.parse_args().url))
    except NoImages as error:
        print(f"make data: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
