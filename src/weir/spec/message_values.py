"""Converts the fields of a message to its message type, for input expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from weir.errors import InvalidInput
from weir.spec.ir import MessageField
from weir.spec.types import Type, parse_type


def conformed(fields: Iterable[MessageField], values: Mapping[str, Any], *, what: str) -> dict[str, Any]:
    """The values with each declared field converted to its type; InvalidInput names the first mistake."""
    result = dict(values)
    for field in fields:
        if values.get(field.name) is None:
            if not field.optional and parse_type(field.type) != Type("json"):
                raise InvalidInput(f"{what} has no `{field.name}`; expected {field.type}")
            result.setdefault(field.name, None)
            continue
        kind = parse_type(field.type)
        if kind is not None:
            result[field.name] = _fitted(values[field.name], kind, f"{what}: `{field.name}`")
    return result


def _fitted(value: Any, kind: Type, where: str) -> Any:
    match kind.name:
        case "json":
            return value
        case "time":
            return _time(value, where)
        case "list" if isinstance(value, list):
            return [_fitted(item, kind.inner[0], where) for item in value]
        case "map" if isinstance(value, Mapping):
            return {key: _fitted(item, kind.inner[1], where) for key, item in value.items()}
        # In Python `True` is an int, and here it is not a number.
        case "float" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        case "int" if isinstance(value, int) and not isinstance(value, bool):
            return value
        case "string" if isinstance(value, str):
            return value
        case "bool" if isinstance(value, bool):
            return value
    raise InvalidInput(f"{where} is {_spoken(value)}; expected {kind}")


def _time(value: Any, where: str) -> datetime:
    """A time from RFC 3339 text or from milliseconds since the epoch."""
    try:
        if isinstance(value, datetime):
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000, UTC)
        moment = datetime.fromisoformat(value)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError, OSError):
        raise InvalidInput(
            f"{where} is {_spoken(value)}; expected a time such as 2026-01-31T12:00:00Z"
        ) from None


def _spoken(value: Any) -> str:
    names = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), "an object" if isinstance(value, Mapping) else "of another type")
