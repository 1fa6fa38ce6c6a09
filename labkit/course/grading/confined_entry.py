"""What a confined process runs first: it takes its limits, loses what it may not see, and becomes the command.

Started by its path; imports the standard library alone. Standard input holds the request as JSON: `files` (name → text)
go into the folder `answer`; `command` is what runs then, and prints to the descriptor `printed`. In `root` it builds
the file system that the process sees: the paths that are to be shown, read-only, and an empty /tmp. It needs namespaces
of its own for that (unshare(1)), and stays as their first process, with which all others end.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import resource
import socket
import struct
import subprocess
import sys

ANSWER = "answer"  # the folder of the request's files, in the root
DEVICES = ("null", "zero", "random", "urandom")
FILES = 20_000  # and folders, in a file system of memory: each takes 1 KiB of the kernel's
SIOCSIFFLAGS, IFF_UP, AF_INET, AF_NETLINK, IPPROTO_TCP = 0x8914, 1, 2, 16, 6
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_SET_SECCOMP, SECCOMP_FILTER = 4, 38, 24, 22, 2
# What is refused, by its number on x86_64 and aarch64: memory that is counted for no process, or stays when none maps
# it (buffers of sockets, System V's, files without a name, rings, what pipes hold of pages), the grader's keyring, and
# sockets to the host of a virtual machine, which no network namespace holds back.
REFUSED_CALLS = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "io_uring_setup": (425, 425),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "vmsplice": (278, 75),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}
# And these where the bits `mask` of one argument are `value`: (numbers, argument, mask, value).
REFUSED_ARGUMENTS = {
    "mmap, MAP_SHARED": ((9, 222), 3, 1, 1),  # its pages stay after MADV_DONTNEED, and no process has them
    "fcntl, F_SETLK": ((72, 25), 1, 0xFFFFFFFF, 6),  # a lock of one byte takes 200 of the kernel's
    "fcntl, F_SETLKW": ((72, 25), 1, 0xFFFFFFFF, 7),
    "fcntl, F_OFD_SETLK": ((72, 25), 1, 0xFFFFFFFF, 37),
    "fcntl, F_OFD_SETLKW": ((72, 25), 1, 0xFFFFFFFF, 38),
}
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # which of the numbers; its own, in Linux's audit.h


def main() -> None:
    """Prepare this process as the request says, run its command in another one, and end as that does."""
    request = json.load(sys.stdin)
    if request["group"]:
        with contextlib.suppress(OSError), open(request["group"], "w", encoding="utf-8") as group:
            group.write("0")  # this process
    os.umask(0o022)  # another user is to find its way through the folders made here
    if request["loopback"]:
        _start_loopback()
    root = os.path.realpath(request["root"])  # as the kernel names what is mounted there
    _build(root, request["paths"])
    _write(f"{root}/{ANSWER}", request["files"])
    os.chroot(root)
    os.chdir("/tmp")
    _stay_first()
    for name, most in request["limits"].items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    _give_up_rights(request["user"], request["loopback"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(request["printed"], 1)
    os.dup2(request["printed"], 2)
    os.execv(request["command"][0], request["command"])


def _start_loopback() -> None:
    """Start `lo` of this network, which has nothing else (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def _stay_first() -> None:
    """Return in a new process; this one waits for its end. unshare(1) has it killed where the grader ends.

    An answer may undo what prctl(2) does to itself, and reaches no process that cannot be dumped.
    """
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    if (answer := os.fork()) == 0:
        return
    while True:
        pid, status = os.wait()  # for what has lost its parent, too
        if pid == answer:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _write(folder: str, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)


def _build(root: str, paths: list[list[str]]) -> None:
    """Fill the root: each of `paths` is [path, "show"] or [path, "hide"], a folder before what it holds.

    A path to show is a link, or has no link on its way. It may lie anywhere, also below /tmp or /dev.
    """
    _mount("-t", "tmpfs", "-o", f"mode=755,size=256m,nr_inodes={FILES},nosuid,nodev", "labkit", root)
    for path, what in paths:
        inside = root + path
        if what == "hide":
            if os.path.isdir(inside):
                _mount("-t", "tmpfs", "-o", "mode=755,size=1m,nr_inodes=100,nosuid,nodev", "labkit", inside)
            continue
        os.makedirs(os.path.dirname(inside), exist_ok=True)
        if os.path.islink(path):
            if not os.path.lexists(inside):
                os.symlink(os.readlink(path), inside)
        elif os.path.isdir(path):
            os.makedirs(inside, exist_ok=True)
            _mount("--rbind", path, inside)
            _make_read_only(inside)
        elif not os.path.lexists(inside):
            _bind_file(path, inside)
            _make_read_only(inside)
    os.makedirs(f"{root}/dev", exist_ok=True)
    for name in DEVICES:
        _bind_file(f"/dev/{name}", f"{root}/dev/{name}")
    os.makedirs(f"{root}/proc", exist_ok=True)
    subprocess.run(["mount", "-t", "proc", "proc", f"{root}/proc"], stderr=subprocess.DEVNULL)  # containers forbid it
    os.makedirs(f"{root}/tmp", exist_ok=True)
    os.chmod(f"{root}/tmp", 0o1777)


def _bind_file(path: str, inside: str) -> None:
    open(inside, "wb").close()
    _mount("--bind", path, inside)


def _make_read_only(place: str) -> None:
    """Make every mount at and below a place read-only; its other options stay, which a user namespace may not change.

    mountinfo writes a blank, a backslash and the like as \\ and three octal digits, and every other byte as it is.
    """
    with open("/proc/self/mountinfo", "rb") as file:
        lines = [line.split() for line in file]
    done = False
    for fields in lines:
        mount = os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), fields[4]))
        if mount == place or mount.startswith(f"{place}/"):
            options = ",".join("ro" if option == "rw" else option for option in fields[5].decode().split(","))
            _mount("-o", f"remount,bind,{options}", mount)
            done = True
    if not done:
        sys.exit(f"{place} could not be made read-only")


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode:
        sys.exit(done.stderr.strip().partition("\n")[0] or f"mount {' '.join(arguments)}: status {done.returncode}")


