"""Landlock rules: a worker may use the files of its own folder and no others."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final

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


def version(libc: ctypes.CDLL) -> int:
    """Return the version that the kernel offers; 0 if none."""
    return max(0, int(libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def restrict(libc: ctypes.CDLL, folder: int | None) -> None:
    """Deny this process all files outside a folder, TCP, and signals to other processes."""
    known = version(libc)
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
