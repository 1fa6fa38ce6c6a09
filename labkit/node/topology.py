"""`nvidia-smi topo -m` as links: the path between any two devices, and which NUMA node each is on.

The text is a matrix of devices with affinity columns and a legend; drivers vary in all three (tests/fixtures/topology
holds the forms). Links are read strictly: what could be read two ways, or ends in the middle, is a TopologyError. An
affinity or a label that cannot be read stays unknown and costs no link; `Device.unread` quotes the affinity.
"""

import re
from dataclasses import dataclass, replace
from itertools import pairwise

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_DEVICE = re.compile(r"GPU[0-9]{1,3}|NIC[0-9]{1,3}|[a-z][a-z0-9]*(?:_[a-z]+)?_[0-9]{1,3}")
_KIND = re.compile(r"X|NV[1-9][0-9]?|PIX|PXB|PHB|NODE|SYS")
_NUMBERS = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*")
_NIC_LABEL = re.compile(r"(NIC[0-9]{1,3}) *: *([A-Za-z0-9_.:-]+)")
_MOST_QUOTED = 60  # characters
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
    """Devices, GPUs first and by number, and the class of each pair in `links[(a, b)]`, a before b in that order."""

    devices: tuple[Device, ...]
    links: dict[tuple[str, str], str]

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
    """The topology that `nvidia-smi topo -m` prints, on a terminal or through a pipe; empty where it found no GPU.

    Raises TopologyError, and nothing else, for a text whose links are truncated, damaged or translated, and for any
    other text. The old class SOC reads as SYS. An affinity to several nodes of CPUs ("0-1") gives no single node.
    """
    lines = _COLOURS.sub("", text.replace("\r\n", "\n")).split("\n")
    headers, rows, labels = _sorted_lines(lines)
    if not headers and not rows:
        return _no_devices(lines)
    header, columns = _main_header(headers, rows)
    names = [name for name in columns if name not in _AFFINITIES]
    matrix = _matrix(rows, columns, names, header)
    order = sorted(names, key=lambda name: (not name.startswith("GPU"), _natural_key(name)))
    kinds = {(a, b): _checked_kind(a, b, matrix) for i, a in enumerate(order) for b in order[i:]}
    links = {pair: kind for pair, kind in kinds.items() if kind != "X"}
    devices = [_device(name, matrix[name], labels) for name in order]
    return Topology(tuple(_with_numa_node(device, devices, links) for device in devices), links)


def _sorted_lines(lines: list[str]) -> tuple[list, list, dict[str, str]]:
    """Header lines and matrix rows, each as (line, cells), and NIC labels; legend and foreign lines are left out."""
    headers, rows, labels = [], [], {}
    for number, line in enumerate(lines, 1):
        cells = [c for c in (c.strip(" ") for c in re.split(r"\t| {2,}", line)) if c]
        is_label = re.match(r" *NIC[0-9]+ *:", line)
        if not is_label and not (cells and _DEVICE.fullmatch(cells[0])):
            continue
        ends_here = number == len(lines)  # without a line break, so it may be cut short
        if is_label:
            match = None if ends_here else _NIC_LABEL.fullmatch(line.strip(" \t"))
            labels |= {match[1]: match[2]} if match else {}
        elif ends_here:
            raise TopologyError(line, "a line break after it: the text ends here and may be cut short")
        elif any(_is_kind(c) for c in cells):
            rows.append((line, cells))
        else:
            headers.append((line, cells))
    return headers, rows, labels


def _no_devices(lines: list[str]) -> Topology:
    """No device where nvidia-smi says so, else an error."""
    nonempty_lines = [line for line in lines if line.strip()]
    if any(line.strip() == "No devices were found" for line in nonempty_lines):
        return Topology((), {})
    raise TopologyError(
        nonempty_lines[0] if nonempty_lines else "", "a header of GPU names, as `nvidia-smi topo -m` prints it"
    )


