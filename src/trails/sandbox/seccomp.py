"""The system-call filter of a worker, as a classic BPF program.

Allowed calls pass, dangerous ones kill the process, and all others fail with EPERM, so a
library that asks for a socket reports an ordinary error. A worker may read its socket, run
Oxigraph on a folder and start threads; it can't create sockets or processes, or change
permissions. The calls are listed by number for each architecture.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from typing import Final

MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""By the machine name of ``uname``: the column below, and the architecture's audit number."""

ALLOWED: Final[dict[str, tuple[int | None, int | None]]] = {
    "access": (21, None),
    "brk": (12, 214),
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "close": (3, 57),
    "close_range": (436, 436),
    "dup": (32, 23),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "fadvise64": (221, 223),
    "fallocate": (285, 47),
    "fcntl": (72, 25),
    "fdatasync": (75, 83),
    "flock": (73, 32),
    "fstat": (5, 80),
    "fstatfs": (138, 44),
    "fsync": (74, 82),
    "ftruncate": (77, 46),
    "futex": (202, 98),
    "get_robust_list": (274, 100),
    "getcwd": (79, 17),
    "getdents64": (217, 61),
    "getegid": (108, 177),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getpriority": (140, 141),
    "getrandom": (318, 278),
    "getresgid": (120, 150),
    "getresuid": (118, 148),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "getuid": (102, 174),
    "link": (86, None),
    "linkat": (265, 37),
    "lseek": (8, 62),
    "lstat": (6, None),
    "madvise": (28, 233),
    "membarrier": (324, 283),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "mremap": (25, 216),
    "msync": (26, 227),
    "munmap": (11, 215),
    "nanosleep": (35, 101),
    "newfstatat": (262, 79),
    "open": (2, None),
    "openat": (257, 56),
    "pipe2": (293, 59),
    "poll": (7, None),
    "ppoll": (271, 73),
    "pread64": (17, 67),
    "preadv": (295, 69),
    "pwrite64": (18, 68),
    "pwritev": (296, 70),
    "read": (0, 63),
    "readahead": (187, 213),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "readv": (19, 65),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "restart_syscall": (219, 128),
    "rmdir": (84, None),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigtimedwait": (128, 137),
    "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126),
    "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "sched_yield": (24, 124),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "sigaltstack": (131, 132),
    "stat": (4, None),
    "statfs": (137, 43),
    "statx": (332, 291),
    "sync_file_range": (277, 84),
    "sysinfo": (99, 179),
    "time": (201, None),
    "times": (100, 153),
    "truncate": (76, 45),
    "uname": (63, 160),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "write": (1, 64),
    "writev": (20, 66),
}

CONDITIONAL: Final[dict[str, tuple[int | None, int | None]]] = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "ioctl": (16, 29),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "setpriority": (141, 140),
    "tgkill": (234, 131),
}
"""Calls that are allowed for some arguments, which the filter checks."""

DEADLY: Final[dict[str, tuple[int | None, int | None]]] = {
    "bpf": (321, 280),
    "execve": (59, 221),
    "execveat": (322, 281),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "setns": (308, 268),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
"""Calls that no query makes: a process that makes one has been taken over, and is killed."""


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
    """Build the program for an architecture and one process."""
    column, architecture = MACHINES[machine]
    # Numbers of another architecture or of the x32 table mean other calls, and are in no
    # list below. Another architecture must be rejected first.
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
    """Return the instructions that check a call's arguments."""
    allow = (_RETURN, 0, 0, _ALLOW)
    refuse = _fail(errno.EPERM)
    if name == "clone3":  # a filter cannot read its flags; libc falls back to clone
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
    """Install the filter in this process, permanently."""
    program = build(os.uname().machine, os.getpid())
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    header = _Program(len(program), ctypes.cast(code, ctypes.c_void_p))
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(header), 0, 0):
        raise OSError(ctypes.get_errno(), "no system-call filter (seccomp)")
