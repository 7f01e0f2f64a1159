"""The functions that Weir adds to CEL: each can be called as `f(x, y)` and as `x.f(y)`, and counts its cost.

A text function can multiply its input: `s.replace('a', s)` squares it. So an evaluation has an allowance for
what all its calls together look at and make.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

MAX_RANGE = 1_000
IN_PLACE = 1 << 18
"""What one evaluation beside an event loop may look at and make: about a millisecond."""
BOXED = 1 << 24
"""The same in the box."""
MOST_ARGUMENTS = 8
"""Of `min`, `max` and `sum`, which also take a list."""
_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\v": "\\v",
}


class _Allowance(threading.local):
    """What the evaluation of this thread may still look at and make: characters and values."""

    def __init__(self) -> None:
        self._most = IN_PLACE
        self._left = 0
        self.exhausted = False
        """Whether an evaluation needed more, since somebody set this to False."""

    def widen(self) -> None:
        """Allow as much as the budget of the box does."""
        self._most = BOXED

    def begin(self) -> None:
        """Begin an evaluation."""
        self._left = self._most

    def spend(self, count: int) -> None:
        """Use some of it up; ValueError if there is not so much left."""
        self._left -= count
        if self._left < 0:
            self.exhausted = True
            raise ValueError("its functions look at or make too many characters and values")


ALLOWANCE = _Allowance()
_spend = ALLOWANCE.spend


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text, got {value!r:.40}")
    _spend(len(value) + 1)
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, got {value!r:.40}")
    _spend(len(value) + 1)
    return value


def _place(value: Any, size: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= size:
        raise ValueError(f"{what} {value!r:.40} is out of range; there are {size}")
    return value


def _char_at(text: Any, index: Any) -> str:
    at = _place(index, len(_text(text)), "character")
    return str(text[at : at + 1])


def _index_of(text: Any, part: Any, start: Any = 0) -> int:
    return _text(text).find(_text(part), _place(start, len(text), "character"))


def _last_index_of(text: Any, part: Any, last: Any = None) -> int:
    end = len(_text(text)) if last is None else _place(last, len(text), "character")
    return str(text).rfind(_text(part), 0, end + len(part))


def _lower_ascii(text: Any) -> str:
    return "".join(one.lower() if "A" <= one <= "Z" else one for one in _text(text))


def _upper_ascii(text: Any) -> str:
    return "".join(one.upper() if "a" <= one <= "z" else one for one in _text(text))


def _replace(text: Any, old: Any, new: Any, limit: Any = -1) -> str:
    count = _text(text).count(_text(old))
    if isinstance(limit, int) and limit >= 0:
        count = min(count, limit)
    _spend(count * len(_text(new)))
    return str(text).replace(old, new, count)


def _split(text: Any, separator: Any, limit: Any = -1) -> list[str]:
    parts = list(_text(text)) if _text(separator) == "" else text.split(separator)
    _spend(len(parts))
    if limit < 0 or limit >= len(parts):
        return parts
    return [] if limit == 0 else [*parts[: limit - 1], separator.join(parts[limit - 1 :])]


def _substring(text: Any, start: Any, end: Any = None) -> str:
    stop = len(_text(text)) if end is None else _place(end, len(text), "character")
    return str(text[_place(start, stop, "character") : stop])


def _trim(text: Any) -> str:
    return _text(text).strip()


def _join(items: Any, separator: Any = "") -> str:
    parts = [_text(one) for one in _list(items)]
    _spend(len(parts) * len(_text(separator)))
    return str(separator).join(parts)


def _reverse(value: Any) -> Any:
    return (_text(value) if isinstance(value, str) else _list(value))[::-1]


def _quote(text: Any) -> str:
    return '"' + "".join(_ESCAPES.get(one, one) for one in _text(text)) + '"'


def _contains(items: Any, item: Any) -> bool:
    return _frozen(item) in set(map(_frozen, _list(items)))


def _distinct(items: Any) -> list[Any]:
    seen: dict[Any, Any] = {}
    for one in _list(items):
        seen.setdefault(_frozen(one), one)
    return list(seen.values())


def _flatten(items: Any, depth: Any = 1) -> list[Any]:
    found: list[Any] = []
    for one in _list(items):
        if isinstance(one, list) and depth > 0:
            found.extend(_flatten(one, depth - 1))
        else:
            found.append(one)
    return found


def _slice(items: Any, start: Any, end: Any) -> list[Any]:
    stop = _place(end, len(_list(items)), "value")
    return list(items[_place(start, stop, "value") : stop])


def _sort(items: Any) -> list[Any]:
    values = _list(items)
    _spend(8 * len(values))
    return sorted(values)


def _first(items: Any) -> Any:
    return _list(items)[0]


def _last(items: Any) -> Any:
    return _list(items)[-1]


def _range(length: Any) -> list[int]:
    if isinstance(length, bool) or not isinstance(length, int) or length > MAX_RANGE:
        raise ValueError(f"a range of {length!r:.40} values; at most {MAX_RANGE} are allowed")
    _spend(max(0, length))
    return list(range(length))


def _several(values: tuple[Any, ...]) -> list[Any]:
    found = _list(values[0]) if len(values) == 1 and isinstance(values[0], list) else list(values)
    if any(isinstance(one, bool) for one in found):
        raise ValueError("truth values have no order and no sum")
    return found


def _min(*values: Any) -> Any:
    return min(_several(values))


def _max(*values: Any) -> Any:
    return max(_several(values))


def _sum(*values: Any) -> Any:
    found = _several(values)
    if not all(isinstance(one, (int, float)) for one in found):
        raise ValueError("only numbers have a sum")
    return sum(found)


def _sets_contains(whole: Any, part: Any) -> bool:
    return _set(part) <= _set(whole)


def _sets_equivalent(one: Any, other: Any) -> bool:
    return _set(one) == _set(other)


def _sets_intersects(one: Any, other: Any) -> bool:
    return not _set(one).isdisjoint(_set(other))


def _set(items: Any) -> set[Any]:
    return set(map(_frozen, _list(items)))


def _frozen(value: Any) -> Any:
    """The value as a member of a set, equal to another where CEL calls them equal: 1 is 1.0, but not true."""
    if isinstance(value, list):
        _spend(len(value))
        return ("list", *map(_frozen, value))
    if isinstance(value, dict):
        _spend(len(value))
        return ("map", frozenset((_frozen(key), _frozen(one)) for key, one in value.items()))
    if isinstance(value, (bytearray, bytes)):
        return ("bytes", bytes(value))
    if isinstance(value, (bool, timedelta)):
        return (type(value), value)
    return value


LISTED: dict[str, tuple[Callable[..., Any], Iterable[int]]] = {
    "charAt": (_char_at, (2,)),
    "indexOf": (_index_of, (2, 3)),
    "lastIndexOf": (_last_index_of, (2, 3)),
    "lowerAscii": (_lower_ascii, (1,)),
    "upperAscii": (_upper_ascii, (1,)),
    "replace": (_replace, (3, 4)),
    "split": (_split, (2, 3)),
    "substring": (_substring, (2, 3)),
    "trim": (_trim, (1,)),
    "join": (_join, (1, 2)),
    "reverse": (_reverse, (1,)),
    "strings.quote": (_quote, (1,)),
    "contains": (_contains, (2,)),
    "distinct": (_distinct, (1,)),
    "flatten": (_flatten, (1, 2)),
    "slice": (_slice, (3,)),
    "sort": (_sort, (1,)),
    "first": (_first, (1,)),
    "last": (_last, (1,)),
    "lists.range": (_range, (1,)),
    "min": (_min, range(1, MOST_ARGUMENTS + 1)),
    "max": (_max, range(1, MOST_ARGUMENTS + 1)),
    "sum": (_sum, range(1, MOST_ARGUMENTS + 1)),
    "sets.contains": (_sets_contains, (2,)),
    "sets.equivalent": (_sets_equivalent, (2,)),
    "sets.intersects": (_sets_intersects, (2,)),
}
"""Name -> the function, and how many arguments it takes."""
