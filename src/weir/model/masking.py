"""Removes passwords and other secrets from URLs, so that they may be shown."""

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
    """The URL with the password before its host, and secrets in its query, masked."""
    return _PARAMETER.sub(rf"\g<1>{MASK}", _PASSWORD.sub(rf"\g<1>{MASK}@", text))


def masked_attempt(text: str) -> str:
    """Text that was meant as a URL; all of it before an `@` is masked, because it may be a password."""
    return masked_url(_NOT_A_URL.sub(f"{MASK}@", text))
