"""What a confined process runs first: it takes its limits, loses what it may not see, and becomes the command.

Started by its path; imports the standard library alone. Standard input holds the request as JSON: `files` (name → text)
go into the folder `answer`; `command` is what runs then. In `root` it builds the file system that the process sees: the
paths that are to be shown, read-only, and an empty /tmp. It needs namespaces of its own for that (unshare(1)).
"""

import ctypes
import errno
import json
import os
import re
import resource
import signal
import struct
import subprocess
import sys

ANSWER = "answer"  # the folder of the request's files, in the root
DEVICES = ("null", "zero", "random", "urandom")
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_SET_SECCOMP, SECCOMP_FILTER = 1, 38, 24, 22, 2
AF_VSOCK = 40  # sockets to the host of a virtual machine, which no network namespace holds back
# By machine: its number in Linux's audit.h, that of socket, and those of what is refused: memory that is counted for no
# process (memfd_create, memfd_secret, shmget, msgget), and the grader's keyring (add_key, request_key, keyctl).
REFUSED_CALLS = {
    "x86_64": (0xC000003E, 41, (319, 447, 29, 68, 248, 249, 250)),
    "aarch64": (0xC00000B7, 198, (279, 447, 194, 186, 217, 218, 219)),
}


def main() -> None:
    """Prepare this process as the request says, and run its command in its place."""
    request = json.load(sys.stdin)
    os.umask(0o022)  # another user is to find its way through the folders made here
    root = os.path.realpath(request["root"])  # as the kernel names what is mounted there
    _build(root, request["paths"])
    _write(f"{root}/{ANSWER}", request["files"])
    os.chroot(root)
    os.chdir("/tmp")
    for name, most in request["limits"].items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    _give_up_rights(request["user"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execv(request["command"][0], request["command"])


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
    _mount("-t", "tmpfs", "-o", "mode=755,size=256m,nosuid,nodev", "labkit", root)
    for path, what in paths:
        inside = root + path
        if what == "hide":
            if os.path.isdir(inside):
                _mount("-t", "tmpfs", "-o", "mode=755,size=1m,nosuid,nodev", "labkit", inside)
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


def _give_up_rights(user: int | None) -> None:
    """Drop every capability and the way to new ones; become `user`, where one is given; end with the process above."""
    prctl = ctypes.CDLL(None).prctl
    capability = 0
    while prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # unshare has set it, and setuid(2) clears it
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _refuse_calls(prctl)


def _refuse_calls(prctl) -> None:
    """Have the kernel refuse the calls that no namespace and no limit holds back.

    The filter is a program of the kernel's: each step has a code, how many steps to skip if it holds or not, a number.
    """
    if os.uname().machine not in REFUSED_CALLS:
        return
    machine, socket, calls = REFUSED_CALLS[os.uname().machine]
    load, equal, least, give, allow, refuse = 0x20, 0x15, 0x35, 0x06, 0x7FFF0000, 0x00050000 | errno.EPERM
    last = 8 + len(calls)  # the step that refuses
    steps = [(load, 0, 0, 4), (equal, 0, last - 2, machine), (load, 0, 0, 0)]
    steps += [(least, last - 4, 0, 0x40000000)]  # x32: other numbers for the same calls
    steps += [(equal, last - 5 - at, 0, call) for at, call in enumerate(calls)]
    steps += [(equal, 0, 2, socket), (load, 0, 0, 16), (equal, 1, 0, AF_VSOCK)]  # 16: a call's first argument
    program = b"".join(struct.pack("=HBBI", *step) for step in [*steps, (give, 0, 0, allow), (give, 0, 0, refuse)])
    kept = ctypes.create_string_buffer(program)
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(kept))
    prctl(PR_SET_SECCOMP, SECCOMP_FILTER, header, 0, 0)


if __name__ == "__main__":
    main()
