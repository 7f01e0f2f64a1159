"""Text that may be shown: URLs without what is secret in them."""

from __future__ import annotations

import re

MASK = "********"
# `user:password@`; a password may hold anything but the marks that end the host's part.
_PASSWORD = re.compile(r"(://[^/?#@:]*:)[^/?#]*@")
_NOT_A_URL = re.compile(r".*@")
_PARAMETER = re.compile(
    r"([?&;][^=&;#]*(?:pass|pwd|secret|token|key|cred|auth)[^=&;#]*=)[^&;#]*", re.IGNORECASE
)


def masked_url(text: str) -> str:
    """The URL without the password before its host and without those in its query."""
    return _PARAMETER.sub(rf"\g<1>{MASK}", _PASSWORD.sub(rf"\g<1>{MASK}@", text))


def masked_attempt(text: str) -> str:
    """What was meant to be a URL: whatever stands before an `@` may be a password."""
    return masked_url(_NOT_A_URL.sub(f"{MASK}@", text))
