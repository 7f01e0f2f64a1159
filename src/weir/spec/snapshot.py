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


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentNews:
    """What an environment has now, and its queues that changed."""

    environment: EnvironmentRef
    app: AppSpec
    """The webhooks and channels of its spec."""
    hooks: frozenset[str]
    """The short addresses that it owns."""
    names: frozenset[str]
    """All its queues."""
    queues: Mapping[str, QueueSpec]
    """The queues that changed."""


def with_news(snapshot: SpecSnapshot, news: Iterable[EnvironmentNews]) -> SpecSnapshot:
    """The snapshot that follows."""
    found = {one.environment: one for one in news}
    by_environment = {
        key: hook for key, hook in snapshot.hooks_by_environment.items() if key[0] not in found
    } | {
        (one.environment, webhook.name): Hook(environment=one.environment, webhook=webhook)
        for one in found.values()
        for webhook in one.app.webhooks
    }
    return SpecSnapshot(
        hooks={name: hook for name, hook in snapshot.hooks.items() if hook.environment not in found}
        | {
            name: by_environment[one.environment, name]
            for one in found.values()
            for name in one.hooks
            if (one.environment, name) in by_environment
        },
        hooks_by_environment=by_environment,
        queues={
            queue: spec
            for queue, spec in snapshot.queues.items()
            if queue.scope not in found or queue.queue in found[queue.scope].names
        }
        | {one.environment.queue(name): spec for one in found.values() for name, spec in one.queues.items()},
        channels={key: channel for key, channel in snapshot.channels.items() if key[0] not in found}
        | {(one.environment, channel.id): channel for one in found.values() for channel in one.app.channels},
    )
