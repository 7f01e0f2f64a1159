"""An alert rule: its metric, its condition and its channels. All checks of rules are here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from operator import ge, gt, le, lt
from types import MappingProxyType
from typing import Any

from weir.alerts.alert_metrics import CATALOGUE, About, Metric, condition_words, parse_metric
from weir.errors import InvalidInput
from weir.model.durations import SECOND_MS, WEEK_MS
from weir.model.names import EnvironmentRef, check_name
from weir.model.wording import duration
from weir.spec.ir import DEFAULT_ALERT_COOLDOWN_MS, DEFAULT_ALERT_WINDOW_MS, AlertSpec, AppSpec

# The finest bucket of the warehouse.
MIN_WINDOW_MS = 5 * SECOND_MS
MAX_WINDOW_MS = WEEK_MS
MAX_CHANNELS = 16


class Operator(StrEnum):
    ABOVE = ">"
    AT_LEAST = ">="
    BELOW = "<"
    AT_MOST = "<="

    @property
    def rising(self) -> bool:
        """Whether larger values are worse."""
        return self in (Operator.ABOVE, Operator.AT_LEAST)

    def holds(self, value: float, threshold: float) -> bool:
        return _COMPARE[self](value, threshold)


_COMPARE: Mapping[Operator, Callable[[float, float], bool]] = MappingProxyType(
    {Operator.ABOVE: gt, Operator.AT_LEAST: ge, Operator.BELOW: lt, Operator.AT_MOST: le}
)
_ALIASES = {
    "gt": Operator.ABOVE,
    "greater_than": Operator.ABOVE,
    "gte": Operator.AT_LEAST,
    "lt": Operator.BELOW,
    "less_than": Operator.BELOW,
    "lte": Operator.AT_MOST,
}


def parse_operator(text: str) -> Operator:
    name = text.strip().lower() if isinstance(text, str) else ""
    if name in _ALIASES:
        return _ALIASES[name]
    try:
        return Operator(name)
    except ValueError:
        raise InvalidInput(f"`{text!s:.32}` is not a comparison; expected `>`, `>=`, `<` or `<=`") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDraft:
    """The part of a rule that a person writes."""

    name: str
    metric: Metric
    operator: Operator
    threshold: float
    queue: str | None = None
    """None: every queue of the environment; each has its own alert."""
    clear_threshold: float | None = None
    """Hysteresis: the value counts as clear on the calm side of this; None is the threshold itself."""
    window_ms: int = DEFAULT_ALERT_WINDOW_MS
    cooldown_ms: int = DEFAULT_ALERT_COOLDOWN_MS
    auto_resolve: bool = True
    channels: tuple[str, ...] = ()
    enabled: bool = True

    @property
    def condition(self) -> str:
        """When it fires, for people."""
        return condition_words(self.metric, self.operator.value, self.threshold, self.window_ms)

    def breaches(self, value: float) -> bool:
        return self.operator.holds(value, self.threshold)

    def is_clear(self, value: float) -> bool:
        """Whether a value lies on the calm side, past the hysteresis."""
        if self.clear_threshold is None:
            return not self.breaches(value)
        return value <= self.clear_threshold if self.operator.rising else value >= self.clear_threshold


class Origin(StrEnum):
    API = "api"
    SPEC = "spec"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """A stored rule."""

    id: str
    environment: EnvironmentRef
    draft: RuleDraft
    origin: Origin = Origin.API
    created_at_ms: int = 0
    updated_at_ms: int = 0


def draft_of(
    *,
    name: str,
    metric: str,
    operator: str,
    threshold: float,
    queue: str | None = None,
    clear_threshold: float | None = None,
    window_ms: int = DEFAULT_ALERT_WINDOW_MS,
    cooldown_ms: int = DEFAULT_ALERT_COOLDOWN_MS,
    auto_resolve: bool = True,
    channels: tuple[str, ...] = (),
    enabled: bool = True,
) -> RuleDraft:
    """The rule that a request describes; InvalidInput says what to change."""
    draft = RuleDraft(
        name=check_name(name, what="alert rule"),
        metric=parse_metric(metric),
        operator=parse_operator(operator),
        threshold=_number(threshold, what="threshold"),
        queue=None if queue is None else check_name(queue, what="queue"),
        clear_threshold=None if clear_threshold is None else _number(clear_threshold, what="clear threshold"),
        window_ms=_between(window_ms, MIN_WINDOW_MS, MAX_WINDOW_MS, what="window"),
        cooldown_ms=_between(cooldown_ms, 0, MAX_WINDOW_MS, what="cooldown"),
        auto_resolve=auto_resolve,
        channels=_channels(channels),
        enabled=enabled,
    )
    _check_fit(draft)
    return draft


def draft_from_spec(alert: AlertSpec) -> RuleDraft:
    """The rule of an `alert` block, with the checks of the API."""
    return draft_of(
        name=alert.name,
        metric=alert.metric,
        operator=alert.operator,
        threshold=alert.threshold,
        queue=alert.queue,
        window_ms=alert.window_ms,
        cooldown_ms=alert.cooldown_ms,
        auto_resolve=alert.auto_resolve,
        channels=alert.channels,
    )


def alert_mistakes(app: AppSpec) -> Iterator[tuple[tuple[str, ...], str]]:
    """What rules refuse in the alerts of a spec: the path of each mistake, and what is wrong."""
    for alert in app.alerts:
        for key, given in _given(alert).items():
            try:
                draft_of(
                    name=alert.name,
                    metric=alert.metric,
                    operator=alert.operator,
                    threshold=alert.threshold,
                    **given,
                )
            except InvalidInput as error:
                yield ("alert", alert.name, key), error.message
                if key == "when":
                    break


def _given(alert: AlertSpec) -> dict[str, dict[str, Any]]:
    """The arguments that each property of an alert gives, beside its condition."""
    return {
        "when": {},
        "queue": {"queue": alert.queue},
        "window": {"window_ms": alert.window_ms},
        "cooldown": {"cooldown_ms": alert.cooldown_ms},
        "channels": {"channels": alert.channels},
    }


def check_seen(draft: RuleDraft, *, interval_ms: int) -> None:
    """Refuse a window that is shorter than the time between two evaluations, which do not see the rest."""
    if draft.window_ms < interval_ms:
        raise InvalidInput(
            f"the window of `{draft.name}` is {duration(draft.window_ms)}, and rules are evaluated every "
            f"{duration(interval_ms)}: what happens in between would not be seen; "
            f"give it at least {duration(interval_ms)}"
        )


def _number(value: float, *, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InvalidInput(f"the {what} is `{value!s:.32}`; expected a finite number of at least 0")
    return float(value)


def _between(value: int, low: int, high: int, *, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(f"the {what} is `{value!s:.32}` ms; expected {duration(low)} to {duration(high)}")
    return value


def _channels(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) > MAX_CHANNELS:
        raise InvalidInput(f"a rule names {len(names)} channels; at most {MAX_CHANNELS} are allowed")
    return tuple(dict.fromkeys(check_name(name, what="alert channel") for name in names))


def _check_fit(draft: RuleDraft) -> None:
    """Refuse a well-formed rule that can never fire or never clear."""
    about = CATALOGUE[draft.metric]
    if draft.queue is not None and about.about is not About.QUEUE:
        raise InvalidInput(f"`{draft.metric}` is about {about.about}, not about a queue; leave `queue` out")
    if about.highest is not None and draft.threshold > about.highest:
        raise InvalidInput(f"`{draft.metric}` never exceeds {about.highest:g}; lower the threshold")
    if draft.clear_threshold is not None and draft.breaches(draft.clear_threshold):
        raise InvalidInput("the clear threshold would itself raise the alert; put it on the calm side")
