"""Looks up the secrets of webhooks for each request, and warns in the log if none is set."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from weir.control.secrets import SecretLookUp, values_of
from weir.spec.snapshot import Hook

log = structlog.get_logger("weir.ingress")
# Strangers decide how often a webhook without a secret is called, so it is logged at most this often.
WARN_EVERY_S = 60.0


@dataclass(slots=True)
class _Warning:
    at_s: float
    refused: int = 0
    """Refused requests since then."""


class WebhookSecrets:
    """Finds the secrets of a webhook in its own environment."""

    def __init__(self, look_up: SecretLookUp, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._look_up = look_up
        self._monotonic = monotonic
        self._warnings: dict[tuple[object, str], _Warning] = {}

    def of(self, hook: Hook) -> list[str]:
        """The secrets that are set, the current one first; logs a warning if none is."""
        verification = hook.webhook.verification
        names = () if verification is None else verification.secrets
        found = values_of(self._look_up, hook.environment, names)
        if names and not found:
            self._warn(hook, names)
        return found

    def missing(self, hook: Hook) -> tuple[str, ...]:
        """The secrets that a webhook names and that its environment does not have."""
        return missing_secrets(hook, self._look_up)

    def can_verify(self, hook: Hook) -> bool:
        """Whether a request can be accepted at all: one of the secrets is set, or the webhook needs none."""
        return can_verify(hook, self._look_up)

    def _warn(self, hook: Hook, names: tuple[str, ...]) -> None:
        key, now_s = (hook.environment, hook.webhook.name), self._monotonic()
        last = self._warnings.get(key)
        if last is not None and now_s - last.at_s < WARN_EVERY_S:
            last.refused += 1
            return
        refused = 1 if last is None else last.refused + 1
        self._warnings[key] = _Warning(at_s=now_s)
        scope = hook.environment
        log.warning(
            "the secret of a webhook is not set, so everything sent to it is refused with 401",
            webhook=hook.webhook.name,
            secrets=list(names),
            organization=scope.organization,
            project=scope.project,
            environment=scope.environment,
            refused=refused,
        )


def missing_secrets(hook: Hook, look_up: SecretLookUp) -> tuple[str, ...]:
    """The secrets that a webhook names and that `look_up` does not know."""
    if hook.webhook.verification is None:
        return ()
    return tuple(name for name in hook.webhook.verification.secrets if not look_up(hook.environment, name))


def can_verify(hook: Hook, look_up: SecretLookUp) -> bool:
    """Whether `look_up` knows one of the webhook's secrets, or it needs none."""
    verification = hook.webhook.verification
    return verification is None or len(missing_secrets(hook, look_up)) < len(verification.secrets)
