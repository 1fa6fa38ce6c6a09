"""What srun does for two nodes of a cluster, for two network namespaces of one machine: a station in each.

The namespaces have no names: the kernel removes each, and the link between them, with its last process, however that
ends. Each end of the link is called the same. stdin goes to both stations. Where one ends, or stdin closes, all end.
This file runs as a script of its own and imports the standard library alone.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import IO

LOOK_SECONDS = 0.01
NAMESPACE_SECONDS = 10.0
WAIT_SECONDS = 6.0  # for the stations to end by themselves: each ends its workers first
NODE = 'read -r _ && exec "$@"'  # a node waits for the link, then it becomes the command


class Terminated(Exception):
    """SIGTERM has come."""


def start_node(index: int, addresses: list[str], command: list[str]) -> subprocess.Popen:
    """Start the command in a network namespace of its own, where it waits for the link."""
    task = {"SLURM_PROCID": str(index), "SLURMD_NODENAME": f"namespace{index}"}
    launcher = {"SLURM_LAUNCH_NODE_IPADDR": addresses[1 - index]}
    waiting = ["unshare", "--net", "--", "bash", "-c", NODE, "node"]
    return subprocess.Popen([*waiting, *command], env=os.environ | task | launcher, stdin=subprocess.PIPE)


def connect(nodes: list[subprocess.Popen], addresses: list[str], interface: str) -> None:
    """Put a link between the namespaces of the nodes, once each has its own, and wait until both ends are up."""
    own_namespace = os.readlink("/proc/self/ns/net")
    wait_until(
        lambda: all(os.readlink(f"/proc/{node.pid}/ns/net") != own_namespace for node in nodes), "no namespace was made"
    )
    ends = [["netns", str(node.pid)] for node in nodes]
    link = ["ip", "link", "add", interface, *ends[0], "type", "veth", "peer", "name", interface, *ends[1]]
    subprocess.run(link, check=True)
    for node, address in zip(nodes, addresses, strict=True):
        run_ip(node, "link", "set", "lo", "up")
        run_ip(node, "address", "add", f"{address}/30", "dev", interface)
        run_ip(node, "link", "set", interface, "up")
    wait_until(
        lambda: all("state UP" in run_ip(node, "link", "show", "dev", interface) for node in nodes), "it is down"
    )
    forward_stdin(nodes, b"\n")


def run_ip(node: subprocess.Popen, *command: str) -> str:
    """Run `ip` in the namespace of a node, and return what it printed."""
    enter = ["nsenter", f"--net=/proc/{node.pid}/ns/net", "ip", *command]
    return subprocess.run(enter, check=True, capture_output=True, encoding="utf-8", errors="replace").stdout


def wait_until(is_so: Callable[[], bool], otherwise: str) -> None:
    """Wait until something is so. Raises OSError where that takes too long."""
    deadline = time.monotonic() + NAMESPACE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise OSError(otherwise)
        time.sleep(LOOK_SECONDS)


def forward_stdin(nodes: list[subprocess.Popen], chunk: bytes) -> None:
    """Write to the stdin of every node; one that has ended is noticed by whoever waits for it."""
    for node in nodes:
        with contextlib.suppress(BrokenPipeError):
            stdin_of(node).write(chunk)
            stdin_of(node).flush()


def stdin_of(node: subprocess.Popen) -> IO[bytes]:
    assert node.stdin is not None, "it is a pipe"
    return node.stdin


def serve(nodes: list[subprocess.Popen]) -> int:
    """Hand stdin on until it closes or a node ends; return 1 where one has ended badly, and say which."""
    ends = {os.pidfd_open(node.pid): index for index, node in enumerate(nodes)}
    while True:
        readable, _, _ = select.select([0, *ends], [], [])
        for index in [ends[descriptor] for descriptor in readable if descriptor in ends]:
            status = nodes[index].wait()
            how = f"Exited with exit code {status}" if status >= 0 else signal.strsignal(-status)
            if status:  # as srun says it
                print(f"srun: error: namespace{index}: task {index}: {how}", file=sys.stderr, flush=True)
            return int(bool(status))
        if not (chunk := os.read(0, 2**16)):
            return 0
        forward_stdin(nodes, chunk)


def end_nodes(nodes: list[subprocess.Popen]) -> None:
    """Close every node's stdin, wait for its end, and kill what stays."""
    deadline = time.monotonic() + WAIT_SECONDS
    for node in nodes:
        with contextlib.suppress(BrokenPipeError):
            stdin_of(node).close()
    for node in nodes:
        try:
            node.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()


def main(interface: str, addresses: list[str], command: list[str]) -> int:
    """Run the command in two namespaces to its end; return 0 where all ended well."""

    def end_soon(number: int, frame: object) -> None:
        raise Terminated

    nodes: list[subprocess.Popen] = []
    signal.signal(signal.SIGTERM, end_soon)
    try:
        nodes += [start_node(index, addresses, command) for index in range(2)]
        connect(nodes, addresses, interface)
        return serve(nodes)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"srun: error: the namespaces cannot be connected: {error}", file=sys.stderr, flush=True)
        return 1
    except Terminated:
        return 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_nodes(nodes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2].split(","), sys.argv[3:]))
