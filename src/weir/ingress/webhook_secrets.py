"""The secrets of webhooks: looked up for each request, and the operator told of those that are not set."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from weir.spec.ir import WebhookSpec
from weir.spec.snapshot import Hook

log = structlog.get_logger("weir.ingress")
LookUp = Callable[[str], str | None]
TELL_EVERY_S = 60.0
"""A webhook without a secret is logged at most this often: strangers decide how often it is asked for."""


@dataclass(slots=True)
class _Told:
    at_s: float
    refused: int = 0
    """Requests since then."""


class WebhookSecrets:
    """Finds secrets in the environment of this process."""

    def __init__(self, look_up: LookUp, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._look_up = look_up
        self._monotonic = monotonic
        self._told: dict[tuple[object, str], _Told] = {}

    def of(self, hook: Hook) -> list[str]:
        """The secrets that are set, the current one first; if none is, the log says so."""
        verification = hook.webhook.verification
        names = () if verification is None else verification.secret_envs
        found = [value for name in names if (value := self._look_up(name))]
        if names and not found:
            self._tell(hook, names)
        return found

    def unset(self, webhook: WebhookSpec) -> tuple[str, ...]:
        """The variables that a webhook names and that are not set here."""
        return unset_secrets(webhook, self._look_up)

    def can_verify(self, webhook: WebhookSpec) -> bool:
        """Whether a signature can hold at all: there is none to check, or one of the secrets is set."""
        return can_verify(webhook, self._look_up)

    def _tell(self, hook: Hook, names: tuple[str, ...]) -> None:
        key, now_s = (hook.environment, hook.webhook.name), self._monotonic()
        told = self._told.get(key)
        if told is not None and now_s - told.at_s < TELL_EVERY_S:
            told.refused += 1
            return
        refused = 1 if told is None else told.refused + 1
        self._told[key] = _Told(at_s=now_s)
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
