"""`nvidia-smi topo -m` as links: the path between any two devices, and which NUMA node each is on.

The text is a matrix of devices with affinity columns and a legend. Drivers vary in all three, and a text that was
copied has lost tabs, colours or line ends (tests/fixtures/topology holds the forms). So a cell is what stands between
blanks, and a device is what has a column and a row. Links are read strictly: what could be read two ways, or ends in
the middle, is a TopologyError. An affinity or a label that cannot be read stays unknown and costs no link;
`Device.unread` quotes the affinity.
"""

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

# Colour codes: whole, with ESC written as text, or with ESC lost on the way ("[4mGPU0", "4mGPU0").
_ESCAPE = r"(?:[\x1b\u241b\ufffd\u2190?]|\^\[|\\x1[bB]|\\u001[bB]|\\0?33|\\e)"
_COLOURS = re.compile(
    rf"{_ESCAPE}(?:\[[0-9;?]*[ -/]*[@-~]|\([0B])|\x9b[0-9;?]*[@-~]|\[[0-9;]*[mK]"
    r"|(?:(?<!\S)[0-9;]+|(?<=[A-Za-z])[0-9]{1,2})m(?=GPU|\s|\Z)"
)
_TAG = re.compile(r"</?[A-Za-z][^<>\n]*>:?")  # of a web page, or of mpirun ("<stdout>:")
_BLANKS = re.compile("[ \t\xa0\u2000-\u200b\u3000\ufeff|\u2502*+;$\"'`]+")  # with the marks of tables and quotes
_COLUMN = re.compile(r"(?:CPU|NUMA|Memory)[ _]?Affinity|GPU[ _]?NUMA[ _]?ID|[^ ]+", re.IGNORECASE | re.ASCII)
_DEVICE = re.compile(r"(?:GPU|NIC)[0-9]{1,3}")
_KIND = re.compile(r"X|NV[1-9][0-9]?|PIX|PXB|PHB|NODE|SYS")
_OLD_KINDS = {"SOC": "SYS", "PSB": "PIX"}  # PSB: through one switch on the board of both GPUs
_NUMBERS = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*")
_NIC_LABEL = re.compile(r"(?:.* )?(NIC[0-9]{1,3}) ?: ?([A-Za-z0-9_.:-]+)")
_CUT = ": the text ends here and may be cut short"
_MOST_QUOTED = 60  # characters
FROM_NVML = "The matrix comes from NVML instead of nvidia-smi"  # so begins the first line of such a text
_AFFINITIES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")

MEANINGS = {
    "X": "the device itself",
    "NV": "{nvlinks}, direct or through NVSwitch",
    "PIX": "PCIe, through at most one bridge",
    "PXB": "PCIe, through several bridges but not the host bridge",
    "PHB": "PCIe, through a host bridge, usually the CPU",
    "NODE": "PCIe, between host bridges of one NUMA node",
    "SYS": "PCIe and the link between NUMA nodes (QPI, UPI, Infinity Fabric)",
}


class TopologyError(ValueError):
    """A text that is not the output of `nvidia-smi topo -m`; quotes the line and says what was expected."""

    def __init__(self, line: str, expected: str):
        self.line = line
        super().__init__(f"cannot read this line of the topology: {line[:200]!r}; expected {expected}")


@dataclass(frozen=True)
class Device:
    """A GPU or a network card: kind "gpu" or "nic", the CPUs it is close to, its one NUMA node or None.

    A NIC's node is that of the GPUs whose path to it stays within a node. The label is the NIC's system name. `unread`
    quotes what the text prints as the device's affinity and nobody can read: "CPU Affinity 60-49".
    """

    name: str
    kind: str
    cpus: tuple[int, ...] = ()
    numa: int | None = None
    label: str = ""
    unread: str = ""


@dataclass(frozen=True)
class Path:
    """How two devices reach each other: class, NVLink count (0 for PCIe), and what the class means."""

    kind: str
    nvlinks: int
    meaning: str


