"""Made images: digits in many typefaces, bent, coloured, cluttered and noisy, or plain; from a seed, on the device."""

from __future__ import annotations

import functools
from pathlib import Path

import matplotlib
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from torch.nn import functional

from labkit.theory.cifar10 import CHANNELS, CLASSES, PLAIN_SIDE, SIDE

# Typefaces that every version of matplotlib ships and that have digits.
_DEJAVU = ("DejaVuSans", "DejaVuSansMono")
FACES = (
    *(f"{face}{style}" for face in _DEJAVU for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    *("cmr10", "cmb10", "cmss10", "cmtt10"),
)
_CELL = 48  # pixels of a drawn digit's side: more than an image's, so that a bent one stays sharp
_BATCH = 2_000  # images rendered together
_PLAIN_FACES, _PLAIN_NOISE = 4, 0.1
CLUTTER = 1  # other digits in an image, fainter than its own
# How hard: the least and the most contrast of a digit to its background, the clutter's share of it, and the noise.
CONTRAST, CLUTTER_SHARE, NOISE = (0.4, 0.9), 0.5, 0.07


@functools.cache
def masks() -> torch.Tensor:
    """Return every digit in every face as coverage between 0 and 1, of shape (faces, 10, _CELL, _CELL)."""
    size = (CLASSES * _CELL / 100, len(FACES) * _CELL / 100)
    figure = Figure(figsize=size, dpi=100, facecolor="black")
    canvas = FigureCanvasAgg(figure)
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for row, face in enumerate(FACES):
        font = FontProperties(fname=str(folder / f"{face}.ttf"), size=0.72 * _CELL * 72 / 100)
        for digit in range(CLASSES):
            x, y = (digit + 0.5) / CLASSES, 1 - (row + 0.5) / len(FACES)
            figure.text(x, y, str(digit), color="white", ha="center", va="center", fontproperties=font)
    canvas.draw()
    pixels = torch.frombuffer(bytearray(canvas.buffer_rgba()), dtype=torch.uint8)
    drawn = pixels.view(len(FACES) * _CELL, CLASSES * _CELL, 4)[:, :, 0].float() / 255
    return drawn.view(len(FACES), _CELL, CLASSES, _CELL).permute(0, 2, 1, 3).contiguous()


def glyphs(count: int, seed: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `count` images as bytes (count, 3, 32, 32) and their digits; a seed and a kind of device give the same.

    The digits come in turn, so that every class has as many images.
    """
    numbers = torch.Generator(device).manual_seed(seed)
    drawn = masks().to(device)
    labels = torch.arange(count, device=device) % CLASSES
    images = [_rendered(drawn, part, numbers) for part in labels.split(_BATCH)]
    return torch.cat(images), labels


def plain_glyphs(count: int, seed: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `count` grey digits as bytes (count, 3, 16, 16), and which they are: a small network learns them quickly.

    White on black in the first faces, with noise. Digits and seeds as in `glyphs`.
    """
    numbers = torch.Generator(device).manual_seed(seed)
    drawn = functional.avg_pool2d(masks()[:_PLAIN_FACES], _CELL // PLAIN_SIDE).to(device)
    labels = torch.arange(count, device=device) % CLASSES
    faces = torch.randint(_PLAIN_FACES, (count,), generator=numbers, device=device)
    images = drawn[faces, labels][:, None].expand(-1, CHANNELS, -1, -1)
    images = images + _PLAIN_NOISE * torch.randn(images.shape, generator=numbers, device=device)
    return (255 * images.clamp(0, 1)).to(torch.uint8), labels


def _rendered(drawn: torch.Tensor, labels: torch.Tensor, numbers: torch.Generator) -> torch.Tensor:
    """Return one batch of images: a background that slopes, clutter, the digit itself, noise."""
    count, device = len(labels), labels.device

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(count, *shape, generator=numbers, device=device)

    def signed(*shape: int) -> torch.Tensor:
        """Return colours that differ from the background by a contrast, brighter or darker."""
        least, most = CONTRAST
        sign = torch.where(uniform(1, 1, 1) < 0.5, -1.0, 1.0)
        return sign * (least + (most - least) * uniform(1, 1, 1)) * (0.4 + 0.6 * uniform(*shape))

    across = torch.linspace(-0.5, 0.5, SIDE, device=device)
    slopes = 0.5 * (uniform(CHANNELS, 1, 1) - 0.5) * across + 0.5 * (uniform(CHANNELS, 1, 1) - 0.5) * across[:, None]
    canvas = 0.3 + 0.4 * uniform(CHANNELS, 1, 1) + slopes
    for _ in range(CLUTTER):
        others = (uniform() * CLASSES).long()
        canvas = canvas + CLUTTER_SHARE * signed(CHANNELS, 1, 1) * _warp(drawn, others, uniform, reach=1.4)
    canvas = canvas + signed(CHANNELS, 1, 1) * _warp(drawn, labels, uniform, reach=0.2)
    canvas = canvas + NOISE * torch.randn(canvas.shape, generator=numbers, device=device)
    return (255 * canvas.clamp(0, 1)).to(torch.uint8)


def _warp(drawn: torch.Tensor, digits: torch.Tensor, uniform, *, reach: float) -> torch.Tensor:
    """Return each digit in a random face, turned, sheared, scaled and moved by up to `reach` of half an image."""
    faces = (uniform() * len(FACES)).long()
    turn, shear = 0.5 * (uniform() - 0.5), 0.5 * (uniform() - 0.5)
    wide, high = 0.75 + 0.45 * uniform(), 0.75 + 0.45 * uniform()
    cosine, sine = torch.cos(turn), torch.sin(turn)
    rows = [
        torch.stack([wide * cosine, wide * (shear * cosine - sine), reach * (2 * uniform() - 1)], 1),
        torch.stack([high * sine, high * (shear * sine + cosine), reach * (2 * uniform() - 1)], 1),
    ]
    grid = functional.affine_grid(torch.stack(rows, 1), [len(digits), 1, SIDE, SIDE], align_corners=False)
    return functional.grid_sample(drawn[faces, digits][:, None], grid, align_corners=False)
