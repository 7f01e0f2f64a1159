"""Every applied spec of every environment, looked up by what a request or a worker knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import AppSpec, ChannelSpec, QueueSpec, WebhookSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A webhook and the environment that it belongs to."""

    environment: EnvironmentRef
    webhook: WebhookSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecSnapshot:
    """One consistent view; a new one replaces it when something is applied."""

    hooks: Mapping[str, Hook] = field(default_factory=dict)
    """By short address: the name alone."""
    hooks_by_environment: Mapping[tuple[EnvironmentRef, str], Hook] = field(default_factory=dict)
    queues: Mapping[QueueRef, QueueSpec] = field(default_factory=dict)
    channels: Mapping[tuple[EnvironmentRef, str], ChannelSpec] = field(default_factory=dict)

    def served_queues(self) -> list[tuple[QueueRef, QueueSpec]]:
        """The queues that workers serve: those with an action."""
        return [(queue, spec) for queue, spec in self.queues.items() if spec.action is not None]


class SpecReader(Protocol):
    """Whoever keeps the current book."""

    @property
    def snapshot(self) -> SpecSnapshot: ...


def snapshot_of(
    apps: Mapping[EnvironmentRef, AppSpec],
    *,
    owners: Mapping[str, EnvironmentRef] | None = None,
    queues: Iterable[tuple[QueueRef, QueueSpec]] | None = None,
) -> SpecSnapshot:
    """The book of these apps. `owners` says who has a short address; without it the first one does.

    `queues` are the definitions that hold; without them those of the apps do.
    """
    hooks_by_environment = {
        (environment, webhook.name): Hook(environment=environment, webhook=webhook)
        for environment, app in apps.items()
        for webhook in app.webhooks
    }
    if owners is None:
        owners = {}
        for environment, name in hooks_by_environment:
            owners.setdefault(name, environment)
    return SpecSnapshot(
        hooks={
            name: hooks_by_environment[environment, name]
            for name, environment in owners.items()
            if (environment, name) in hooks_by_environment
        },
        hooks_by_environment=hooks_by_environment,
        queues=dict(queues) if queues is not None else _queues(apps),
        channels={
            (environment, channel.id): channel
            for environment, app in apps.items()
            for channel in app.channels
        },
    )


def _queues(apps: Mapping[EnvironmentRef, AppSpec]) -> dict[QueueRef, QueueSpec]:
    return {environment.queue(queue.name): queue for environment, app in apps.items() for queue in app.queues}
