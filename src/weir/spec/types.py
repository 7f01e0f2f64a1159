"""Types of message fields: `string`, `int`, `float`, `bool`, `time`, `json`, `list<…>`, `map<string, …>`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

PLAIN = ("string", "int", "float", "bool", "time", "json")
TYPE_NAMES = (*PLAIN, "list<…>", "map<string, …>")


@dataclass(frozen=True, slots=True)
class Type:
    """A type of the language. `json` is any value, so it is compatible with every type."""

    name: str
    inner: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}<{', '.join(map(str, self.inner))}>" if self.inner else self.name


ANY = Type("json")
STRING = Type("string")
INT = Type("int")
FLOAT = Type("float")
BOOL = Type("bool")
TIME = Type("time")
DURATION = Type("duration")
BYTES = Type("bytes")
NULL = Type("null")


def list_of(inner: Type) -> Type:
    return Type("list", (inner,))


def map_of(inner: Type) -> Type:
    return Type("map", (STRING, inner))


@lru_cache(maxsize=1024)
def parse_type(text: str) -> Type | None:
    """The type that a text spells; None if it is not a type."""
    text = text.strip()
    if text in PLAIN:
        return Type(text)
    name, bracket, rest = text.partition("<")
    # Deeper nesting is not useful, and every level is a recursion.
    if not bracket or not rest.endswith(">") or text.count("<") > 8:
        return None
    inside = rest[:-1]
    if name.strip() == "list":
        inner = parse_type(inside)
        return list_of(inner) if inner else None
    key, comma, value = inside.partition(",")
    if name.strip() == "map" and comma and key.strip() == "string":
        inner = parse_type(value)
        return map_of(inner) if inner else None
    return None


def is_type(text: str) -> bool:
    return parse_type(text) is not None


def compatible(one: Type, other: Type) -> bool:
    """Whether a value could be of both types."""
    if ANY in (one, other) or NULL in (one, other):
        return True
    if {one.name, other.name} == {"int", "float"}:
        return True
    if one.name != other.name:
        return False
    return all(compatible(a, b) for a, b in zip(one.inner, other.inner, strict=False))


def joined(one: Type, other: Type) -> Type:
    """The type of a value that comes from either side."""
    return one if one == other else ANY
