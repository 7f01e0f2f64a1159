"""Verifies the signatures of webhooks, with one verifier per scheme. They work on bytes and never raise.

Every candidate signature is compared with that of every secret, in constant time and without an early end. So
neither the time nor the answer tells how close a forgery was.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Mapping, Sequence

from weir.outbound.signing import secret_bytes
from weir.spec.ir import SignatureScheme, Verification

Headers = Mapping[str, str]
"""Names in lower case; values as Latin-1 text, which keeps every byte."""

# A stranger chooses these headers, so the work that they cause is bounded.
MAX_SIGNATURE_CHARACTERS = 8_192
MAX_CANDIDATES = 32
# Enough digits for seconds in any plausible year, and few enough to convert quickly.
MAX_TIMESTAMP_DIGITS = 12


def verify(
    verification: Verification, *, secrets: Sequence[str], headers: Headers, body: bytes, now_ms: int
) -> bool:
    """Whether any secret made the signature, and within the replay window. Never raises."""
    if not secrets:
        return False
    # A request without a usable signature takes as long as a request with a wrong signature, in every scheme.
    # So the time does not tell a stranger which headers are read.
    candidates, signed = _SCHEMES[verification.scheme](verification, headers, body, now_ms) or ([], body)
    algorithm = verification.algorithm if verification.scheme in _CONFIGURABLE else "sha256"
    expected = [hmac.digest(_key(verification.scheme, secret), signed, algorithm) for secret in secrets]
    holds = False
    for candidate in candidates[:MAX_CANDIDATES]:
        for one in expected:
            holds |= hmac.compare_digest(candidate, one)
    return holds


_CONFIGURABLE = (SignatureScheme.HMAC, SignatureScheme.GENERIC)

Found = tuple[list[bytes], bytes] | None
"""Candidate signatures as raw digests, and the bytes that were signed."""


def _key(scheme: SignatureScheme, secret: str) -> bytes:
    return secret_bytes(secret) if scheme is SignatureScheme.STANDARD else secret.encode()


def _hmac(verification: Verification, headers: Headers, body: bytes, now_ms: int) -> Found:
    """The plain scheme: hex digests of the body, separated by commas, each bare or after `name=`."""
    value = _header(headers, verification.header)
    if value is None:
        return None
    parts = [part.strip().rpartition("=")[2] for part in value.split(",")]
    return _decoded(parts, "hex"), body


def _generic(verification: Verification, headers: Headers, body: bytes, now_ms: int) -> Found:
    value = _header(headers, verification.header)
    if value is None or not value.startswith(verification.prefix):
        return None
    signed = body
    if verification.timestamp_header is not None:
        stamp = _header(headers, verification.timestamp_header)
        if stamp is None or not _recent(stamp, verification.tolerance_s, now_ms):
            return None
        signed = stamp.encode("latin-1") + b"." + body
    return _decoded([value.removeprefix(verification.prefix).strip()], verification.encoding), signed


def _standard(verification: Verification, headers: Headers, body: bytes, now_ms: int) -> Found:
    message_id, stamp = _header(headers, "webhook-id"), _header(headers, "webhook-timestamp")
    value = _header(headers, "webhook-signature")
    if (
        not message_id
        or stamp is None
        or value is None
        or not _recent(stamp, verification.tolerance_s, now_ms)
    ):
        return None
    # Senders that change their secret send one signature per secret.
    parts = [part[3:] for part in value.split(" ") if part.startswith("v1,")]
    signed = message_id.encode("latin-1") + b"." + stamp.encode("latin-1") + b"." + body
    return _decoded(parts, "base64"), signed


def _github(verification: Verification, headers: Headers, body: bytes, now_ms: int) -> Found:
    value = _header(headers, "x-hub-signature-256")
    if value is None or not value.startswith("sha256="):
        return None
    return _decoded([value[7:]], "hex"), body


def _stripe(verification: Verification, headers: Headers, body: bytes, now_ms: int) -> Found:
    value = _header(headers, "stripe-signature")
    if value is None:
        return None
    pairs = [part.strip().partition("=") for part in value.split(",")]
    stamps = [text for name, _, text in pairs if name == "t"]
    # With two timestamps it would not be clear which of them was signed.
    if len(stamps) != 1 or not _recent(stamps[0], verification.tolerance_s, now_ms):
        return None
    digests = [text for name, _, text in pairs if name == "v1"]
    return _decoded(digests, "hex"), stamps[0].encode("latin-1") + b"." + body


def _slack(verification: Verification, headers: Headers, body: bytes, now_ms: int) -> Found:
    stamp, value = _header(headers, "x-slack-request-timestamp"), _header(headers, "x-slack-signature")
    if stamp is None or value is None or not _recent(stamp, verification.tolerance_s, now_ms):
        return None
    if not value.startswith("v0="):
        return None
    return _decoded([value[3:]], "hex"), b"v0:" + stamp.encode("latin-1") + b":" + body


def _pagerduty(verification: Verification, headers: Headers, body: bytes, now_ms: int) -> Found:
    value = _header(headers, "x-pagerduty-signature")
    if value is None:
        return None
    parts = [part.strip()[3:] for part in value.split(",") if part.strip().startswith("v1=")]
    return _decoded(parts, "hex"), body


_SCHEMES: Mapping[SignatureScheme, Callable[[Verification, Headers, bytes, int], Found]] = {
    SignatureScheme.HMAC: _hmac,
    SignatureScheme.GENERIC: _generic,
    SignatureScheme.STANDARD: _standard,
    SignatureScheme.GITHUB: _github,
    SignatureScheme.STRIPE: _stripe,
    SignatureScheme.SLACK: _slack,
    SignatureScheme.PAGERDUTY: _pagerduty,
}


def _header(headers: Headers, name: str | None) -> str | None:
    """The value of a header; None if it is missing or too long."""
    value = headers.get(name.lower()) if name else None
    return value if value is not None and len(value) <= MAX_SIGNATURE_CHARACTERS else None


def _decoded(texts: Sequence[str], encoding: str) -> list[bytes]:
    """The digests in these texts; texts that are not hex or base64 are left out."""
    found = []
    for text in texts[:MAX_CANDIDATES]:
        try:
            data = text.encode("ascii")
            found.append(
                binascii.unhexlify(data) if encoding == "hex" else base64.b64decode(data, validate=True)
            )
        except (UnicodeEncodeError, binascii.Error, ValueError):
            continue
    return found


def _recent(stamp: str, tolerance_s: int, now_ms: int) -> bool:
    """Whether a timestamp in whole seconds is within the tolerance, before or after now."""
    if not stamp.isascii() or not stamp.isdigit() or len(stamp) > MAX_TIMESTAMP_DIGITS:
        return False
    return abs(now_ms // 1000 - int(stamp)) <= tolerance_s
