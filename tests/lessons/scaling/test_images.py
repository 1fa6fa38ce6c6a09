"""CIFAR-10 from archives made here, whole and damaged; the made images; the network's size."""

import io
import subprocess
import sys
import tarfile
from hashlib import sha256

import pytest
import torch

from labkit.theory import cifar10
from labkit.theory.cifar10 import CLASSES
from labkit.tools.images import NoImages, fetch
from lessons.scaling.theory import flop_per_image, model
from lessons.scaling.worker.glyphs import FACES, glyphs, masks, plain_glyphs
from lessons.scaling.worker.images import Augmented, Feed, Images, augmented, load, read_images
from lessons.scaling.worker.resnet import ResNet

CPU = torch.device("cpu")
NAMES = (*cifar10.TRAINING_FILES, *cifar10.TESTING_FILES)
RECORDS = 4  # in each file of a made archive


@pytest.fixture
def small_files(monkeypatch):
    """CIFAR-10's files, each of four images."""
    monkeypatch.setattr(cifar10, "FILE_BYTES", RECORDS * cifar10.RECORD_BYTES)
    monkeypatch.setattr("labkit.tools.images.FILE_BYTES", RECORDS * cifar10.RECORD_BYTES)


def archive(path, names=NAMES, *, folder="cifar-10-batches-bin", extra=()):
    """Write an archive like the published one; a file's records are of class 0 to 3, their pixels the file's number."""
    with tarfile.open(path, "w:gz") as members:
        for number, name in enumerate(names):
            content = b"".join(bytes([label]) + bytes([number]) * cifar10.PIXELS for label in range(RECORDS))
            _add(members, f"{folder}/{name}", content)
        for name, content in extra:
            _add(members, name, content)
    content = path.read_bytes()
    return {"url": path.as_uri(), "archive_bytes": len(content), "sha256": sha256(content).hexdigest()}


def _add(members, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    members.addfile(member, io.BytesIO(content))


def test_an_archive_is_fetched_checked_and_read(tmp_path, small_files):
    made = archive(tmp_path / "a.tar.gz", extra=[("../outside.bin", b"x"), ("batches.meta.txt", b"plane")])
    folder = tmp_path / "data" / "cifar-10"
    assert str(folder) in fetch(folder, **made)
    assert sorted(file.name for file in folder.iterdir()) == sorted(NAMES), "and no other member"
    assert {file.name for file in tmp_path.iterdir()} == {"a.tar.gz", "data"}
    assert [file.name for file in folder.parent.iterdir()] == ["cifar-10"], "nothing of the download is left"
    assert cifar10.kind_here(folder) == cifar10.CIFAR
    found = read_images(folder, cifar10.TRAINING_FILES)
    assert found.pixels.shape == (5 * RECORDS, 3, 32, 32)
    assert found.labels.tolist() == 5 * [0, 1, 2, 3]
    assert found.pixels[:, 0, 0, 0].tolist() == [number for number in range(5) for _ in range(RECORDS)]
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert "already" in fetch(folder, url="file:///nowhere"), "a folder that is there is used as it is"
    assert before == {file: file.stat().st_mtime_ns for file in folder.iterdir()}


def damaged(path, how):
    """Write an archive with something wrong in it, and return what `fetch` is told of the right one."""
    right = archive(path)
    content = path.read_bytes()
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "another file of its size":
        path.write_bytes(content[:-20] + bytes(20))
    elif how == "no archive":
        path.write_bytes(b"<html>")
        return right | {"archive_bytes": 6, "sha256": sha256(b"<html>").hexdigest()}
    elif how == "cut, of its digest":
        path.write_bytes(content[:-40])
        return right | {"archive_bytes": len(content) - 40, "sha256": sha256(content[:-40]).hexdigest()}
    elif how == "a file is missing":
        return archive(path, NAMES[1:])
    elif how == "nothing there":
        path.unlink()
    return right


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("truncated", "bytes, not"),
        ("another file of its size", "SHA-256"),
        ("no archive", "cannot be read"),
        ("cut, of its digest", "cannot be read"),
        ("a file is missing", "data_batch_1.bin is missing"),
        ("nothing there", "cannot be fetched"),
    ],
)
def test_a_damaged_archive_is_one_error_and_leaves_nothing(tmp_path, small_files, how, said):
    made = damaged(tmp_path / "a.tar.gz", how)
    folder = tmp_path / "data" / "cifar-10"
    with pytest.raises(NoImages, match=said):
        fetch(folder, **made)
    assert list(folder.parent.iterdir()) == []


def test_a_folder_that_is_not_complete_is_told_and_left(tmp_path, small_files):
    folder = tmp_path / "cifar-10"
    folder.mkdir()
    (folder / NAMES[0]).write_bytes(b"half")
    with pytest.raises(NoImages, match="remove the folder"):
        fetch(folder, **archive(tmp_path / "a.tar.gz"))
    assert (folder / NAMES[0]).read_bytes() == b"half"
    with pytest.raises(FileNotFoundError, match="4 bytes"):
        cifar10.kind_here(folder)
    assert cifar10.kind_here(tmp_path / "none") == cifar10.GLYPHS


def test_the_command_says_one_sentence(tmp_path):
    if cifar10.CIFAR10.exists():
        pytest.skip("CIFAR-10 is here")
    url = (tmp_path / "none.tar.gz").as_uri()
    done = subprocess.run([sys.executable, "-m", "labkit.tools.images", "--url", url], capture_output=True, text=True)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "cannot be fetched" in done.stderr
    assert not cifar10.CIFAR10.exists()


