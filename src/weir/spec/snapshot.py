"""The applied specs of all environments at one moment, with look-ups for requests and workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import AppSpec, ChannelSpec, DeliverTo, QueueSpec, WebhookSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A webhook and the environment that it belongs to."""

    environment: EnvironmentRef
    webhook: WebhookSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecSnapshot:
    """One consistent view of all applied specs. A new one replaces it when a spec is applied."""

    hooks: Mapping[str, Hook] = field(default_factory=dict)
    """By short address, which is the name alone."""
    hooks_by_environment: Mapping[tuple[EnvironmentRef, str], Hook] = field(default_factory=dict)
    queues: Mapping[QueueRef, QueueSpec] = field(default_factory=dict)
    channels: Mapping[tuple[EnvironmentRef, str], ChannelSpec] = field(default_factory=dict)

    def served_queues(self) -> list[tuple[QueueRef, QueueSpec]]:
        """The queues with an action, which workers serve."""
        return [(queue, spec) for queue, spec in self.queues.items() if spec.action is not None]

    def named_secrets(self) -> Iterator[tuple[EnvironmentRef, str]]:
        """Every secret that a webhook or a delivery names, once."""
        named = dict.fromkeys(
            [
                *(
                    (hook.environment, name)
                    for hook in self.hooks_by_environment.values()
                    for name in (hook.webhook.verification.secrets if hook.webhook.verification else ())
                ),
                *(
                    (queue.scope, name)
                    for queue, spec in self.queues.items()
                    for name in (spec.action.secrets if isinstance(spec.action, DeliverTo) else ())
                ),
            ]
        )
        return iter(named)


class SpecReader(Protocol):
    """Gives the current snapshot."""

    @property
    def snapshot(self) -> SpecSnapshot: ...


def snapshot_of(
    apps: Mapping[EnvironmentRef, AppSpec],
    *,
    owners: Mapping[str, EnvironmentRef] | None = None,
    queues: Iterable[tuple[QueueRef, QueueSpec]] | None = None,
) -> SpecSnapshot:
    """The snapshot of these apps.

    `owners` says which environment has each short address; without it, the first environment with such a
    webhook has it. `queues` are the stored definitions; without them the apps' own queues are taken.
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
