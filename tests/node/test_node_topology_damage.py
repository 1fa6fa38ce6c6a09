"""Whatever happens to a topology text, its links read as the same machine's, or a TopologyError quotes a line.

Damage to an affinity or a label never costs a link, and never gives a wrong affinity or label.
"""

import re
from contextlib import suppress

import machines
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from labkit.node import parse_topology
from labkit.node.topology import TopologyError

NAMES = sorted(machines.LINKS)
TEXTS = {name: machines.text(name) for name in NAMES}
RIGHT = {name: parse_topology(text) for name, text in TEXTS.items()}
names = st.sampled_from(NAMES)


def read(name: str, text: str) -> bool:
    """Whether the text reads, and then as this machine; labels may be missing, affinities unread, neither wrong."""
    try:
        topology = parse_topology(text)
    except TopologyError as error:
        assert repr(error.line[:200]) in str(error)
        # A quoted line comes from the text, but for the colours that reading takes out.
        assert not error.line or set(error.line) <= set(text)
        return False
    right = RIGHT[name]
    assert topology.links == right.links
    all_read = not any(d.unread and not known.unread for d, known in zip(topology.devices, right.devices, strict=True))
    for device, known in zip(topology.devices, right.devices, strict=True):
        assert (device.name, device.kind) == (known.name, known.kind)
        assert device.cpus == known.cpus or (device.unread and not device.cpus)
        assert device.numa == known.numa or (not all_read and device.numa is None)
    assert all(d.label in ("", known.label) for d, known in zip(topology.devices, right.devices, strict=True))
    return True


@pytest.mark.parametrize("name", NAMES)
def test_cut_at_any_character(name):
    text = TEXTS[name]
    complete = [end for end in range(len(text) + 1) if read(name, text[:end])]
    assert complete[-1] == len(text)
    if name != "no_gpu":
        rows = [d.name for d in RIGHT[name].devices]
        last_row = max(text.index("\n" + row + ("\t" if "\t" in text else " ")) for row in rows)
        assert complete[0] > text.index("X", last_row), "reads before its last row holds every link"


@given(names, st.randoms())
def test_lines_in_any_order(name, random):
    lines = TEXTS[name].splitlines(keepends=True)
    random.shuffle(lines)
    assert read(name, "".join(lines))


TABBED = [name for name in NAMES if "\t" in TEXTS[name]]


# No letter, digit or list sign: those can turn one well-formed cell into another, which no reader could tell.
NOISE = st.characters(max_codepoint=0x1F, exclude_characters="\t\n") | st.characters(min_codepoint=0x7F)


@settings(max_examples=300)
@given(names, st.lists(st.tuples(st.floats(0, 1), NOISE), min_size=1))
def test_noise_anywhere(name, noise):
    read(name, inserted(TEXTS[name], noise))


WRITTEN = st.sampled_from("GPUNICXVSOHBDYAfinty0129 \t\n\x1b[m-,:./_")


@settings(max_examples=300)
@given(st.sampled_from(["", *TEXTS.values()]), st.lists(st.tuples(st.floats(0, 1), WRITTEN), min_size=1) | st.text())
def test_letters_and_digits_anywhere_and_any_text_at_all(text, pieces):
    """What reads may be another machine; what does not read is a TopologyError and nothing else."""
    with suppress(TopologyError):
        parse_topology(pieces if isinstance(pieces, str) else inserted(text, pieces))


CELL = st.text(st.characters(exclude_characters="\t\n\x1b", exclude_categories=["Cs"]), min_size=1, max_size=12)
LINK = re.compile(r"X|SOC|NV[0-9]+|PIX|PXB|PHB|NODE|SYS")
WITH_GPUS = [name for name in TABBED if RIGHT[name].devices]


@settings(max_examples=300)
@given(st.sampled_from(WITH_GPUS), st.integers(0, 99), st.lists(CELL, min_size=1, max_size=4))
def test_any_text_as_affinities_costs_no_link(name, row, cells):
    assume(not any(LINK.fullmatch(part.strip()) for cell in cells for part in re.split(r"\s", cell)))
    gpus = [device.name for device in RIGHT[name].devices if device.kind == "gpu"]
    gpu, count = gpus[row % len(gpus)], len(RIGHT[name].devices)
    lines = uncoloured(TEXTS[name]).splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if line.startswith(gpu + "\t"))
    kept = lines[place].split("\t")[: count + 1]
    lines[place] = "\t".join([*kept, *cells]) + "\n"
    topology = parse_topology("".join(lines))
    assert topology.links == RIGHT[name].links
    others = [d for d in RIGHT[name].devices if d.kind == "gpu" and d.name != gpu]
    assert [d for d in topology.devices if d.kind == "gpu" and d.name != gpu] == others


def inserted(text: str, pieces: list[tuple[float, str]]) -> str:
    """Places are shares of the text; from the end on, so that no piece lands inside another."""
    whole = len(text)
    for place, piece in sorted(pieces, reverse=True):
        at = int(place * whole)
        text = text[:at] + piece + text[at:]
    return text


def uncoloured(text: str) -> str:
    return text.replace("\x1b[4m", "").replace("\x1b[0m", "")
