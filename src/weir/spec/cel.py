"""CEL, the language of input expressions and filters. Only this module and `cel_functions` know the engine.

Expressions are short and have no side effects. Every mistake in the text or in the evaluation becomes an
`InvalidInput`. The engine stops after 10,000 steps of all comprehensions together. Where the rest of the cost
is not provably small (`Expression.cheap`), an expression is evaluated in the box: see `evaluation`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_encoders, ext_math

from weir.errors import InvalidInput
from weir.spec.cel_functions import ALLOWANCE, LISTED
from weir.spec.cel_tree import read_tree
from weir.spec.functions import FUNCTIONS, METHODS
from weir.spec.spec_problems import nearest

MAX_LENGTH = 1_024
MOST_CALLS = 8
"""Calls of Weir's own functions in a cheap expression; each converts its arguments."""
NUL_STAND_IN = "\ufdd0"
"""The engine ends a text at a NUL, so this character, which means nothing in Unicode, stands for one."""
NUL_ESCAPE = b"\\u0000"
"""How JSON writes it. A payload without it that orjson could read is readable as it is."""
_REPLACEMENT = "\ufffd"

# The engine declares names such as `type` and `list` itself. In a container of our own they can be variables.
_CONTAINER = "v"
_TYPES = frozenset(("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"))

_UNREADABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_POSITION = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (?:Syntax error: )?(.*)")
# The engine lists every token that it would accept, which is too long to help.
_NOISE = re.compile(r" expecting .*| \(in container '.*?'\)")
_UNDECLARED = re.compile(r"undeclared reference to '(.*)'")
_CODE = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_NO_FIELD = re.compile(r'Key not found in map : "(.*)"', re.DOTALL)
_NO_VARIABLE = re.compile(r'No value with name "v\.(.*)" found')
_MAX_LEVELS = 32


def _declared() -> Any:
    functions = []
    for name, (call, arities) in LISTED.items():
        # `contains` of a text is the engine's own.
        first = cel.Type.LIST if name == "contains" else cel.Type.DYN
        overloads = [
            cel.Overload(
                f"weir_{name}_{count}_{member}",
                return_type=cel.Type.DYN,
                parameters=[first, *[cel.Type.DYN] * (count - 1)],
                is_member=member,
                impl=call,
            )
            for count in arities
            for member in (False, True)
        ]
        functions.append(cel.FunctionDecl(name, overloads))
    return [cel.CelExtension("weir", functions), ext_math.ExtMath(), ext_encoders.ExtEncoders()]


