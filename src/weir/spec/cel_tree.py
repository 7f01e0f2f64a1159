"""Reads the tree of an expression out of what the engine's parser gives: protobuf, in its wire format.

The message is `cel.expr.ParsedExpr` in a `google.protobuf.Any`. Only what limits need is read: which names
come from outside, how often they are copied, which functions are called, and whether there are
comprehensions. The numbers are those of the fields in `google/protobuf/any.proto` and
`cel/expr/syntax.proto`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from weir.spec.functions import NAMESPACES

_SCALAR = frozenset(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_&&_", "_||_", "!_", "-_", "@in", "size"))
"""Functions of the engine itself whose value is small, whatever they look at."""

_ENGINE = frozenset(("_+_", "_?_:_", "_[_]"))
"""Functions of the engine itself that pass on what they are given."""
_TEST_ONLY = b"\x18\x01"
"""The last field of a selection that only asks whether there is such a field: `has(a.b)`."""


@dataclass(slots=True)
class Tree:
    """What an expression consists of."""

    names: set[str] = field(default_factory=set)
    """Names that it does not bind itself."""
    functions: list[str] = field(default_factory=list)
    """The functions that it calls, as often as it does, without their namespace."""
    comprehensions: int = 0
    copies: int = 0
    """How often a name from outside becomes part of the result, or is given to a function."""
    path: tuple[str, ...] = ()
    """The name and the fields, if it only looks a value up, as `payload.customer.id`."""
    structs: set[str] = field(default_factory=set)
    """The messages of protobuf that it makes."""

    def read(self, expr: bytes, bound: frozenset[str] = frozenset(), *, copied: bool = True) -> None:
        """Add an expression in which these names are bound; `copied` says that its value is used as it is."""
        for number, value in _fields(expr):
            match number:
                case 4:  # an identifier
                    name = _text(value, 1).removeprefix(".")
                    if name not in bound and not name.startswith("@"):
                        self.names.add(name)
                        self.copies += copied
                case 5:  # a selection
                    self._read_all(value, (1,), bound, copied)
                case 6:  # a call
                    function = _text(value, 2)
                    self.functions.append(function)
                    # What Weir's own functions look at is converted for them, whatever their value is for.
                    goes_on = function not in _SCALAR and (copied or function not in _ENGINE)
                    self._read_all(value, (3,) if _namespace(value) else (1, 3), bound, goes_on)
                case 7:  # a list
                    self._read_all(value, (1,), bound, copied)
                case 8:  # a map, or a message
                    self.structs.update(filter(None, [_text(value, 1)]))
                    for entry in _messages(value, (2,)):
                        self._read_all(entry, (3, 4), bound, copied)
                case 9:  # a comprehension: its range is outside of what it binds
                    self.comprehensions += 1
                    self._read_all(value, (2, 4), bound)
                    inside = bound | {_text(value, 1), _text(value, 3), _text(value, 8)}
                    self._read_all(value, (5, 6, 7), inside)

    def _read_all(
        self, message: bytes, numbers: tuple[int, ...], bound: frozenset[str], copied: bool = True
    ) -> None:
        for expr in _messages(message, numbers):
            self.read(expr, bound, copied=copied)


def read_tree(serialized: bytes) -> Tree:
    """The tree of an expression that the engine parsed and did not check."""
    tree = Tree()
    for parsed in _messages(serialized, (2,)):
        for expr in _messages(parsed, (2,)):
            tree.read(expr)
            tree.path = _path(expr)
    return tree


def _path(expr: bytes) -> tuple[str, ...]:
    for number, value in _fields(expr):
        if number == 4:
            return (_text(value, 1),)
        if number == 5 and _TEST_ONLY not in value[-len(_TEST_ONLY) :]:
            before = next(map(_path, _messages(value, (1,))), ())
            return (*before, _text(value, 2)) if before else ()
    return ()


def _namespace(call: bytes) -> bool:
    """Whether a call is one of a namespace, as in `math.abs(x)`."""
    return any(
        _text(name, 1) in NAMESPACES for target in _messages(call, (1,)) for name in _messages(target, (4,))
    )


def _messages(message: bytes, numbers: tuple[int, ...]) -> Iterator[bytes]:
    return (value for number, value in _fields(message) if number in numbers)


def _text(message: bytes, number: int) -> str:
    return next((value.decode() for value in _messages(message, (number,))), "")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The number and the value of each field that has a length; the others say nothing here."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        match key & 7:
            case 0:
                _, at = _varint(message, at)
            case 1:
                at += 8
            case 2:
                size, at = _varint(message, at)
                yield key >> 3, message[at : at + size]
                at += size
            case _:
                at += 4


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