def test_glyphs_are_the_same_for_a_seed_and_evenly_spread():
    one, labels = glyphs(200, 5, CPU)
    again, _ = glyphs(200, 5, CPU)
    other, _ = glyphs(200, 6, CPU)
    assert (one.shape, one.dtype) == ((200, 3, 32, 32), torch.uint8)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert labels.bincount().tolist() == [20] * 10
    training, testing = load(cifar10.GLYPHS, 50, 50, CPU)
    assert not torch.equal(training.pixels, testing.pixels), "what is tested was not trained on"


def test_every_face_draws_ten_different_digits():
    drawn = masks()
    assert drawn.shape[:2] == (len(FACES), 10)
    assert (drawn.amax((2, 3)) > 0.5).all(), "a face without that digit"
    apart = torch.cdist(drawn.flatten(2), drawn.flatten(2)) + 1e3 * torch.eye(10)
    assert apart.min() > 1


def test_a_crop_and_a_flip_keep_the_picture():
    pixels = torch.randint(1, 255, (64, 3, 32, 32), dtype=torch.uint8)
    cut = augmented(pixels, torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(pixels, (4,) * 4)
    for image, whole in zip(cut, padded, strict=True):
        views = (each.unfold(1, 32, 1).unfold(2, 32, 1).permute(1, 2, 0, 3, 4) for each in (whole, whole.flip(2)))
        assert any((view == image).all(dim=(2, 3, 4)).any() for view in views)
    assert not torch.equal(cut, augmented(pixels, torch.Generator().manual_seed(1)))


def test_both_loaders_give_batches_of_one_layout():
    """A convolution follows the layout of its input: batches of another one would time another network."""
    images = Images(*glyphs(40, 0, CPU))
    feeds = (Feed(images, 10, 0, 1, CPU), Feed(images, 10, 0, 1, CPU, host=Augmented(images)))
    device, host = (next(feed.epoch(0))[0] for feed in feeds)
    assert device.shape == host.shape and device.stride() == host.stride()


def test_ranks_share_an_epoch_and_reshuffle_it():
    images = Images(torch.zeros(101, 3, 32, 32, dtype=torch.uint8), torch.arange(101) % 10)
    feeds = [Feed(images, 10, rank, 2, CPU) for rank in range(2)]
    orders = [feed.order(0) for feed in feeds]
    assert {*orders[0], *orders[1]} == set(range(101))
    assert feeds[0].steps == 5
    assert feeds[0].order(1) != orders[0]
    assert sum(len(labels) for _, labels in feeds[0].epoch(0)) == 50
    assert Feed(images, 10, 0, 2, CPU, reshuffle=False).order(1) == orders[0]


@pytest.mark.parametrize("on_host", [False, True])
def test_a_students_shard_takes_the_place_of_torchs_sampler(on_host):
    images, asked = Images(*plain_glyphs(21, 0, CPU)), []

    def shard(*arguments):
        asked.append(arguments)
        return list(range(20))[arguments[2] :: 2]

    feeds = [
        Feed(images, 5, rank, 2, CPU, host=Augmented(images) if on_host else None, seed=3, shard=shard)
        for rank in range(2)
    ]
    assert [feed.order(1) for feed in feeds] == [[*range(0, 20, 2)], [*range(1, 20, 2)]]
    assert asked[-1] == (21, 2, 1, 4, False) and [feed.steps for feed in feeds] == [2, 2]
    assert torch.cat([labels for _, labels in feeds[1].epoch(2)]).tolist() == 2 * [1, 3, 5, 7, 9]


def test_plain_glyphs_are_small_grey_and_evenly_spread():
    images, labels = plain_glyphs(100, 5, CPU)
    assert (images.shape, images.dtype) == ((100, 3, 16, 16), torch.uint8)
    assert torch.equal(images, plain_glyphs(100, 5, CPU)[0]) and not torch.equal(images, plain_glyphs(100, 6, CPU)[0])
    assert labels.bincount().tolist() == [10] * 10
    assert augmented(images, torch.Generator().manual_seed(0)).shape == images.shape
    training, testing = load(cifar10.PLAIN, 50, 50, CPU)
    assert training.pixels.shape == testing.pixels.shape == (50, 3, 16, 16)
    assert not torch.equal(training.pixels, testing.pixels), "what is tested was not trained on"


def test_the_network_has_the_published_size():
    network = ResNet(64, (2, 2, 2, 2), 10)
    shapes = tuple(tuple(parameter.shape) for parameter in network.parameters())
    assert sum(parameter.numel() for parameter in network.parameters()) == 11_173_962 == model().parameters
    assert shapes == model().shapes, "in the order in which buckets are filled"
    assert sum(buffer.nbytes for buffer in network.buffers()) == model().buffers_bytes
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_the_formula_counts_what_torch_counts():
    from torch.utils.flop_counter import FlopCounterMode

    network = ResNet(8, (2, 2, 2, 2), 10)
    with FlopCounterMode(display=False) as counted:
        network(torch.zeros(4, 3, 32, 32)).sum().backward()
    assert counted.get_total_flops() == 4 * flop_per_image(8, (2, 2, 2, 2), CLASSES)