@dataclass(frozen=True)
class Topology:
    """Devices, GPUs first and by number, and the class of each pair in `links[(a, b)]`, a before b in that order.

    note: a sentence on where the matrix comes from; "" where it is what nvidia-smi prints.
    """

    devices: tuple[Device, ...]
    links: dict[tuple[str, str], str]
    note: str = ""

    @property
    def printed_by(self) -> str:
        """What printed the matrix, for the line below a chart."""
        return "NVML's matrix" if self.note.startswith(FROM_NVML) else "nvidia-smi topo -m"

    def of_gpus(self, indices: Iterable[int]) -> "Topology":
        """The part with the GPUs of these numbers and all network cards."""
        gpus = {f"GPU{index}" for index in indices}
        devices = tuple(device for device in self.devices if device.kind != "gpu" or device.name in gpus)
        names = {device.name for device in devices}
        return replace(
            self, devices=devices, links={pair: kind for pair, kind in self.links.items() if names >= {*pair}}
        )

    def path(self, a: str, b: str) -> Path:
        """The path between two devices, in either order."""
        names = [device.name for device in self.devices]
        for name in (a, b):
            if name not in names:
                raise KeyError(f"no device {name!r} in this topology; it has {', '.join(names) or 'none'}")
        kind = "X" if a == b else self.links.get((a, b)) or self.links[(b, a)]
        nvlinks = int(kind[2:]) if kind.startswith("NV") else 0
        bonded = "1 NVLink" if nvlinks == 1 else f"{nvlinks} bonded NVLinks"
        return Path(kind, nvlinks, MEANINGS["NV" if nvlinks else kind].format(nvlinks=bonded))

    def numa_nodes(self) -> dict[int | None, tuple[str, ...]]:
        """NUMA node → names of its devices, by number; None holds those whose node the text does not tell."""
        nodes = sorted({d.numa for d in self.devices}, key=lambda numa: (numa is None, numa))
        return {numa: tuple(d.name for d in self.devices if d.numa == numa) for numa in nodes}


def parse(text: str) -> Topology:
    """The topology that `nvidia-smi topo -m` prints, as it is or as people paste it; empty where it found no GPU.

    Raises TopologyError, and nothing else, for a text whose links are truncated, damaged or translated, and for any
    other text. The old classes SOC and PSB read as SYS and PIX. An affinity to several nodes of CPUs ("0-1")
    gives no single node.
    """
    note, _, matrix_text = text.partition("\n") if text.startswith(FROM_NVML) else ("", "", text)
    lines = _read_lines(matrix_text)
    header, columns = _main_header(lines)
    if not columns:
        return _no_devices(lines)
    affinities = [name for name in columns if _is_affinity(name)]
    names = [name for name in columns if name not in affinities]
    matrix = _matrix(lines, header, names, affinities)
    order = sorted(names, key=lambda name: (not _is_gpu(name), _natural_key(name)))
    kinds = {(a, b): _checked_kind(a, b, matrix) for i, a in enumerate(order) for b in order[i:]}
    links = {pair: kind for pair, kind in kinds.items() if kind != "X"}
    labels = {m[1]: m[2] for line in lines if line.ended and (m := _NIC_LABEL.fullmatch(line.spaced))}
    devices = [_device(name, matrix[name], labels) for name in order]
    return Topology(tuple(_with_numa_node(device, devices, links) for device in devices), links, note)


@dataclass(frozen=True)
class _Line:
    """A line: its text, the same with one space between cells, and whether a line break ends it."""

    text: str
    spaced: str
    ended: bool

    @property
    def cells(self) -> list[str]:
        return self.spaced.split(" ")

    @property
    def columns(self) -> list[str]:
        """The cells from the first GPU's name on, with the names of affinity columns in one piece."""
        names = {name.lower().replace(" ", ""): name for name in _AFFINITIES}
        found: list[str] = _COLUMN.findall(self.spaced)
        cells = [names.get(re.sub("[ _]", "", cell.lower()), cell) for cell in found]
        first = next((place for place, cell in enumerate(cells) if _is_gpu(cell)), len(cells))
        return cells[first:]


def _read_lines(text: str) -> list[_Line]:
    """The lines that are not blank, without colours; line breaks and tabs may be written out, as in a string."""
    for written, meant in {"\\n": "\n", "\\t": "\t", "^I": "\t"}.items():
        text = text.replace(written, meant)
    text = re.sub(r"\r+\n", "\n", text) if "\n" in text else text.replace("\r", "\n")
    lines = _COLOURS.sub("", _TAG.sub(" ", html.unescape(text))).split("\n")
    spaced = [_BLANKS.sub(" ", line).strip(" ") for line in lines]
    return [_Line(lines[i], spaced[i], i + 1 < len(lines)) for i in range(len(lines)) if spaced[i]]


