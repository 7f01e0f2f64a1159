"""The functions, methods and namespaces of input expressions, with the types of their results."""

from __future__ import annotations

from weir.spec.types import ANY, BOOL, BYTES, DURATION, FLOAT, INT, STRING, TIME, Type, list_of

FUNCTIONS: dict[str, Type] = {
    "has": BOOL,
    "size": INT,
    "string": STRING,
    "int": INT,
    "uint": INT,
    "double": FLOAT,
    "bool": BOOL,
    "bytes": BYTES,
    "timestamp": TIME,
    "duration": DURATION,
    "type": ANY,
    "dyn": ANY,
    "min": ANY,
    "max": ANY,
    "sum": ANY,
    "matches": BOOL,
}

METHODS: dict[str, tuple[tuple[str, ...], Type]] = {
    "size": (("string", "list", "map", "bytes"), INT),
    "contains": (("string", "list"), BOOL),
    "startsWith": (("string",), BOOL),
    "endsWith": (("string",), BOOL),
    "matches": (("string",), BOOL),
    "charAt": (("string",), STRING),
    "indexOf": (("string",), INT),
    "lastIndexOf": (("string",), INT),
    "lowerAscii": (("string",), STRING),
    "upperAscii": (("string",), STRING),
    "replace": (("string",), STRING),
    "split": (("string",), list_of(STRING)),
    "substring": (("string",), STRING),
    "trim": (("string",), STRING),
    "join": (("list",), STRING),
    "reverse": (("string", "list"), ANY),
    "distinct": (("list",), list_of(ANY)),
    "sort": (("list",), list_of(ANY)),
    "slice": (("list",), list_of(ANY)),
    "flatten": (("list",), list_of(ANY)),
    "min": (("list",), ANY),
    "max": (("list",), ANY),
    "sum": (("list",), ANY),
    "first": (("list",), ANY),
    "last": (("list",), ANY),
    "getFullYear": (("time",), INT),
    "getMonth": (("time",), INT),
    "getDate": (("time",), INT),
    "getDayOfMonth": (("time",), INT),
    "getDayOfWeek": (("time",), INT),
    "getDayOfYear": (("time",), INT),
    "getHours": (("time", "duration"), INT),
    "getMinutes": (("time", "duration"), INT),
    "getSeconds": (("time", "duration"), INT),
    "getMilliseconds": (("time", "duration"), INT),
}

NAMESPACES = ("math", "sets", "base64", "lists", "strings")
