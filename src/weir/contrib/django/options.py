"""The options of a backend in `TASKS`: what they are, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from weir.errors import InvalidInput, Misconfigured
from weir.model.names import check_name
from weir.spec.spec_problems import nearest
from weir.tasks.address import ApiAddress, find_api


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """`OPTIONS` of a backend."""

    url: str | None = None
    token: str | None = None
    organization: str | None = None
    project: str | None = None
    environment: str | None = None
    app: str | None = None
    """The name under which the backend owns its queues; by default `django`, or the backend's alias."""
    max_attempts: int = 1
    """1 by default, because tasks of Django are not written to be repeated unless their author says so."""
    timeout: float | None = None
    """How long an attempt may take, in seconds."""
    outbox: str | None = None
    """The database of `DATABASES` whose transactions carry their tasks."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> BackendOptions:
        """The options; Misconfigured names the first mistake."""
        for problem in _problems(given):
            raise Misconfigured(problem)
        return cls(**given)

    @property
    def address(self) -> ApiAddress:
        return ApiAddress(
            url=self.url,
            token=self.token,
            organization=self.organization,
            project=self.project,
            environment=self.environment,
        )


_TEXTS = ("url", "token", "organization", "project", "environment", "app", "outbox")
_NAMES = tuple(one.name for one in fields(BackendOptions))


def option_problems(given: Mapping[str, Any], queues: set[str]) -> Iterator[str]:
    """The mistakes in the settings of a backend, one sentence per mistake, for `manage.py check`."""
    found = list(_problems(given))
    yield from found
    for queue in sorted(queues, key=str):
        try:
            check_name(queue, what="queue")
        except InvalidInput as error:
            yield error.message
    if not found:
        try:
            find_api(BackendOptions(**given).address)
        except Misconfigured as error:
            yield f"{error.message}; in Django give `OPTIONS` their `url` and `token`"


def _problems(given: Mapping[str, Any]) -> Iterator[str]:
    for name, value in given.items():
        if name not in _NAMES:
            yield f"`OPTIONS` has no `{name}`; {nearest(name, _NAMES)}".rstrip("; ")
        elif name in _TEXTS and not (value is None or (isinstance(value, str) and value)):
            yield f"`{name}` of `OPTIONS` is not a text; give one, or leave it out"
    attempts, timeout = given.get("max_attempts", 1), given.get("timeout")
    if isinstance(attempts, bool) or not isinstance(attempts, int) or not 1 <= attempts <= 1_000:
        yield f"`max_attempts` of `OPTIONS` is {attempts!r}; give a whole number from 1 to 1000"
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0
    ):
        yield f"`timeout` of `OPTIONS` is {timeout!r}; give a number of seconds above 0"
