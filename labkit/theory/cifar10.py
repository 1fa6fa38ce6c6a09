"""The images of CIFAR-10, and the glyphs that are drawn in their place: sizes, files, and which of the two are here."""

from __future__ import annotations

from pathlib import Path

from labkit.repository import CIFAR10

SIDE, CHANNELS, CLASSES = 32, 3, 10
PIXELS = SIDE * SIDE * CHANNELS
RECORD_BYTES = 1 + PIXELS  # of one image in CIFAR-10's binary files: the class, then the pixels
TRAINING, TESTING = 50_000, 10_000

# The binary version of CIFAR-10 (Krizhevsky, "Learning multiple layers of features from tiny images", 2009).
TRAINING_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TESTING_FILES = ("test_batch.bin",)
FILE_BYTES = 10_000 * RECORD_BYTES

CIFAR, GLYPHS, PLAIN = "cifar-10", "glyphs", "plain glyphs"
KINDS = (CIFAR, GLYPHS, PLAIN)
PLAIN_SIDE = 16
SAID = {
    CIFAR: "images: CIFAR-10",
    GLYPHS: "images: glyphs, not CIFAR-10",
    PLAIN: f"images: plain glyphs of {PLAIN_SIDE} × {PLAIN_SIDE} pixels, not CIFAR-10",
}


def kind_here(folder: Path = CIFAR10) -> str:
    """Return which images a run on this machine takes: CIFAR-10 where its folder is, and otherwise glyphs.

    Raises FileNotFoundError, naming what is wrong, where the folder is there and not complete.
    """
    if not folder.exists():
        return GLYPHS
    if wrong := damage(folder):
        raise FileNotFoundError(f"{folder}: {wrong}; remove the folder, and fetch it again with `make data`")
    return CIFAR


def damage(folder: Path) -> str:
    """Return what is wrong with a folder of CIFAR-10's binary files; "" where all are there, each of its size."""
    for name in (*TRAINING_FILES, *TESTING_FILES):
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        if (size := file.stat().st_size) != FILE_BYTES:
            return f"{name} has {size} bytes, not {FILE_BYTES}"
    return ""
