"""TLS: the certificate and key of a server, checked before it listens."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, Never

from trails.errors import SettingsError

HANDSHAKE: Final = 10.0
"""Seconds that a client has to agree on TLS."""


def load_tls(folder: Path, certificate: str, key: str) -> ssl.SSLContext | None:
    """What a port needs to speak TLS; None where the settings name no certificate.

    Paths are relative to the project folder; SettingsError says what is wrong with a file.
    """
    if not certificate and not key:
        return None
    if not certificate or not key:
        given, missing = ("tls_key", "tls_certificate") if key else ("tls_certificate", "tls_key")
        raise SettingsError(f"[server] {given} is set and {missing} is not; TLS needs both")
    files = folder / certificate, folder / key
    for name, path in zip(("tls_certificate", "tls_key"), files, strict=True):
        _check_readable(name, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(*files, password=_refuse_password)
    except ssl.SSLError as error:
        raise SettingsError(_explain(error, *files)) from None
    return context


def _check_readable(name: str, path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise SettingsError(f"[server] {name}: {path} can't be read: {error.strerror}") from None


def _refuse_password() -> Never:
    """A server starts without anybody who could type one."""
    raise SettingsError(
        "[server] tls_key is encrypted; write it without a password, readable for this user alone, "
        "as 'openssl pkey -in <key> -out <new key>' does"
    )


def _explain(error: ssl.SSLError, certificate: Path, key: Path) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"[server] tls_key: {key} is not the key of the certificate in {certificate}"
    if error.reason in {"EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"}:
        return f"[server] tls_certificate: {certificate} is too weak; use a longer key or SHA-256"
    return (
        f"[server] tls_certificate and tls_key: {certificate} and {key} are not a certificate and "
        "its key in PEM form"
    )
