"""Patches payloads on their way back: merges the answer of a CEL expression in, and checks the result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from weir.deadletters.filters import VARIABLES, compile_known, value_of
from weir.errors import InvalidInput
from weir.spec.cel import Expression
from weir.spec.infer import TypeMistake, infer
from weir.spec.ir import MessageField
from weir.spec.message_values import conformed
from weir.spec.types import ANY

REPLACE = "replace:"
"""A patch that begins with it answers whole payloads."""
_HOW = (
    f'expected an object, such as `{{"currency": "EUR"}}`; begin with `{REPLACE}` to replace whole payloads'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A compiled patch and the message type that patched payloads must have."""

    expression: Expression
    fields: tuple[MessageField, ...] = ()
    replaces: bool = False
    """The answer is the new payload, and is not merged into the old one."""


def patch_payload(
    text: str, fields: tuple[MessageField, ...], replaces: bool, payload: bytes, values: dict[str, Any]
) -> bytes:
    """The patched payload; InvalidInput if there is no answer or it breaks the message type.

    It merges objects as JSON Merge Patch does: null removes a member, any other value sets it.
    """
    answer = value_of(text, payload, values)
    patched = answer if replaces else _merged_into(_parsed(payload), answer)
    if fields:
        if not isinstance(patched, Mapping):
            raise InvalidInput("the patched payload is not an object, as the message type asks")
        conformed(fields, patched, what="the patched payload")
    try:
        return json.dumps(patched, separators=(",", ":"), allow_nan=False, default=_moment).encode()
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the patched payload is not JSON: {error}") from None


def _parsed(payload: bytes) -> Any:
    """The payload with every digit and every half of a pair, as the expression does not see it."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return None


def compile_patch(text: str, fields: tuple[MessageField, ...] = ()) -> Patch:
    """Compile a patch; a bad expression is refused before anything is touched."""
    expression = text.removeprefix(REPLACE)
    replaces = expression != text
    if not replaces:
        _check_object(expression)
    return Patch(expression=compile_known(expression), fields=fields, replaces=replaces)


def _check_object(text: str) -> None:
    """Refuse a patch that can never answer an object, whatever its variables are."""
    try:
        kind = infer(text, VARIABLES)
    except TypeMistake:
        # The engine may still have an answer.
        return
    if kind != ANY and kind.name != "map":
        raise InvalidInput(f"the patch `{text:.80}` answers {kind}; {_HOW}")


def _merged_into(payload: Any, answer: Any) -> Any:
    if not isinstance(answer, Mapping):
        raise InvalidInput(f"the patch answers `{json.dumps(answer, default=str):.80}`; {_HOW}")
    if not isinstance(payload, Mapping):
        raise InvalidInput(
            "the payload is not a JSON object, so nothing can be merged into it; "
            f"begin the patch with `{REPLACE}` to replace it"
        )
    return merged(payload, answer)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396: the target with the patch merged in."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def _moment(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} has no JSON form")
