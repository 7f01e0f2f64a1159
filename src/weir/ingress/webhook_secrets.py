"""Looks up the secrets of webhooks for each request, and warns the operator if none is set."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from weir.spec.ir import WebhookSpec
from weir.spec.snapshot import Hook

log = structlog.get_logger("weir.ingress")
LookUp = Callable[[str], str | None]
# Strangers decide how often a webhook without a secret is called, so it is logged at most this often.
WARN_EVERY_S = 60.0


@dataclass(slots=True)
class _Warning:
    at_s: float
    refused: int = 0
    """Refused requests since then."""


class WebhookSecrets:
    """Finds secrets in the environment of this process."""

    def __init__(self, look_up: LookUp, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._look_up = look_up
        self._monotonic = monotonic
        self._warnings: dict[tuple[object, str], _Warning] = {}

    def of(self, hook: Hook) -> list[str]:
        """The secrets that are set, the current one first; logs a warning if none is."""
        verification = hook.webhook.verification
        names = () if verification is None else verification.secret_envs
        found = [value for name in names if (value := self._look_up(name))]
        if names and not found:
            self._warn(hook, names)
        return found

    def unset(self, webhook: WebhookSpec) -> tuple[str, ...]:
        """The variables that a webhook names and that are not set in this process."""
        return unset_secrets(webhook, self._look_up)

    def can_verify(self, webhook: WebhookSpec) -> bool:
        """Whether a request can be accepted at all: one of the secrets is set, or the webhook needs none."""
        return can_verify(webhook, self._look_up)

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
            variables=list(names),
            organization=scope.organization,
            project=scope.project,
            environment=scope.environment,
            refused=refused,
        )


def unset_secrets(webhook: WebhookSpec, look_up: LookUp) -> tuple[str, ...]:
    """The variables that a webhook names and that `look_up` does not know."""
    if webhook.verification is None:
        return ()
    return tuple(name for name in webhook.verification.secret_envs if not look_up(name))


def can_verify(webhook: WebhookSpec, look_up: LookUp) -> bool:
    """Whether `look_up` knows one of the webhook's secrets, or it needs none."""
    verification = webhook.verification
    return verification is None or len(unset_secrets(webhook, look_up)) < len(verification.secret_envs)
