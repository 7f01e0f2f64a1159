"""The kinds of alert channels, in a module that commands can import without a driver."""

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
