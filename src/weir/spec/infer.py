"""Infers the types of CEL expressions with a small precedence parser.

The engine decides what an expression does; this module only finds mistakes before it runs. Where it cannot
tell, the type is `json`, which fits every other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from weir.spec.functions import FUNCTIONS, METHODS, NAMESPACES
from weir.spec.spec_problems import Near
from weir.spec.types import (
    ANY,
    BOOL,
    BYTES,
    FLOAT,
    INT,
    NULL,
    STRING,
    TIME,
    Type,
    compatible,
    joined,
    list_of,
    map_of,
)

_TOKEN = re.compile(
    r"""\s+|//[^\n]*
    |(?P<bytes>[bB][rR]?(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))
    |(?P<string>[rR]?(?:\"\"\".*?\"\"\"|'''.*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))
    |(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+)
    |(?P<int>0[xX][0-9a-fA-F]+[uU]?|\d+[uU]?)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<op>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
_PRECEDENCE = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
_LEVELS = {sign: level for level, signs in enumerate(_PRECEDENCE, 1) for sign in signs}
_MACROS = {"all": BOOL, "exists": BOOL, "exists_one": BOOL, "map": None, "filter": None}


class TypeMistake(Exception):
    """A mistake and its offset in the expression. Every caller catches it, so it is not in the error tree."""

    def __init__(self, message: str, offset: int, near: Near | None = None, length: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.near = near
        self.length = length


class UnknownName(TypeMistake):
    """A name that is neither a field of the message nor bound by the expression."""

    def __init__(self, name: str, offset: int, known: Iterable[str]) -> None:
        super().__init__(f"the message has no field `{name}`", offset, (name, known), len(name))
        self.name = name


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


@dataclass(slots=True)
class _Parser:
    tokens: list[_Token]
    variables: dict[str, Type]
    open_world: bool
    at: int = 0
    bound: list[tuple[str, Type]] = field(default_factory=list)

    def peek(self) -> str:
        token = self.tokens[self.at]
        return token.text if token.kind in ("op", "word", "end") else ""

    def next(self) -> _Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def eat(self, text: str) -> bool:
        if self.peek() == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.eat(text):
            raise _UnknownForm

    def expression(self) -> Type:
        start = self.tokens[self.at]
        condition = self.binary(1)
        if not self.eat("?"):
            return condition
        _require(condition, BOOL, start, "a condition")
        first = self.binary(1)
        self.expect(":")
        return joined(first, self.expression())

    def binary(self, level: int) -> Type:
        left_token = self.tokens[self.at]
        left = self.unary()
        while (operator := self.peek()) in _LEVELS and _LEVELS[operator] >= level:
            token = self.next()
            right = self.binary(_LEVELS[operator] + 1)
            left = _combined(left, right, token, left_token)
        return left

    def unary(self) -> Type:
        token = self.tokens[self.at]
        if self.eat("!"):
            inner = self.unary()
            _require(inner, BOOL, token, "`!`")
            return BOOL
        if self.eat("-"):
            inner = self.unary()
            if inner not in (INT, FLOAT, ANY):
                raise TypeMistake(f"`-` does not apply to {inner}", token.start)
            return inner
        return self.postfix(self.primary())

    def postfix(self, kind: Type) -> Type:
        while True:
            if self.eat("."):
                kind = self.member(kind, self.next())
            elif self.eat("["):
                self.expression()
                self.expect("]")
                kind = kind.inner[-1] if kind.name in ("list", "map") else ANY
            else:
                return kind

    def member(self, kind: Type, name: _Token) -> Type:
        if name.kind != "word":
            raise _UnknownForm
        if self.eat("("):
            return self.macro(kind, name) if name.text in _MACROS else self.method(kind, name)
        if kind.name == "map":
            return kind.inner[1]
        if kind != ANY:
            raise TypeMistake(f"{kind} has no field `{name.text}`", name.start, length=len(name.text))
        return ANY

    def macro(self, kind: Type, name: _Token) -> Type:
        variable = self.next()
        self.expect(",")
        inner = kind.inner[0] if kind.name == "list" else STRING if kind.name == "map" else ANY
        self.bound.append((variable.text, inner))
        result = self.expression()
        while self.eat(","):
            result = self.expression()
        self.bound.pop()
        self.expect(")")
        fixed = _MACROS[name.text]
        if fixed is not None:
            return fixed
        return list_of(result) if name.text == "map" else kind

    def method(self, kind: Type, name: _Token) -> Type:
        self.arguments()
        if name.text not in METHODS:
            raise TypeMistake(
                f"there is no method `{name.text}`", name.start, (name.text, METHODS), len(name.text)
            )
        receivers, result = METHODS[name.text]
        if kind != ANY and receivers and kind.name not in receivers:
            raise TypeMistake(f"{kind} has no method `{name.text}`", name.start, length=len(name.text))
        return result

    def arguments(self) -> list[Type]:
        found: list[Type] = []
        while not self.eat(")"):
            found.append(self.expression())
            if not self.eat(",") and self.peek() != ")":
                raise _UnknownForm
        return found

    def primary(self) -> Type:
        token = self.next()
        match token.kind, token.text:
            case "op", "(":
                kind = self.expression()
                self.expect(")")
                return kind
            case "op", "[":
                return self.listing()
            case "op", "{":
                return self.mapping()
            case "string", _:
                return STRING
            case "bytes", _:
                return BYTES
            case "int", _:
                return INT
            case "float", _:
                return FLOAT
            case "word", "true" | "false":
                return BOOL
            case "word", "null":
                return NULL
            case "word", _:
                return self.word(token)
        raise _UnknownForm

    def listing(self) -> Type:
        kinds: list[Type] = []
        while not self.eat("]"):
            kinds.append(self.expression())
            if not self.eat(",") and self.peek() != "]":
                raise _UnknownForm
        return list_of(kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else ANY)

    def mapping(self) -> Type:
        while not self.eat("}"):
            self.expression()
            self.expect(":")
            self.expression()
            if not self.eat(",") and self.peek() != "}":
                raise _UnknownForm
        return map_of(ANY)

    def word(self, token: _Token) -> Type:
        if self.eat("("):
            self.arguments()
            if token.text not in FUNCTIONS:
                raise TypeMistake(
                    f"there is no function `{token.text}`",
                    token.start,
                    (token.text, FUNCTIONS),
                    len(token.text),
                )
            return FUNCTIONS[token.text]
        for name, kind in reversed(self.bound):
            if name == token.text:
                return kind
        if token.text in self.variables:
            return self.variables[token.text]
        if token.text in NAMESPACES and self.eat("."):
            self.next()
            if self.eat("("):
                self.arguments()
            return ANY
        if self.open_world:
            return ANY
        raise UnknownName(token.text, token.start, self.variables)


class _UnknownForm(Exception):
    """The engine accepts the expression, but this parser does not know its form."""


def infer(text: str, variables: Mapping[str, Type], *, open_world: bool = False) -> Type:
    """The type of an expression that the engine compiles; TypeMistake says what does not fit.

    With `open_world` unknown variables are accepted, because the queue declares no message type.
    """
    parser = _Parser(_tokens(text), dict(variables), open_world)
    try:
        kind = parser.expression()
    # The engine has accepted the text, so a form or a depth that is unknown here is not a mistake.
    except (_UnknownForm, RecursionError):
        return ANY
    return kind if parser.tokens[parser.at].kind == "end" else ANY


def _tokens(text: str) -> list[_Token]:
    tokens = [
        _Token(found.lastgroup, found[0], found.start())
        for found in _TOKEN.finditer(text)
        if found.lastgroup is not None
    ]
    # Two ends: after `next` has taken the first one, `peek` still finds a token.
    return [*tokens, _Token("end", "", len(text)), _Token("end", "", len(text))]


def _require(kind: Type, wanted: Type, token: _Token, what: str) -> None:
    if not compatible(kind, wanted):
        raise TypeMistake(f"{what} must be {wanted}, not {kind}", token.start)


def _combined(left: Type, right: Type, operator: _Token, start: _Token) -> Type:
    sign = operator.text
    if sign in ("&&", "||"):
        _require(left, BOOL, start, f"the left side of `{sign}`")
        _require(right, BOOL, operator, f"the right side of `{sign}`")
        return BOOL
    if sign == "in":
        if right.name not in ("list", "map", "json"):
            raise TypeMistake(f"`in` looks into a list or a map, not {right}", operator.start, length=2)
        return BOOL
    if sign in ("==", "!=", "<", "<=", ">", ">="):
        if not compatible(left, right):
            raise TypeMistake(f"`{sign}` compares {left} with {right}", operator.start, length=len(sign))
        return BOOL
    return _arithmetic(left, right, operator)


def _arithmetic(left: Type, right: Type, operator: _Token) -> Type:
    if ANY in (left, right):
        return ANY
    pair = {left.name, right.name}
    if operator.text in "+-" and "time" in pair and pair <= {"time", "duration"}:
        return TIME if left != right else Type("duration")
    if left != right:
        raise TypeMistake(
            f"`{operator.text}` joins {left} and {right}; convert one, as in `string(…)` or `int(…)`",
            operator.start,
        )
    numbers = ("int", "float", "duration")
    if left.name not in ((*numbers, "string", "list", "bytes") if operator.text == "+" else numbers):
        raise TypeMistake(f"`{operator.text}` does not apply to {left}", operator.start)
    return left
