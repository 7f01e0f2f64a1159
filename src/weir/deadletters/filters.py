"""Which dead letters are meant: plain fields, which PostgreSQL checks, and a CEL expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from weir.errors import InvalidInput
from weir.model.message import DeathReason
from weir.spec.cel import Expression, compile_expression, readable
from weir.spec.evaluation import Record, json_value
from weir.spec.infer import TypeMistake, infer
from weir.spec.types import ANY, BOOL, INT, STRING, Type, map_of

if TYPE_CHECKING:
    # The processes of the box import this module, and not the driver of PostgreSQL.
    from weir.deadletters.dead_letter import DeadLetter

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
    if unknown := expression.variables - variables.keys():
        known = ", ".join(sorted(variables))
        raise InvalidInput(f"`{text:.80}`: {what} has no `{min(unknown)}`; it has {known}")
    return expression


def check_boolean(text: str, variables: Mapping[str, Type] = VARIABLES) -> None:
    """Refuse an expression that can be neither true nor false, whatever its variables are."""
    try:
        kind = infer(text, variables)
    except TypeMistake:
        # The engine may still have an answer: `false && 1` is false.
        return
    if kind not in (BOOL, ANY):
        raise InvalidInput(f"`{text:.80}` answers {kind}; expected true or false, as from `attempts > 3`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate(Generic[Message]):
    """An expression as a test of messages; `weir.deadletters.evaluation` applies it."""

    expression: Expression
    record_of: Callable[[Message, Expression], Record]
    name_of: Callable[[Message], tuple[str, str]]
    """The organization whose message it is, and the id of the message."""


def holds(text: str, payload: bytes | None, values: dict[str, Any]) -> bool:
    """Whether the expression is true for one message; InvalidInput if it is neither true nor false."""
    value = value_of(text, payload, values)
    if not isinstance(value, bool):
        raise InvalidInput(f"`{text}` answers {value!r:.80}; expected true or false")
    return value


def value_of(text: str, payload: bytes | None, values: dict[str, Any]) -> Any:
    """The value of the expression for one message."""
    known = {"payload": None if payload is None else json_value(payload), **readable(values)}
    return compile_expression(text).evaluate(known)


def record_of(letter: DeadLetter, expression: Expression) -> Record:
    """What the expression may look at in a letter."""
    values = {
        name: dict(letter.headers) if name == "headers" else _value(letter, name)
        for name in expression.variables
        if name != "payload"
    }
    return letter.payload if "payload" in expression.variables else None, values


def _value(letter: DeadLetter, name: str) -> Any:
    return letter.queue.queue if name == "queue" else getattr(letter, name)


def letter_predicate(text: str) -> Predicate[DeadLetter]:
    """An expression over `VARIABLES` as a test of dead letters."""
    return Predicate(expression=compile_known(text), record_of=record_of, name_of=letter_name)


def letter_name(letter: DeadLetter) -> tuple[str, str]:
    """The organization whose letter it is, and its id."""
    return letter.queue.organization, letter.id
