"""Confine a process before it reads anything untrusted.

``drop_root`` runs first, in the zygote, after all imports; ``confine`` runs in each worker,
before it opens its store. Neither can be undone. Landlock lets a worker use the files of its own
folder and no others; the system-call filter is in ``seccomp``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
from typing import Final

import msgspec

from trails.sandbox import seccomp
from trails.sandbox.seccomp import MACHINES

NOBODY: Final = 65534
MAX_FILE: Final = 1 << 30
MAX_DESCRIPTORS: Final = 1024

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38


class Confinement(msgspec.Struct, frozen=True):
    """How a worker is confined, and what is missing if the confinement is incomplete."""

    landlock: int = 0
    """The Landlock version in force; 0 if there is none."""
    seccomp: bool = False
    uid: int = -1
    """The user that workers run as; never 0."""
    memory: int = 0
    """Bytes of address space; 0 means no limit."""
    missing: str = ""
    """Why the confinement is incomplete; empty if it is complete."""

    @property
    def complete(self) -> bool:
        """Whether untrusted text may run here without ``allow_unconfined``."""
        return not self.missing


def drop_root() -> int:
    """Switch from root to ``nobody`` and return the uid; raise OSError if root can't be dropped."""
    if os.geteuid() == 0 or os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    return os.getuid()


def end_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends.

    Call it after ``drop_root``, because a change of user resets the request. The caller reads the
    parent's pid before the fork: the parent may have ended since.
    """
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def confine(folder: int | None, memory: int) -> Confinement:
    """Give up everything except one folder (a descriptor), threads and open descriptors.

    Mechanisms that the system does not offer are skipped and named in ``missing``.
    """
    limit(memory)
    version, filtered = 0, False
    missing: list[str] = []
    if sys.platform != "linux":
        missing.append(f"{sys.platform} has neither Landlock nor seccomp")
    elif os.uname().machine not in MACHINES:
        missing.append(f"no system-call filter is known for {os.uname().machine}")
    else:
        libc = _libc()
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        try:
            _restrict_files(libc, folder)
            version = _landlock_version(libc)
        except OSError as error:
            missing.append(f"{error.strerror} ({os.strerror(error.errno or 0)})")
        try:
            seccomp.restrict(libc)
            filtered = True
        except OSError as error:
            missing.append(f"{error.strerror} ({os.strerror(error.errno or 0)})")
    return Confinement(version, filtered, os.getuid(), memory, "; ".join(missing))


def limit(memory: int) -> None:
    """Set the resource limits that every Unix has."""
    bounds = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_FSIZE: MAX_FILE,
        resource.RLIMIT_NOFILE: MAX_DESCRIPTORS,
        resource.RLIMIT_CORE: 0,
    }
    for what, most in bounds.items():
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS refuses some
            resource.setrlimit(what, (bound, bound))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446  # the same numbers on every architecture
_VERSION_FLAG: Final = 1
_PATH_BENEATH: Final = 1

_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_DIR, _MAKE_REG = 1 << 7, 1 << 8
_TRUNCATE = 1 << 14
_OWN_FOLDER: Final = (
    _WRITE_FILE
    | _READ_FILE
    | _READ_DIR
    | _REMOVE_DIR
    | _REMOVE_FILE
    | _MAKE_DIR
    | _MAKE_REG
    | _TRUNCATE
)
_FILES_BY_VERSION: Final = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many file rights each version knows; version 5 and later know 16."""
_ALL_NET: Final = 0b11
_ALL_SCOPES: Final = 0b11


def _landlock_version(libc: ctypes.CDLL) -> int:
    """Return the version that the kernel offers; 0 if none."""
    return max(0, int(libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def _restrict_files(libc: ctypes.CDLL, folder: int | None) -> None:
    """Deny this process all files outside a folder, TCP, and signals to other processes."""
    known = _landlock_version(libc)
    if not known:
        raise OSError(ctypes.get_errno(), "no Landlock")
    files = (1 << _FILES_BY_VERSION.get(known, 16)) - 1
    # Fields unknown to a version are left out, because it rejects a longer struct.
    fields = [files]
    if known >= 4:
        fields.append(_ALL_NET)
    if known >= 6:
        fields.append(_ALL_SCOPES)
    ruleset = struct.pack(f"={len(fields)}Q", *fields)
    handle = libc.syscall(_CREATE_RULESET, ruleset, len(ruleset), 0)
    if handle < 0:
        raise OSError(ctypes.get_errno(), "no Landlock ruleset")
    if folder is not None:
        rule = struct.pack("=Qi", _OWN_FOLDER & files, folder)
        if libc.syscall(_ADD_RULE, handle, _PATH_BENEATH, rule, 0):
            raise OSError(ctypes.get_errno(), "no Landlock rule")
    if libc.syscall(_RESTRICT_SELF, handle, 0):
        raise OSError(ctypes.get_errno(), "no Landlock restriction")
    os.close(handle)
