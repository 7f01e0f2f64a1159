"""The names of environments and queues. They are free text, so no code joins them and splits them again."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from weir.errors import InvalidInput
from weir.model.holders import Holder
from weir.model.limits import MAX_NAME_BYTES

SYSTEM_ORGANIZATION = "weir"
"""The organization of Weir's own queues; no token and no tenant may belong to it."""


def check_name(text: str, *, what: str) -> str:
    """Return `text` if it is a legal name: 1 to 255 bytes of UTF-8 without control characters."""
    if not isinstance(text, str) or not text:
        raise InvalidInput(f"a {what} name is empty; give it 1 to {MAX_NAME_BYTES} bytes of text")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"a {what} name holds a lone surrogate; send valid Unicode text") from None
    if size > MAX_NAME_BYTES:
        raise InvalidInput(f"a {what} name has {size} bytes; at most {MAX_NAME_BYTES} are allowed")
    # Printable text holds no control characters, and checking that first is twenty times cheaper.
    if not text.isprintable() and any(unicodedata.category(char) == "Cc" for char in text):
        raise InvalidInput(f"the {what} name {text!r} holds a control character; remove it")
    return text


def check_tenant(organization: str) -> str:
    """Return `organization` if it is a legal name that is not reserved for Weir."""
    if check_name(organization, what="organization") == SYSTEM_ORGANIZATION:
        raise InvalidInput(
            f"the organization `{SYSTEM_ORGANIZATION}` is kept for Weir's own queues; choose another name"
        )
    return organization


SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def check_secret_name(text: str) -> str:
    """Return `text` if a secret may have this name."""
    if not SECRET_NAME.fullmatch(text):
        raise InvalidInput(
            f"`{text:.80}` is not the name of a secret; expected 1 to 128 letters, digits and underscores, "
            "without a digit in front"
        )
    return text


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class EnvironmentRef:
    """One environment of one project of one organization: the unit of isolation and of sharding."""

    organization: str
    project: str
    environment: str

    def __post_init__(self) -> None:
        check_name(self.organization, what="organization")
        check_name(self.project, what="project")
        check_name(self.environment, what="environment")

    @property
    def names(self) -> tuple[str, str, str]:
        return self.organization, self.project, self.environment

    @property
    def holder(self) -> Holder:
        """The holder whose fair share its requests take."""
        return self.names

    def queue(self, name: str) -> QueueRef:
        return QueueRef(
            organization=self.organization, project=self.project, environment=self.environment, queue=name
        )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class QueueRef:
    """One queue of one environment."""

    organization: str
    project: str
    environment: str
    queue: str

    def __post_init__(self) -> None:
        check_name(self.organization, what="organization")
        check_name(self.project, what="project")
        check_name(self.environment, what="environment")
        check_name(self.queue, what="queue")

    @property
    def names(self) -> tuple[str, str, str, str]:
        return self.organization, self.project, self.environment, self.queue

    @property
    def scope(self) -> EnvironmentRef:
        return EnvironmentRef(
            organization=self.organization, project=self.project, environment=self.environment
        )
