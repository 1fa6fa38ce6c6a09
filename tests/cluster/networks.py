"""The networks between the two nodes of the tests' cluster, each of which can be cut.

The second node is a network namespace. A link leads there for Slurm's own traffic, and a bridge for that of workers. An
interface has one name on both nodes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess


class Networks:
    """Made at once; `made` tells whether the kernel allowed it. Attributes: `namespace`, `link`, `wire` (names).

    `addresses` are those of both nodes on the link; the wires lead to the bridge.
    """

    def __init__(self):
        number = os.getpid() % 2**14  # other tests on this machine have a cluster and networks of their own
        self.namespace, self.link, self.wire = f"labkit-{os.getpid()}", f"lab{number}", f"wire{number}"
        self.bridge, self.ports = f"bridge{number}", [f"port{number}n{node}" for node in (1, 2)]
        third, fourth = divmod(number, 2**8)
        self.addresses = [f"10.{64 + third}.{fourth}.{host}" for host in (1, 2)]
        workers = [f"10.{128 + third}.{fourth}.{host}" for host in (1, 2)]
        inside = ["ip", "-n", self.namespace]
        commands = [
            ["ip", "netns", "add", self.namespace],
            [*inside, "link", "set", "lo", "up"],
            ["ip", "link", "add", self.link, "type", "veth", "peer", "name", self.link, "netns", self.namespace],
            ["ip", "link", "add", self.bridge, "type", "bridge"],
            ["ip", "link", "add", self.ports[0], "type", "veth", "peer", "name", self.wire],
            ["ip", "link", "add", self.ports[1], "type", "veth", "peer", "name", self.wire, "netns", self.namespace],
            *(["ip", "link", "set", port, "master", self.bridge, "up"] for port in self.ports),
            ["ip", "link", "set", self.bridge, "up"],
        ]
        for name, (first, second) in ((self.link, self.addresses), (self.wire, workers)):
            commands += [
                ["ip", "address", "add", f"{first}/24", "dev", name],
                [*inside, "address", "add", f"{second}/24", "dev", name],
                ["ip", "link", "set", name, "up"],
                [*inside, "link", "set", name, "up"],
            ]
        self.made = all(_done(*command) for command in commands)

    def cut_link(self, cut: bool = True) -> None:
        """Pull the link's plug at the second node, or put it in: Slurm's traffic, and that of workers that use it."""
        assert _done("ip", "-n", self.namespace, "link", "set", self.link, "down" if cut else "up")

    def cut_workers(self, cut: bool = True) -> None:
        """Have the bridge forward nothing, as a broken switch does, or mend it; all interfaces stay up."""
        assert _done("bridge", "link", "set", "dev", self.ports[1], "state", "disabled" if cut else "forwarding")

    def remove(self) -> None:
        """Remove all; what was not made is not there."""
        for name in (self.link, *self.ports, self.bridge):
            _done("ip", "link", "delete", name)
        _done("ip", "netns", "delete", self.namespace)


def _done(*command: str) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0
    return False