def _no_devices(lines: list[_Line]) -> Topology:
    """No device where nvidia-smi says so, else an error."""
    if any("No devices were found" in line.spaced for line in lines):
        return Topology((), {})
    if rows := [line.text for line in lines if {"X", "GPU0"} <= {*line.cells}]:
        raise TopologyError(rows[0], "a header with the devices' names above the rows")
    if glued := [line.text for line in lines if re.search("GPU[0-9]", line.text)]:
        raise TopologyError(glued[0], "each device's name as a cell of its own, with blanks or tabs around it")
    raise TopologyError(lines[0].text if lines else "", "a header of GPU names, as `nvidia-smi topo -m` prints it")


def _main_header(lines: list[_Line]) -> tuple[str, list[str]]:
    """The header of the matrix and its columns; drivers print that of a second, empty matrix after the legend."""
    rows = [line for line in lines if any(_is_kind(cell) for cell in line.cells[1:])]
    heads = {a for line in rows for a, b in pairwise(line.cells) if _is_kind(b) and not _is_kind(a)}
    headers = [(line.text, line.columns) for line in lines if line not in rows and line.columns]
    known = [[_is_affinity(c) or bool(_DEVICE.fullmatch(c)) or c in heads for c in columns] for _, columns in headers]
    if not headers:
        return "", []
    best = max(range(len(headers)), key=lambda i: (sum(known[i]), -len(known[i])))
    main, columns = headers[best]
    if unknown := [name for name, is_known in zip(columns, known[best], strict=True) if not is_known]:
        expected = f"in each column a device that has a row, or one of {', '.join(_AFFINITIES)}"
        raise TopologyError(main, f"{expected}, not {_truncate(unknown[0])!r}")
    affinities = [_is_affinity(name) for name in columns]
    if len(set(columns)) < len(columns) or affinities != sorted(affinities):
        raise TopologyError(main, f"each device once, and then, once each, the columns {', '.join(_AFFINITIES)}")
    for (other, cells), all_known in zip(headers, map(all, known), strict=True):
        if all_known and [c for c in columns if c in cells] != cells:
            raise TopologyError(other, f"one header only, and there is also {main!r}")
    return main, columns


@dataclass(frozen=True)
class _Row:
    """A device's line: its text, its cells by column, and the affinity cells whose columns are not told."""

    line: str
    cells: dict[str, str]
    unplaced: str = ""


def _matrix(lines: list[_Line], header: str, names: list[str], affinities: list[str]) -> dict[str, _Row]:
    """Device → its row; foreign lines are left out."""
    matrix: dict[str, _Row] = {}
    last_cells: list[str] = []
    for line in lines:
        start = next((i for i, cell in enumerate(line.cells) if cell in names or _DEVICE.fullmatch(cell)), None)
        if start is None or not any(_is_kind(cell) for cell in line.cells[start + 1 :]):
            continue
        name, *cells = line.cells[start:]
        if "X" not in cells and any(cell.islower() for cell in cells):
            continue  # a sentence: "GPU0 to NIC0 is SYS"
        if name not in names:
            raise TopologyError(line.text, f"one row for each of {', '.join(names)}, not another row {name}")
        ends_in_cpus = not line.ended and len(cells) > len(names) and affinities[-1:] == ["CPU Affinity"]
        if ends_in_cpus and cells[-1] not in last_cells:
            cells[-1] += "…"  # the text ends here, so that "0-6" may be a piece of "0-63"
        row = _row_of_cells(line, name, cells, names, affinities)
        if matrix.setdefault(name, row).cells != row.cells:
            raise TopologyError(line.text, f"one row for each of {', '.join(names)}, not another row {name}")
        last_cells.append(cells[-1])
    if missing := [name for name in names if name not in matrix]:
        raise TopologyError(header, f"a row for each of its devices, but there is none for {', '.join(missing)}")
    return matrix


