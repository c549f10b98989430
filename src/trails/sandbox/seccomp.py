"""The system-call filter of a worker, as a classic BPF program.

Allowed calls pass, deadly ones kill the process, all others fail with EPERM: a library
that asks for a socket then reports an ordinary error.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from typing import Final

from trails.sandbox.syscalls import ALLOWED, CONDITIONAL, DEADLY, MACHINES

_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_FAIL: Final = 0x00050000

# Instruction codes: load a word of seccomp_data, jump if equal or if bits are set, return.
_LOAD: Final = 0x20
_EQUAL: Final = 0x15
_BITS: Final = 0x45
_RETURN: Final = 0x06
_NUMBER: Final = 0
_ARCHITECTURE: Final = 4
_ARGUMENTS: Final = 16

_CLONE_THREAD: Final = 0x10000
_FIONBIO: Final = 0x5421
_FIOCLEX: Final = 0x5451
_PR_SET_NAME: Final = 15
_PR_SET_VMA: Final = 0x53564D41

Instruction = tuple[int, int, int, int]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def build(machine: str, pid: int) -> list[Instruction]:
    """The program for a kind of machine and one process."""
    column, architecture = MACHINES[machine]
    # A number of another architecture, or of the x32 table, means other calls: it is in no
    # list below. The former must be caught first.
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for numbers in ALLOWED.values():
        program += _when(numbers[column], [(_RETURN, 0, 0, _ALLOW)])
    for numbers in DEADLY.values():
        program += _when(numbers[column], [(_RETURN, 0, 0, _KILL)])
    for name, numbers in CONDITIONAL.items():
        program += _when(numbers[column], _condition(name, pid))
    return [*program, _fail(errno.EPERM)]


def _when(number: int | None, then: list[Instruction]) -> list[Instruction]:
    """Run instructions, which must end in a return, for one call."""
    return [] if number is None else [(_EQUAL, 0, len(then), number), *then]


def _fail(code: int) -> Instruction:
    return (_RETURN, 0, 0, _FAIL | code)


def _argument(position: int) -> Instruction:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * position)


def _condition(name: str, pid: int) -> list[Instruction]:
    """What decides about a call by its arguments."""
    allow = (_RETURN, 0, 0, _ALLOW)
    refuse = _fail(errno.EPERM)
    if name == "clone3":  # its flags are in memory, out of reach; the libc then uses clone
        return [_fail(errno.ENOSYS)]
    if name == "clone":
        return [_argument(0), (_BITS, 0, 1, _CLONE_THREAD), allow, refuse]
    if name in {"mmap", "mprotect"}:  # all code was loaded before
        return [_argument(2), (_BITS, 0, 1, mmap.PROT_EXEC), refuse, allow]
    if name == "setpriority":  # of the calling thread alone
        return [
            _argument(0),
            (_EQUAL, 0, 3, os.PRIO_PROCESS),
            _argument(1),
            (_EQUAL, 0, 1, 0),
            allow,
            refuse,
        ]
    position, values = {
        "ioctl": (1, (_FIONBIO, _FIOCLEX)),
        "prctl": (0, (_PR_SET_NAME, _PR_SET_VMA)),
        "prlimit64": (0, (0, pid)),
        "tgkill": (0, (pid, pid)),
    }[name]
    return [
        _argument(position),
        (_EQUAL, 1, 0, values[0]),
        (_EQUAL, 0, 1, values[1]),
        allow,
        refuse,
    ]


def restrict(libc: ctypes.CDLL) -> None:
    """Put this process under its filter, for good."""
    program = build(os.uname().machine, os.getpid())
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    header = _Program(len(program), ctypes.cast(code, ctypes.c_void_p))
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(header), 0, 0):
        raise OSError(ctypes.get_errno(), "no system-call filter (seccomp)")