def _give_up_rights(user: int | None, loopback: bool) -> None:
    """Drop every capability and the way to new ones; become `user`, where one is given."""
    prctl = ctypes.CDLL(None).prctl
    capability = 0
    while prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _refuse_calls(prctl, loopback)


def _refuse_calls(prctl, loopback: bool) -> None:
    """Have the kernel refuse the calls that no namespace and no limit holds back.

    With `loopback` it allows sockets of IPv4, and those that ask for this network's interfaces: gloo needs both.

    The filter is a program of the kernel's: each step has a code, how many steps to skip if it holds or not, a number.
    """
    if os.uname().machine not in MACHINES:
        return
    column, machine = MACHINES[os.uname().machine]
    load, equal, least, mask_with, end_with = 0x20, 0x15, 0x35, 0x54, 0x06
    allow, refuse = (end_with, 0, 0, 0x7FFF0000), (end_with, 0, 0, 0x00050000 | errno.EPERM)
    call, argument = (load, 0, 0, 0), 16  # where they lie in what the program is given; an argument has 8 bytes
    steps = [(load, 0, 0, 4), (equal, 1, 0, machine), refuse]
    steps += [call, (least, 0, 1, 0x40000000), refuse]  # x32: other numbers for the same calls
    for name, numbers in REFUSED_CALLS.items():
        if not (loopback and name == "socket"):
            steps += [(equal, 0, 1, numbers[column]), refuse]
    domain, protocol = (load, 0, 0, argument), (load, 0, 0, argument + 16)
    steps += [call, (equal, 0, 8, REFUSED_CALLS["socket"][column])]
    steps += [domain, (equal, 2, 0, AF_INET), (equal, 1, 0, AF_NETLINK), refuse]
    steps += [protocol, (equal, 2, 0, 0), (equal, 1, 0, IPPROTO_TCP), refuse]
    for numbers, at, mask, value in REFUSED_ARGUMENTS.values():
        steps += [call, (equal, 0, 4, numbers[column]), (load, 0, 0, argument + 8 * at), (mask_with, 0, 0, mask)]
        steps += [(equal, 0, 1, value), refuse]
    program = b"".join(struct.pack("=HBBI", *step) for step in [*steps, allow])
    kept = ctypes.create_string_buffer(program)
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(kept))
    prctl(PR_SET_SECCOMP, SECCOMP_FILTER, header, 0, 0)


if __name__ == "__main__":
    main()
