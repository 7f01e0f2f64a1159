"""Seals secrets with keys that PostgreSQL does not have, so that a dump of it does not tell them.

A sealed text is AES-256-GCM over a random nonce, and belongs to one place: moved to another environment or
name it cannot be opened. The keys stand in a file, one per line: the first seals, and every one opens.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from weir.errors import Misconfigured

KEY_BYTES = 32
_NONCE_BYTES = 12
MAKE_A_KEY = "`openssl rand -base64 32` makes a key"
Place = tuple[str, ...]
"""What a sealed text belongs to: the names of an environment and of the secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A sealed text, and the name of the key that opens it."""

    key_id: str
    data: bytes


class SealingKeys:
    """The keys of an installation. The first seals."""

    def __init__(self, *keys: bytes) -> None:
        self._ciphers: Mapping[str, AESGCM] = {_id_of(key): AESGCM(key) for key in keys}
        self.current_id = _id_of(keys[0])

    @property
    def ids(self) -> list[str]:
        return list(self._ciphers)

    def seal(self, text: str, *, place: Place) -> Sealed:
        nonce = os.urandom(_NONCE_BYTES)
        data = self._ciphers[self.current_id].encrypt(nonce, text.encode(), _bound(place))
        return Sealed(key_id=self.current_id, data=nonce + data)

    def open(self, sealed: Sealed, *, place: Place) -> str | None:
        """The text; None if none of the keys opens it."""
        cipher = self._ciphers.get(sealed.key_id)
        if cipher is None:
            return None
        nonce, data = sealed.data[:_NONCE_BYTES], sealed.data[_NONCE_BYTES:]
        try:
            return cipher.decrypt(nonce, data, _bound(place)).decode()
        except (InvalidTag, ValueError):
            # ValueError: it is shorter than a nonce.
            return None


def new_key() -> str:
    """A line for a file of keys."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


def read_keys(path: Path) -> SealingKeys:
    """The keys in a file, in Base64, one per line."""
    try:
        lines = path.read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"the file of keys for secrets `{path}` cannot be read: {error}") from None
    keys = [_key(line, path, number) for number, line in enumerate(lines, start=1)]
    if not keys:
        raise Misconfigured(f"the file of keys for secrets `{path}` is empty; {MAKE_A_KEY}")
    return SealingKeys(*keys)


def _key(line: str, path: Path, number: int) -> bytes:
    try:
        key = base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        # Never the line itself: it may be a key with a slip.
        raise Misconfigured(f"key {number} in `{path}` is not {KEY_BYTES} bytes in Base64; {MAKE_A_KEY}")
    return key


def _id_of(key: bytes) -> str:
    """A name that tells which key sealed a text, and nothing about the key."""
    return hashlib.sha256(b"weir sealing key\0" + key).hexdigest()[:16]


def _bound(place: Place) -> bytes:
    return json.dumps(place).encode()
