"""Check the URL of a log on PostgreSQL before anything connects to it.

Errors name the setting and what is wrong in it, and never show the URL, which may hold a password.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from trails.errors import SettingsError

_SCHEMES: Final = ("postgresql://", "postgres://")
_EXAMPLE: Final = "postgresql://user@host:5432/database?sslmode=verify-full"
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_FILES: Final = ("passfile", "sslrootcert", "sslcert", "sslkey", "sslcrl")
_SECRET_FILES: Final = frozenset({"passfile", "sslkey"})
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_PORTS: Final = range(1, 65_536)
_ENCODE: Final = (
    "write the characters @ : / ? # % of a user name or password percent-encoded, as %40 for @"
)


def check_log_url(where: str, url: str) -> None:
    """Refuse what is not the URL of a PostgreSQL server; ``where`` is the setting's name."""
    for problem in _problems(url) if url else ():
        raise SettingsError(f"{where} {problem}")


def _problems(url: str) -> Iterator[str]:
    if not url.startswith(_SCHEMES):
        yield f"must begin with postgresql://, as {_EXAMPLE}"
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        yield f"is not a URL; write it as {_EXAMPLE}"
        return
    if parts.netloc.count("@") > 1 or parts.fragment:
        yield f"has a @ or # too many; {_ENCODE}"
    for host in parts.netloc.rpartition("@")[2].split(","):
        port = host.rpartition("]")[2].partition(":")[2]
        if port and not (port.isascii() and port.isdigit() and int(port) in _PORTS):
            yield f"has a port that is not a number from 1 to 65535; {_ENCODE}"
    mode = _parameters(parts.query).get("sslmode", "prefer")
    if mode not in _SSL_MODES:
        yield f"has an sslmode that is not one of {', '.join(_SSL_MODES)}"


def _parameters(query: str) -> dict[str, str]:
    """The parameters of a URL as libpq reads them, to whom a plus sign is one."""
    pairs = (each.partition("=") for each in query.split("&") if each)
    return {unquote(name): unquote(value) for name, _, value in pairs}


def check_connection(where: str, url: str) -> None:
    """Refuse what libpq does not understand, or ignores without an error."""
    given = _parameters(urlsplit(url).query)
    unknown = sorted(given.keys() - _known_names(given))
    if unknown:
        raise SettingsError(
            f"{where} has a parameter that libpq does not know: {unknown[0][:100]!r}; see "
            "docs/how-to/cluster.md"
        )
    for name in _FILES:
        value = given.get(name, "")
        if value and not (name == "sslrootcert" and value == "system"):
            _check_file(where, name, Path(value))


def _known_names(given: dict[str, str]) -> set[str]:
    """The parameters of the installed libpq; those that are given, where there is none."""
    try:
        from psycopg.pq import Conninfo  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return {*given}  # opening the log says what to install
    return {each.keyword.decode() for each in Conninfo.get_defaults()} | {"ssl"}


def _check_file(where: str, name: str, path: Path) -> None:
    if not path.is_file() or not os.access(path, os.R_OK):
        raise SettingsError(
            f"{where}: {name} names {str(path)!r}, which is not a file that this process can read"
        )
    found = path.stat()
    # libpq lets a group read a key that belongs to root, and nothing else.
    refused = _OTHERS & ~stat.S_IRGRP if name == "sslkey" and not found.st_uid else _OTHERS
    if name in _SECRET_FILES and found.st_mode & refused:
        raise SettingsError(
            f"{where}: {name} names {str(path)!r}, which other users can read, so PostgreSQL's "
            "library does not use it; run 'chmod 600' on it"
        )
