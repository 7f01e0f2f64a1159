"""The texts of tokens.

A text is `weir_<label>_<id>_<secret>_<crc>`. With the prefix and the checksum, secret scanners can find
leaked tokens and we can refuse typos without asking a store. The label is for people only. The secret has 190
random bits, which nobody can guess, so a plain SHA-256 of it is stored.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib
from dataclasses import dataclass

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH = 12
_SECRET_LENGTH = 32
_TOKEN = re.compile(
    r"weir_([0-9A-Za-z]{1,16})_([0-9A-Za-z]{12})_([0-9A-Za-z]{32})_([0-9A-Za-z]{6})", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenText:
    """The parts of a well-formed token that a store needs."""

    id: str
    digest: bytes


def mint(label: str) -> tuple[str, TokenText]:
    """A new token: its text, which is shown once, and the parts to store."""
    identity, secret = _random(_ID_LENGTH), _random(_SECRET_LENGTH)
    body = f"weir_{_label(label)}_{identity}_{secret}"
    return f"{body}_{_checksum(body)}", TokenText(id=identity, digest=_digest(secret))


def parse(text: str) -> TokenText | None:
    """The parts of a token; None if the text is not a token."""
    match = _TOKEN.fullmatch(text)
    if match is None or _checksum(text[:-7]) != match[4]:
        return None
    return TokenText(id=match[2], digest=_digest(match[3]))


def secret_of(text: str) -> str:
    """The secret of a token, which is the password of its user in Redis; empty if the text is not a token."""
    match = _TOKEN.fullmatch(text)
    return "" if match is None else match[3]


def _label(text: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", "", text)[:16] or "token"


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits = []
    for _ in range(6):
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
