"""refuse.py ERRNO NUMBER COMMAND…: run a command in which this system call fails with ERRNO (seccomp(2), x86-64)."""

import ctypes
import os
import struct
import sys

LOAD, JUMP_IF_EQUAL, RETURN, ALLOW, FAIL = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_void_p))


def refuse(number: int, error: int) -> None:
    """Have the system call of this number fail in this process and all that it starts."""
    steps = [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, FAIL | error), (RETURN, 0, 0, ALLOW)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    rules, libc = Filter(len(steps), ctypes.addressof(program)), ctypes.CDLL(None)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(rules), 0, 0) == 0


if __name__ == "__main__":
    refuse(int(sys.argv[2]), int(sys.argv[1]))
    os.execvp(sys.argv[3], sys.argv[3:])
