"""A node's network cards and the rate of their links, as the kernel tells it in /sys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from labkit.node.host import numa_node, system_text

LENT_LINK = "labkit-link"  # each end of the link between two namespaces that labkit itself has made
RATE = re.compile(r"([\d.]+) Gb/sec")


@dataclass(frozen=True)
class NetworkCard:
    """A port of a network card: its name, kind ("Ethernet", "InfiniBand"), and its link's rate in Gbit/s.

    A link that is down, and a virtual interface, have no rate. numa: the node that the card is close to.
    """

    name: str
    kind: str
    gbit_per_s: float | None
    numa: int | None = None


def cards(folder: Path = Path("/sys/class")) -> tuple[NetworkCard, ...]:
    """Return the ports of the physical cards: network interfaces by name, then InfiniBand's (and RoCE's) by device."""
    interfaces = [
        NetworkCard(each.name, "Ethernet", _ethernet(each), numa_node(each / "device"))
        for each in _physical_devices(folder / "net")
    ]
    ports = sorted((folder / "infiniband").glob("*/ports/*"))
    return (*interfaces, *(_infiniband_port(port) for port in ports))


def rate_of(interface: str, folder: Path = Path("/sys/class")) -> float | None:
    """Return the rate of the link that an interface uses, in Gbit/s; None where the kernel does not tell it.

    An interface over InfiniBand (ib0) is served by a port of the device below it.
    """
    if (rate := _ethernet(folder / "net" / interface)) is not None:
        return rate
    below = folder / "net" / interface / "device" / "infiniband"
    rates = [card.gbit_per_s for card in map(_infiniband_port, sorted(below.glob("*/ports/*"))) if card.gbit_per_s]
    return max(rates, default=None)


def _physical_devices(folder: Path) -> list[Path]:
    return sorted(each for each in folder.glob("*") if (each / "device").exists())


def _ethernet(interface: Path) -> float | None:
    """Return an interface's rate; the kernel says -1, or refuses to say, where there is none."""
    try:
        mbit_per_s = int((interface / "speed").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return mbit_per_s / 1000 if mbit_per_s > 0 else None


def _infiniband_port(port: Path) -> NetworkCard:
    """Return a port of InfiniBand: its rate reads "400 Gb/sec (4X NDR)"."""
    device = port.parent.parent
    rate = RATE.search(system_text(port / "rate", ""))
    up = "ACTIVE" in system_text(port / "state", "")
    kind = system_text(port / "link_layer") or "InfiniBand"
    return NetworkCard(
        f"{device.name}:{port.name}", kind, float(rate[1]) if rate and up else None, numa_node(device / "device")
    )
