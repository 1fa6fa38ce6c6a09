"""Xid and SXid messages of the kernel log: which GPU or NVSwitch, which code, how often, and whether it is a fault.

xids.csv holds NVIDIA's catalog in short (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html). A code
is a fault where it asks at once for a reset, a reboot or a check of the parts (48, 74: where its workflow does). What
an application causes, or the GPU repairs by itself, is none. SXids, and Xids 144 to 150, say whether they are fatal.
"""

from __future__ import annotations

import csv
import functools
import os
import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

KMSG = Path("/dev/kmsg")
COMMANDS = (("journalctl", "--dmesg", "--no-pager", "--quiet", "--output=short-monotonic"), ("dmesg",))
LIMIT_S = 10.0  # of one command
_STAMP, _BUS = r"^\[ *([0-9]+\.[0-9]+)\]", r"([0-9a-fA-F]{4,}(?::[0-9a-fA-F]{2}){2})"
_FATAL = re.compile(r"\bFatal\b")  # and not "Nonfatal"
_RECORD = re.compile(r"^([0-9]+),[0-9]+,([0-9]+),[^;\n]*;(.*)$", re.MULTILINE)
_XID = re.compile(rf"{_STAMP}.*?NVRM: Xid \((?:PCI:)?{_BUS}[^)]*\): ([0-9]+)(.*)$", re.MULTILINE)
_SXID = re.compile(
    rf"{_STAMP}.*?nvidia-nvswitch([0-9]+): SXid \(PCI:{_BUS}[^)]*\): ([0-9]+), (Fatal|Non-fatal), (.*)$", re.MULTILINE
)
_FALLEN = re.compile(  # the driver's message without a code, in several lines
    rf"{_STAMP}.*?NVRM: The NVIDIA GPU {_BUS}(?:(?!The NVIDIA GPU)[\s\S]){{0,200}}?fallen off the bus", re.MULTILINE
)


@dataclass(frozen=True)
class Xid:
    """Messages of one code about one device; one event may write several.

    bus: domain, bus and device. device: in words. what: the code and its meaning. seconds: since boot, of each message.
    """

    bus: tuple[int, ...]
    device: str
    what: str
    is_fault: bool
    seconds: tuple[float, ...]

    @property
    def how_often(self) -> str:
        """Return how often it came, and when: "2 times since boot, last 85 min after boot"."""
        last, count = max(self.seconds), len(self.seconds)
        after = f"{last / 60:.0f} min" if last < 7200 else f"{last / 3600:.0f} h"
        return f"{count} time{'s' * (count != 1)} since boot, last {after} after boot"


def xids(log: str) -> list[Xid]:
    """Return the messages of a kernel log whose lines start with seconds since boot: "[   12.5] text"."""
    times: dict[tuple[tuple[int, ...], str, str, bool], list[float]] = defaultdict(list)
    for at, bus, code, text in _XID.findall(log):
        times[bus_address(bus), f"PCI {bus}", *_meaning(code, text)].append(float(at))
    for at, bus in _FALLEN.findall(log):
        times[bus_address(bus), f"PCI {bus}", "fallen off the bus", True].append(float(at))
    for at, switch, bus, code, severity, text in _SXID.findall(log):
        device, what = f"NVSwitch {switch} (PCI {bus})", f"SXid {code} ({text.strip()})"
        times[bus_address(bus), device, what, severity == "Fatal"].append(float(at))
    return [Xid(bus, device, what, is_fault, tuple(at)) for (bus, device, what, is_fault), at in times.items()]


def _meaning(code: str, text: str) -> tuple[str, bool]:
    """Return a code in words, and whether it is a fault."""
    kind, meaning = _catalog().get(code, ("remark", "no fault by itself"))
    by = "application: " if kind == "application" else ""
    return f"Xid {code} ({by}{meaning})", kind == "fault" or (kind == "by text" and bool(_FATAL.search(text)))


@functools.cache
def _catalog() -> dict[str, tuple[str, str]]:
    """Return kind and meaning by code; a fault "by text" is one whose message calls it fatal."""
    with Path(__file__).with_name("xids.csv").open(encoding="utf-8", newline="") as file:
        return {row["code"]: (row["kind"], row["meaning"]) for row in csv.DictReader(file)}


def bus_address(bus: str) -> tuple[int, ...]:
    """Return domain, bus and device of a PCI address: NVML writes eight digits of domain, the kernel four."""
    return tuple(int(part, 16) for part in bus.partition(".")[0].split(":"))


def kernel_log() -> str | None:
    """Return the kernel's messages, each line "[seconds since boot] text"; None where this user may read none."""
    for read in (_kmsg, *(lambda command=command: _printed(command) for command in COMMANDS)):
        if re.search(_STAMP, text := read(), re.MULTILINE):
            return text
    return None


def _kmsg() -> str:
    """Return the messages of the kernel itself (facility 0): programs may write to the same device."""
    parts = []
    try:
        device = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        while True:
            try:
                parts.append(os.read(device, 2**16))
            except BrokenPipeError:  # messages were overwritten: the next read goes on after them
                continue
            if not parts[-1]:
                break
    except OSError:  # BlockingIOError after the last message
        pass
    finally:
        os.close(device)
    records = _RECORD.findall(b"".join(parts).decode("utf-8", "replace"))
    kept = ((int(at) / 1e6, text.replace(r"\x0a", "\n")) for priority, at, text in records if int(priority) < 8)
    return "".join(f"[{at:.6f}] {text}\n" for at, text in kept)


def _printed(command: tuple[str, ...]) -> str:
    """Return what a command prints; "" where it is missing, fails or takes too long."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=LIMIT_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
