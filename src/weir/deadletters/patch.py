"""Patches payloads on their way back: merges the answer of a CEL expression in, and checks the result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from weir.deadletters.dead_letter import DeadLetter
from weir.deadletters.filters import compile_known, payload_of, variables_of
from weir.errors import InvalidInput
from weir.spec.cel import Expression
from weir.spec.ir import MessageField
from weir.spec.message_values import conformed


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A compiled patch and the message type that patched payloads must have."""

    expression: Expression
    fields: tuple[MessageField, ...] = ()

    def apply(self, letter: DeadLetter) -> bytes:
        """The patched payload; InvalidInput if there is no answer or it breaks the message type.

        It merges objects as JSON Merge Patch does: null removes a member, any other value sets it.
        """
        answer = self.expression.evaluate(variables_of(letter, self.expression))
        patched = merged(payload_of(letter), answer)
        if self.fields:
            if not isinstance(patched, Mapping):
                raise InvalidInput("the patched payload is not an object, as the message type asks")
            conformed(self.fields, patched, what="the patched payload")
        try:
            return json.dumps(patched, separators=(",", ":"), allow_nan=False, default=_moment).encode()
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"the patched payload is not JSON: {error}") from None


def compile_patch(text: str, fields: tuple[MessageField, ...] = ()) -> Patch:
    """Compile a patch; a bad expression is refused before anything is touched."""
    return Patch(expression=compile_known(text), fields=fields)


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
