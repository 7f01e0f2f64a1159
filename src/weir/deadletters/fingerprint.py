"""The fingerprint of an error: its text without ids, numbers and addresses, and the hash of that."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

MAX_READ = 4_096
"""Characters of an error that are looked at and remembered; the patterns run over all of them."""
MAX_TEMPLATE = 300
TRACEBACK = "Traceback (most recent call last)"

_UUID = r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}"
_TIME = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"
_IPV4 = r"\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?"
_IPV6 = r"(?:[0-9a-f]{1,4})?(?:::?[0-9a-f]{1,4}){3,7}(?:\]:\d{1,5})?"
_NUMBER = r"(?<![\w.])[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?"

_PATTERNS = (
    ("<url>", re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>)\]]+", re.IGNORECASE)),
    ("<email>", re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")),
    ("<uuid>", re.compile(rf"(?<![\w-]){_UUID}(?![\w-])", re.IGNORECASE)),
    ("<time>", re.compile(rf"(?<!\w){_TIME}(?!\w)")),
    ("<address>", re.compile(rf"(?<![\w.:]){_IPV4}(?![\w.])")),
    ("<address>", re.compile(rf"(?<![\w:]){_IPV6}(?![\w:])", re.IGNORECASE)),
    ("<hex>", re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE)),
    ("<hex>", re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE)),
    ("<id>", re.compile(r"\b(?=[A-Za-z_]*\d)(?=\d*[A-Za-z_])[A-Za-z0-9_]{16,}\b")),
    ("<n>", re.compile(_NUMBER, re.IGNORECASE)),
    # The digits that are left are inside words, such as `worker7` or `v2`.
    ("<n>", re.compile(r"\d+")),
)
_SPACE = re.compile(r"[\s\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The name of a group of errors, and the text that they share."""

    value: str
    template: str


def fingerprint(error: str, *, reason: str) -> Fingerprint:
    """The fingerprint of an error; if its text is empty, the fingerprint of the reason of death."""
    return _fingerprint(error[:MAX_READ], reason)


@lru_cache(maxsize=16_384)
def _fingerprint(error: str, reason: str) -> Fingerprint:
    template = normalise(error) or f"({reason})"
    digest = hashlib.blake2b(template.encode("utf-8", "replace"), digest_size=8)
    return Fingerprint(value=digest.hexdigest(), template=template)


def normalise(error: str) -> str:
    """The error without the parts that differ from one occurrence to the next; bounded, and idempotent."""
    text = _essence(error[:MAX_READ])
    for placeholder, pattern in _PATTERNS:
        text = pattern.sub(placeholder, text)
    return _SPACE.sub(" ", text).strip()[:MAX_TEMPLATE].rstrip()


def _essence(text: str) -> str:
    """The last line of a Python traceback, which says what happened; any other text whole."""
    if not text.lstrip().startswith(TRACEBACK):
        return text
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if not lines[-1].startswith((" ", "\t")) else text
