"""Images on their way to the model: read or made, cut and flipped, from the host's memory or the device's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from labkit.repository import CIFAR10
from labkit.theory.cifar10 import CIFAR, PIXELS, PLAIN, RECORD_BYTES, SIDE, TESTING_FILES, TRAINING_FILES
from lessons.scaling.worker.glyphs import glyphs, plain_glyphs

PADDED = 8  # a random crop is cut out of an image and, on each side, this part of its own as padding
_TEST_SEED = 1_000_003  # added to the seed of the training images


class Images(NamedTuple):
    """Pixels as bytes (count, 3, side, side), and the classes."""

    pixels: torch.Tensor
    labels: torch.Tensor

    def to(self, device: torch.device) -> Images:
        return Images(self.pixels.to(device), self.labels.to(device))


def load(kind: str, training: int, testing: int, device: torch.device) -> tuple[Images, Images]:
    """Return the first `training` and `testing` images of a kind, on the device."""
    if kind == CIFAR:
        return _first(TRAINING_FILES, training, device), _first(TESTING_FILES, testing, device)
    made = plain_glyphs if kind == PLAIN else glyphs
    return Images(*made(training, 0, device)), Images(*made(testing, _TEST_SEED, device))


def _first(names: tuple[str, ...], count: int, device: torch.device) -> Images:
    pixels, labels = read_images(CIFAR10, names)
    return Images(pixels[:count], labels[:count]).to(device)


def read_images(folder: Path, names: tuple[str, ...]) -> Images:
    """Return the images of CIFAR-10's binary files: per record one byte of class, then 3 × 32 × 32 bytes.

    Raises ValueError, naming the file, where one is not made of such records.
    """
    parts = []
    for name in names:
        content = bytearray((folder / name).read_bytes())
        if not content or len(content) % RECORD_BYTES:
            raise ValueError(f"{folder / name} has {len(content)} bytes, no multiple of {RECORD_BYTES}")
        parts.append(torch.frombuffer(content, dtype=torch.uint8).view(-1, RECORD_BYTES))
    records = torch.cat(parts)
    return Images(records[:, 1:].reshape(-1, PIXELS // SIDE**2, SIDE, SIDE), records[:, 0].long())


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    """Return bytes as float32 around 0, in steps of 1/255, twice as wide."""
    return pixels.float().mul_(2 / 255).sub_(1)


def augmented(pixels: torch.Tensor, numbers: torch.Generator) -> torch.Tensor:
    """Return a batch with a random crop and a random flip of each image, by one gather on its own device."""
    count, device, side = len(pixels), pixels.device, pixels.shape[-1]
    padding = side // PADDED
    padded = functional.pad(pixels, (padding,) * 4)
    draws = torch.randint(2 * padding + 1, (2, count, 1), generator=numbers, device=device)
    along = torch.arange(side, device=device)
    flips = torch.rand(count, 1, generator=numbers, device=device) < 0.5
    rows, columns = draws[0] + along, draws[1] + torch.where(flips, along.flip(0), along)
    each = torch.arange(count, device=device)[:, None, None]
    cut = padded.permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None, :]]
    return cut.permute(0, 3, 1, 2).contiguous()  # as the host's loader gives them: convolutions follow the layout


class Augmented(Dataset):
    """Images in the host's memory, each cut and flipped by itself when it is asked for, as bytes."""

    def __init__(self, images: Images):
        self.side = images.pixels.shape[-1]
        self.padding = self.side // PADDED
        self.padded, self.labels = functional.pad(images.pixels, (self.padding,) * 4), images.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        row, column, flip = torch.randint(2 * self.padding + 1, (3,)).tolist()
        cut = self.padded[number, :, row : row + self.side, column : column + self.side]
        return (cut.flip(2) if flip % 2 else cut), self.labels[number]


class ShardSampler:
    """A rank's image numbers from a student's `shard`, in the place of torch's DistributedSampler."""

    def __init__(self, shard: Callable[..., list[int]], images: int, ranks: int, rank: int, seed: int):
        self.shard, self.images, self.ranks, self.rank, self.seed = shard, images, ranks, rank, seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        drop_last = False
        self.numbers = self.shard(self.images, self.ranks, self.rank, self.seed + epoch, drop_last)

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)


class Feed:
    """Batches of a rank's share of the images, epoch after epoch.

    With `host`, torch's DataLoader reads, cuts and flips in `processes` of its own; without it, all of that is done on
    the device. Both take the order of a DistributedSampler, or of a student's `shard`, and leave out a last batch that
    is not full. `share` and `reshuffle` switched off are bugs: every rank takes all; the epoch is never set.
    """

    def __init__(
        self,
        images: Images,
        batch: int,
        rank: int,
        ranks: int,
        device: torch.device,
        *,
        host: Augmented | None = None,
        processes: int = 0,
        seed: int = 0,
        share: bool = True,
        reshuffle: bool = True,
        shard: Callable[..., list[int]] | None = None,
    ):
        self.images, self.batch, self.device = images, batch, device
        self.share, self.reshuffle, self.batches = share, reshuffle, None
        replicas: dict[str, Any] = {"num_replicas": ranks, "rank": rank} if share else {"num_replicas": 1, "rank": 0}
        whole: Any = images.labels
        self.sampler: Any = DistributedSampler(whole, **replicas, shuffle=True, seed=seed)
        if shard is not None:
            self.sampler = ShardSampler(shard, len(whole), ranks, rank, seed)
        self.numbers = torch.Generator(device).manual_seed(1000 * seed + rank)
        if host is not None:
            torch.manual_seed(1000 * seed + rank)
            self.batches = DataLoader(
                host,
                batch_size=batch,
                sampler=self.sampler,
                num_workers=processes,
                pin_memory=device.type == "cuda",
                persistent_workers=processes > 0,
                drop_last=True,
            )

    @property
    def steps(self) -> int:
        """Return how many batches this rank has in an epoch."""
        return len(self.sampler) // self.batch

    def order(self, epoch: int) -> list[int]:
        """Return the numbers of this rank's images in an epoch, in order."""
        if self.reshuffle:
            self.sampler.set_epoch(epoch)
        return list(self.sampler)

    def epoch(self, number: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield an epoch's batches: bytes and classes, on the host or on the device."""
        if self.batches is not None:
            if self.reshuffle:
                self.sampler.set_epoch(number)
            yield from self.batches
            return
        order = torch.tensor(self.order(number)).to(self.device)
        for chosen in order[: self.steps * self.batch].split(self.batch):
            yield augmented(self.images.pixels[chosen], self.numbers), self.images.labels[chosen]

    def close(self) -> None:
        """End the loader's processes."""
        self.batches = None
