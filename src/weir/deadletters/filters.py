"""Which dead letters are meant: plain fields, which PostgreSQL checks, and a CEL expression."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from weir.deadletters.dead_letter import DeadLetter
from weir.errors import InvalidInput
from weir.model.logged import LoggedMessage
from weir.model.message import DeathReason
from weir.spec.cel import Expression, compile_expression
from weir.spec.infer import TypeMistake, UnknownName, infer
from weir.spec.types import ANY, BOOL, INT, STRING, Type, map_of

Message = TypeVar("Message")

VARIABLES: Mapping[str, Type] = {
    "payload": ANY,
    "headers": map_of(STRING),
    **dict.fromkeys(("id", "queue", "key", "error", "reason", "fingerprint"), STRING),
    **dict.fromkeys(("priority", "attempts", "max_attempts", "enqueued_at_ms", "died_at_ms"), INT),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """All conditions that are given must hold. `expression` is CEL over `VARIABLES`."""

    queue: str | None = None
    fingerprint: str | None = None
    reason: str | None = None
    died_from_ms: int | None = None
    died_to_ms: int | None = None
    expression: str | None = None
    include_unexhausted: bool = False
    """Purges take only letters that used up their attempts, unless this is set."""

    def __post_init__(self) -> None:
        if self.reason is not None and self.reason not in set(DeathReason):
            known = ", ".join(DeathReason)
            raise InvalidInput(f"`{self.reason:.64}` is not a reason of death; expected one of {known}")
        if None not in (self.died_from_ms, self.died_to_ms) and self.died_from_ms > self.died_to_ms:  # type: ignore[operator]
            raise InvalidInput("`died_from_ms` is after `died_to_ms`; swap them")
        if self.expression is not None:
            compile_known(self.expression)

    @property
    def empty(self) -> bool:
        """Whether it has no conditions, so that every letter would match."""
        named = (self.queue, self.fingerprint, self.reason, self.died_from_ms, self.died_to_ms)
        return self.expression is None and all(value is None for value in named)

    def described(self) -> dict[str, Any]:
        """The fields that are given."""
        return {name: value for name, value in asdict(self).items() if value not in (None, False)}

    def conditions(self) -> dict[str, Any]:
        """The plain fields as parameters of the queries over a window."""
        return {
            "reason": self.reason,
            "died_from_ms": self.died_from_ms,
            "died_to_ms": self.died_to_ms,
        }


def compile_known(
    text: str, variables: Mapping[str, Type] = VARIABLES, *, what: str = "a dead letter"
) -> Expression:
    """Compile an expression over `variables`; unknown names are refused before anything is touched."""
    expression = compile_expression(text)
    if (unknown := _unknown_name(expression, variables)) is not None:
        known = ", ".join(sorted(variables))
        raise InvalidInput(f"`{text:.80}`: {what} has no `{unknown}`; it has {known}")
    return expression


def _unknown_name(expression: Expression, variables: Mapping[str, Type]) -> str | None:
    """A name that is not a variable, or None. The name that a comprehension binds is known only within it."""
    names = expression.variables - variables.keys()
    if nowhere := names - set(expression.comprehensions):
        return min(nowhere)
    try:
        infer(expression.text, variables)
    except UnknownName as mistake:
        return mistake.name
    except TypeMistake:
        # Inference is stricter than the engine, which may still have an answer.
        pass
    return None


def check_boolean(text: str, variables: Mapping[str, Type] = VARIABLES) -> None:
    """Refuse an expression that can be neither true nor false, whatever its variables are."""
    try:
        kind = infer(text, variables)
    except TypeMistake:
        # The engine may still have an answer: `false && 1` is false.
        return
    if kind not in (BOOL, ANY):
        raise InvalidInput(f"`{text:.80}` answers {kind}; expected true or false, as from `attempts > 3`")


def predicate(
    expression: Expression, variables_of: Callable[[Message, Expression], dict[str, Any]]
) -> Callable[[Message], bool]:
    """The expression as a test of one message; it raises InvalidInput for a message without an answer."""

    def holds(message: Message) -> bool:
        value = expression.evaluate(variables_of(message, expression))
        if not isinstance(value, bool):
            raise InvalidInput(f"`{expression.text}` answers {value!r:.80}; expected true or false")
        return value

    return holds


def variables_of(letter: DeadLetter, expression: Expression) -> dict[str, Any]:
    """The variables of an expression for a letter; the payload is parsed only if the expression names it."""
    values: dict[str, Any] = {
        "headers": dict(letter.headers),
        "key": letter.key,
        "priority": letter.priority,
        "queue": letter.queue.queue,
        "error": letter.error,
        "reason": letter.reason,
        "fingerprint": letter.fingerprint,
        "attempts": letter.attempts,
        "max_attempts": letter.max_attempts,
        "enqueued_at_ms": letter.enqueued_at_ms,
        "died_at_ms": letter.died_at_ms,
        "id": letter.id,
    }
    if "payload" in expression.variables:
        values["payload"] = payload_of(letter)
    return values


def payload_of(message: DeadLetter | LoggedMessage) -> Any:
    """The payload as a JSON value; None if it is not JSON."""
    try:
        return json.loads(message.payload)
    except (ValueError, RecursionError):
        return None