def _row_of_cells(line: _Line, name: str, cells: list[str], names: list[str], affinities: list[str]) -> _Row:
    if len(cells) < len(names):
        missing = f"row {name}, column {names[len(cells)]} is missing"
        raise TopologyError(line.text, f"a link for each of {', '.join(names)}, but {missing}{_CUT * (not line.ended)}")
    links, tail = dict(zip(names, cells, strict=False)), cells[len(names) :]
    if unknown := next((column for column, cell in links.items() if not _is_kind(cell)), None):
        expected = f"X, NV#, PIX, PXB, PHB, NODE or SYS in row {name}, column {unknown}"
        raise TopologyError(line.text, f"{expected}, not {_truncate(links[unknown])!r}")
    if behind := [cell for cell in tail if _is_kind(cell)]:
        expected = f"a link for each of {', '.join(names)} in row {name}, and then affinities"
        raise TopologyError(line.text, f"{expected}, not another link {behind[0]!r}")
    if len(tail) == len(affinities):
        return _Row(line.text, links | dict(zip(affinities, tail, strict=True)))
    if not line.ended and affinities and name.startswith("GPU"):
        return _Row(line.text, links, unplaced=" ".join([*tail, "…"]))
    # Some drivers leave affinity cells blank. A blank and N/A say the same, so only other cells must have their place.
    at = [cell.strip() for cell in line.text.split("\t")][len(names) + 1 :]
    placed = bool(tail and at and at[0] == tail[0])
    if len(tail) > len(affinities) or set(tail[placed:]) - {"N/A"}:
        return _Row(line.text, links, unplaced=" ".join(tail))
    return _Row(line.text, links | dict(zip(affinities, tail[:placed], strict=False)))


def _is_gpu(name: str) -> bool:
    return name.startswith("GPU") and bool(_DEVICE.fullmatch(name))


def _is_affinity(column: str) -> bool:
    return column.endswith(" Affinity") or column in _AFFINITIES


def _is_kind(cell: str) -> bool:
    return cell in _OLD_KINDS or bool(_KIND.fullmatch(cell))


def _checked_kind(a: str, b: str, rows: dict[str, _Row]) -> str:
    """The class of a pair, the same from both sides, X for a device and itself and for nothing else."""
    line, kind, back = rows[a].line, rows[a].cells[b], rows[b].cells[a]
    if kind != back:
        raise TopologyError(line, f"{a} to {b} as {b} to {a}, which is {back}, not {kind}")
    if (kind == "X") != (a == b):
        raise TopologyError(line, f"X on the diagonal and nowhere else, not {kind!r} in row {a}, column {b}")
    return _OLD_KINDS.get(kind, kind)


def _device(name: str, row: _Row, labels: dict[str, str]) -> Device:
    printed = {c: row.cells[c] for c in _AFFINITIES if row.cells.get(c, "N/A") != "N/A"}
    read = {column: _numbers(text) for column, text in printed.items()}
    unread = [f"{column} {_truncate(printed[column])}" for column, numbers in read.items() if not numbers]
    unread += [f"affinities {_truncate(row.unplaced)}"] if row.unplaced else []
    is_gpu = _is_gpu(name)
    label = "" if is_gpu else labels.get(name, "" if name.startswith("NIC") else name)
    node = _home_node(read.get("NUMA Affinity", ()), read.get("GPU NUMA ID", ()))
    return Device(name, "gpu" if is_gpu else "nic", read.get("CPU Affinity", ()), node, label, "; ".join(unread))


def _home_node(affinity: tuple[int, ...], own: tuple[int, ...]) -> int | None:
    """The one NUMA node of a device that has CPUs; None where its affinity names several, or none.

    Where GPU memory is a NUMA node itself (GH200, GB200: a GPU NUMA ID), a list such as 0,3-9,11-17 holds one node of
    CPUs and nodes of memory only. Firmware numbers the nodes of CPUs first, so the first one is meant. Without a GPU
    NUMA ID, a gap in the list tells the same: nodes of CPUs on one socket are numbered in a row.
    """
    has_gap = bool(affinity) and affinity[-1] - affinity[0] >= len(affinity)
    return affinity[0] if affinity and (len(affinity) == 1 or own or has_gap) else None


def _truncate(text: str) -> str:
    return text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}…"


def _numbers(text: str) -> tuple[int, ...]:
    """ "0-2,8" → (0, 1, 2, 8); () for anything but a rising list."""
    if not _NUMBERS.fullmatch(text):
        return ()
    parts = [[int(n) for n in part.split("-")] for part in text.split(",")]
    rises = all(part[0] <= part[-1] for part in parts) and all(a[-1] < b[0] for a, b in pairwise(parts))
    return tuple(n for part in parts for n in range(part[0], part[-1] + 1)) if rises else ()


def _with_numa_node(device: Device, devices: list[Device], links: dict[tuple[str, str], str]) -> Device:
    """A NIC on the node of the GPUs that it reaches without leaving theirs, where those agree."""
    if device.kind == "gpu":
        return device
    near = {d.numa for d in devices if d.kind == "gpu" and links[(d.name, device.name)] != "SYS"}
    return replace(device, numa=near.pop()) if len(near) == 1 else device


def _natural_key(name: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", name)]