def _main_header(headers: list, rows: list) -> tuple[str, list[str]]:
    """The header of the matrix; drivers print that of a second, empty matrix after the legend."""
    if not headers:
        raise TopologyError(rows[0][0], "a header with the devices' names above the rows")
    for line, cells in headers:
        unknown = [c for c in cells if not _DEVICE.fullmatch(c) and c not in _AFFINITIES]
        if unknown or len(set(cells)) < len(cells):
            raise TopologyError(line, f"each device once, and the columns {', '.join(_AFFINITIES)}")
    line, columns = max(headers, key=lambda header: len(header[1]))
    for other, cells in headers:
        if [c for c in columns if c in cells] != cells:
            raise TopologyError(other, f"one header only, and there is also {line!r}")
    return line, columns


@dataclass(frozen=True)
class _Row:
    """A device's line: its text, its cells by column, and the affinity cells whose columns are not told."""

    line: str
    cells: dict[str, str]
    unplaced: str = ""


def _matrix(rows: list, columns: list[str], names: list[str], header: str) -> dict[str, _Row]:
    """Device → its row."""
    matrix = {}
    for line, (name, *cells) in rows:
        if name not in names or name in matrix:
            raise TopologyError(line, f"one row for each of {', '.join(names)}")
        matrix[name] = _row_of_cells(line, cells, columns, names)
    missing = [name for name in names if name not in matrix]
    if missing:
        raise TopologyError(header, f"a row for each of its devices, but there is none for {', '.join(missing)}")
    return matrix


def _row_of_cells(line: str, cells: list[str], columns: list[str], names: list[str]) -> _Row:
    if len(cells) == len(columns):
        return _Row(line, dict(zip(columns, cells, strict=True)))
    if len(cells) == len(names):
        return _Row(line, dict(zip(names, cells, strict=True)))
    links, tail = dict(zip(names, cells, strict=False)), cells[len(names) :]
    if not tail or columns[: len(names)] != names or any(_is_kind(cell) for cell in tail):
        raise TopologyError(line, f"a cell for each of the columns {', '.join(columns)}")
    # Some drivers leave affinity cells blank. A blank and N/A say the same, so only other cells must have their place.
    at = [cell.strip() for cell in line.split("\t")][len(names) + 1 :]
    placed = bool(at and at[0] == tail[0])
    if len(cells) > len(columns) or set(tail[placed:]) - {"N/A"}:
        return _Row(line, links, unplaced=" ".join(tail))
    return _Row(line, links | dict(zip(columns[len(names) :], tail[:placed], strict=False)))


def _is_kind(cell: str) -> bool:
    return cell == "SOC" or bool(_KIND.fullmatch(cell))


def _checked_kind(a: str, b: str, rows: dict[str, _Row]) -> str:
    """The class of a pair, the same from both sides, X for a device and itself and for nothing else."""
    line, kind, back = rows[a].line, rows[a].cells[b], rows[b].cells[a]
    if kind != back:
        raise TopologyError(line, f"{a} to {b} as {b} to {a}, which is {back}")
    if not _is_kind(kind) or (kind == "X") != (a == b):
        raise TopologyError(line, f"X on the diagonal and NV#, PIX, PXB, PHB, NODE or SYS elsewhere, not {kind!r}")
    return "SYS" if kind == "SOC" else kind


def _device(name: str, row: _Row, labels: dict[str, str]) -> Device:
    printed = {c: row.cells[c] for c in _AFFINITIES if row.cells.get(c, "N/A") != "N/A"}
    if shifted := [text for text in printed.values() if _is_kind(text)]:
        raise TopologyError(row.line, f"links before the affinities, not {shifted[0]!r} among the affinities")
    read = {column: _numbers(text) for column, text in printed.items()}
    unread = [f"{column} {_truncate(printed[column])}" for column, numbers in read.items() if not numbers]
    unread += [f"affinities {_truncate(row.unplaced)}"] if row.unplaced else []
    is_gpu = name.startswith("GPU")
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