_EXTENSIONS = _declared()
_PARSER = cel.NewEnv(extensions=_EXTENSIONS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expression:
    """A compiled expression. `evaluate` may be called from several threads at once."""

    text: str
    variables: frozenset[str]
    """The names that it does not bind itself."""
    cheap: bool
    """Whether it has no comprehension, no pattern and few functions, so that `copies` bounds its cost."""
    copies: int
    """How often what it looks at is converted: for its value, and for functions."""
    path: tuple[str, ...]
    """The names of a value that it only looks up: the engine would convert everything around it."""
    program: Any

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """The value of the expression over `readable` values; InvalidInput says why it has none."""
        value: Any = variables
        for name in self.path:
            if type(value) is not dict or name not in value:
                break
            value = value[name]
        else:
            if self.path:
                return _plain(value)
        ALLOWANCE.begin()
        data = {name: variables[name] for name in self.variables if name in variables}
        times = _take_times(data)
        try:
            program = _with_times(self, tuple(sorted(times.items()))) if times else self.program
            value = program.eval(data={f"{_CONTAINER}.{name}": one for name, one in data.items()})
            plain = value.plain_value()
            # The plain value of an error is its text.
            if type(plain) is str and value.type() == cel.Type.ERROR:
                raise self._failure(plain)
            return _plain(plain)
        except RuntimeError as error:
            raise self._failure(str(error)) from None
        except RecursionError:
            raise self._failure("its value is nested too deeply") from None

    def _failure(self, what: str) -> InvalidInput:
        if (field := _NO_FIELD.search(what)) is not None:
            what = f"there is no field `{field[1]:.80}`"
        elif (name := _NO_VARIABLE.search(what)) is not None:
            what = f"there is no field `{name[1]}`"
        elif "Iteration budget exceeded" in what:
            what = "its comprehensions take more than 10,000 steps"
        elif "Non-CEL value type for 'Python function" in what:
            what = "the functions that Weir adds give no times, durations and types"
        elif "construction from null" in what:
            what = "a text holds half of a surrogate pair"
        else:
            what = _CODE.sub("", what.splitlines()[0] if what else "it has no value")
        return InvalidInput(f"`{self.text}`: {what:.300}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledMapping:
    """Compiled expressions by the name of the input that each computes."""

    expressions: Mapping[str, Expression]
    variables: frozenset[str]
    cheap: bool
    copies: int

    def evaluate(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all inputs."""
        return {name: expression.evaluate(variables) for name, expression in self.expressions.items()}


@lru_cache(maxsize=4_096)
def compile_mapping(inputs: tuple[tuple[str, str], ...]) -> CompiledMapping:
    """Compile the expressions of named inputs; the same inputs are compiled once."""
    expressions = {name: compile_expression(text) for name, text in inputs}
    return CompiledMapping(
        expressions=expressions,
        variables=frozenset(name for one in expressions.values() for name in one.variables),
        # Each of many cheap expressions looks at the same payload.
        cheap=len(expressions) <= MOST_CALLS and all(one.cheap for one in expressions.values()),
        copies=sum(one.copies for one in expressions.values()),
    )


@lru_cache(maxsize=1_024)
def compile_expression(text: str, *, max_length: int = MAX_LENGTH) -> Expression:
    """Compile one expression; the `offset` of an InvalidInput is where in `text` it fails."""
    if len(text) > max_length:
        raise InvalidInput(
            f"an expression has {len(text)} characters; at most {max_length} are allowed", offset=0
        )
    if not text.isprintable() and _UNREADABLE.search(text):
        raise InvalidInput("an expression holds a control character or a lone surrogate; remove it", offset=0)
    if not text.strip():
        raise InvalidInput("an expression is empty; write one, such as `payload.id`", offset=0)
    try:
        tree = read_tree(_PARSER.compile(text, disable_check=True).serialize())
        if tree.structs:
            raise InvalidInput(f"`{text:.80}`: there is no type `{min(tree.structs):.80}`", offset=0)
        names = tree.names - (_TYPES if "type" in tree.functions else frozenset())
        program = _program(text, dict.fromkeys(names, cel.Type.DYN))
    except RuntimeError as error:
        raise _parse_error(text, str(error)) from None
    own = sum(name.rpartition(".")[2] in _OWN for name in tree.functions)
    return Expression(
        text=text,
        variables=frozenset(names),
        cheap=not tree.comprehensions and "matches" not in tree.functions and own <= MOST_CALLS,
        copies=tree.copies,
        path=tree.path if tree.path[:1] and tree.path[0] in names else (),
        program=program,
    )


def _program(text: str, variables: Mapping[str, Any]) -> Any:
    declared = {f"{_CONTAINER}.{name}": kind for name, kind in variables.items()}
    return cel.NewEnv(variables=declared, container=_CONTAINER, extensions=_EXTENSIONS).compile(text)


@lru_cache(maxsize=1_024)
def _with_times(expression: Expression, times: tuple[tuple[str, str], ...]) -> Any:
    """The program with variables that are times: the engine takes times only where they are declared."""
    kinds = dict.fromkeys(expression.variables, cel.Type.DYN)
    return _program(expression.text, kinds | {name: _TIMES[kind] for name, kind in times})


_TIMES = {
    "time": cel.Type.TIMESTAMP,
    "list": cel.Type.List(cel.Type.TIMESTAMP),
    "map": cel.Type.Map(cel.Type.STRING, cel.Type.TIMESTAMP),
}


def _take_times(data: dict[str, Any]) -> dict[str, str]:
    """Which variables are times. One among other values becomes a variable, as `message.enqueued_at`."""
    found: dict[str, str] = {}
    for name, value in list(data.items()):
        if isinstance(value, datetime):
            found[name] = "time"
        elif isinstance(value, list) and value and all(isinstance(one, datetime) for one in value):
            found[name] = "list"
        elif isinstance(value, dict):
            times = {key: one for key, one in value.items() if isinstance(one, datetime)}
            if times and len(times) == len(value):
                found[name] = "map"
            elif times:
                data[name] = value | {key: one.isoformat() for key, one in times.items()}
                data |= {f"{name}.{key}": one for key, one in times.items()}
                found |= dict.fromkeys((f"{name}.{key}" for key in times), "time")
    return found


_OWN = frozenset(name.rpartition(".")[2] for name in LISTED)
_KNOWN = frozenset((*FUNCTIONS, *METHODS, *_OWN))


def readable(value: Any) -> Any:
    """The value as the engine can read it: whole texts, and tuples as lists."""
    if isinstance(value, str):
        if value.isprintable():
            return value
        return _SURROGATE.sub(_REPLACEMENT, value.replace("\x00", NUL_STAND_IN))
    if isinstance(value, dict):
        return {readable(key): readable(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [readable(one) for one in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return _as_double(value)
    return value


def _as_double(value: int) -> float:
    """A number beyond 64 bits, as JSON's numbers are read elsewhere."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _plain(value: Any) -> Any:
    """What the engine gives as ordinary values of Python."""
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        return value.replace(NUL_STAND_IN, "\x00")
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, cel.Type):
        return str(value.name()).lower()
    return value


def _parse_error(text: str, error: str) -> InvalidInput:
    found = _POSITION.search(error)
    if "recursion" in error or found is None:
        what = f"it is nested more than {_MAX_LEVELS} levels deep" if "recursion" in error else error[:200]
        return InvalidInput(f"`{text:.80}` is not a CEL expression: {what}", offset=0)
    line, column = int(found[1]), int(found[2])
    what = _NOISE.sub("", found[3]).replace("'<EOF>'", "the end of the expression").strip()
    offset = sum(len(part) + 1 for part in text.split("\n")[: line - 1]) + column - 1
    if (unknown := _UNDECLARED.fullmatch(what)) is not None:
        # Every variable is declared, so it is a function; the engine points at its parenthesis.
        name = unknown[1]
        hint = nearest(name.rpartition(".")[2], _KNOWN)
        return InvalidInput(
            f"there is no function `{name:.80}`" + (f"; {hint}" if hint else ""),
            offset=max(0, offset - len(name)),
            length=len(name),
        )
    return InvalidInput(f"`{text:.80}` is not a CEL expression: {what:.300}", offset=min(offset, len(text)))
