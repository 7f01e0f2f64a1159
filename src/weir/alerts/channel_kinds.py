"""The kinds of alert channels; commands know them too, and need no driver for it."""

from __future__ import annotations

from enum import StrEnum


class ChannelKind(StrEnum):
    SLACK = "slack"
    EMAIL = "email"
    WEBHOOK = "webhook"
    APPRISE = "apprise"


class Tls(StrEnum):
    """How the connection to a mail server is encrypted."""

    START = "starttls"
    WHOLE = "tls"
    NONE = "none"
