"""TLS of the API: a certificate and its key from two files, read again when they change."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path

import structlog

from weir.errors import Misconfigured, WeirError
from weir.serve.unfinished import client_of

log = structlog.get_logger("weir.serve")
RELOAD_S = 5.0
"""How often the files are looked at."""
_Seen = tuple[tuple[int, int, int], ...]


class CertificateFiles:
    """The TLS context of the newest pair of files that fits together."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key
        self._refused: _Seen = ()
        try:
            self._seen = self._look()
            self.context = self._load()
        except (OSError, ssl.SSLError) as error:
            raise Misconfigured(
                f"the certificate `{certificate}` and its key `{key}` cannot be used ({_reason(error)}); "
                "set WEIR_API__TLS_CERTIFICATE and WEIR_API__TLS_KEY to a PEM chain and its key without a "
                "password"
            ) from None

    async def watch(self) -> None:
        """Load changed files until cancelled; new connections use them."""
        while True:
            await asyncio.sleep(RELOAD_S)
            await asyncio.to_thread(self.reload)

    def reload(self) -> None:
        """Load the files if they changed. A pair that does not fit together is tried again at the next look,
        because one of the two may not have been written yet."""
        try:
            found = self._look()
            if found == self._seen:
                return
            self.context, self._seen = self._load(), found
            log.info("certificate reloaded", certificate=str(self._certificate))
        except (OSError, ssl.SSLError) as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        try:
            found = self._look()
        except OSError:
            found = ((0, 0, 0),)
        if found != self._refused:
            self._refused = found
            log.warning("the new certificate cannot be used; the old one stays", error=_reason(error))

    def _look(self) -> _Seen:
        found = [path.stat() for path in (self._certificate, self._key)]
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Otherwise a client could keep a process busy with renegotiations alone.
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        # Without a password here, OpenSSL would ask for one at the terminal if the key has one.
        context.load_cert_chain(self._certificate, self._key, password="")
        return context


class TlsHandshake:
    """A connection whose handshake is not complete. It counts as an unfinished request of a stranger."""

    in_body = False
    paused = False
    verified = False

    def __init__(self, connection: socket.socket, address: tuple[object, ...]) -> None:
        self.client_key: Hashable = client_of(str(address[0]))
        self.bytes_held = 0
        self._connection = connection

    def refuse(self, error: WeirError) -> None:
        """Hang up, because no answer can be sent before the handshake is complete."""
        self.hang_up()

    def hang_up(self) -> None:
        """End the handshake; the event loop then closes the connection."""
        # The client may have closed the connection already.
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


def certificate_files(certificate: Path | None, key: Path | None) -> CertificateFiles | None:
    """The certificate files that the two settings name; None if neither is set."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise Misconfigured(
            "`WEIR_API__TLS_CERTIFICATE` and `WEIR_API__TLS_KEY` belong together; set both, or neither"
        )
    return CertificateFiles(certificate, key)


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)
