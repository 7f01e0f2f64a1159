"""Text to syntax tree: the Lark grammar, its transformer, and errors that name what was expected."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from weir.errors import SpecInvalid
from weir.model.durations import written_ms
from weir.spec.json_source import read_number
from weir.spec.spec_problems import SpecProblem, invalid, nearest
from weir.spec.syntax import (
    Comment,
    Condition,
    Document,
    JsonValue,
    Listing,
    Scalar,
    SourceSpan,
    SyntaxEntry,
    ValueKind,
)

MAX_BYTES = 1024 * 1024
# Of a longer expression the spaces are not looked at, because it is refused in any case.
MAX_SPACED = 16 * 1024
# How deep brackets may nest in an expression: the pattern is written out once per level.
MAX_BRACKETS = 12

# Lark's callback gets only the token, and one parser serves all threads. So the context tells which text a
# comment belongs to.
_comments: ContextVar[list[Comment]] = ContextVar("comments")
_TEXT = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
# A text that is not closed goes to the end of its line. Without that, the search would begin again at each of
# its escaped quotes.
_OPEN_TEXT = r"\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_SPACES = re.compile(rf"({_OPEN_TEXT})|\s+")
_WORDS = {
    "RBRACE": "`}`",
    "LBRACE": "`{`",
    "COLON": "`:`",
    "COMMA": "`,`",
    "ANGLE": "`>`",
    "MORETHAN": "`>`",
    "LESSTHAN": "`<`",
    "BRACKET": "`]`",
    "LSQB": "`[`",
    "APP": "`app`",
    "COMMAND": "`command`",
    "WORD": "a word",
    "STRING": "a text in double quotes",
    "NUMBER": "a number",
    "DURATION": "a duration such as `30s`",
    "EXPR": "an expression",
    "PATH": "`Entity.Command`",
    "URL": "a URL",
    "OPERATOR": "a comparison",
    "MAYBE": "`?`",
    "IN": "`in`",
    "$END": "the end of the file",
    "<END-OF-FILE>": "the end of the file",
}
BYTE_ORDER_MARK = "\ufeff"
"""Some editors write it at the beginning of a file. It has no meaning here."""
_KEYWORDS = ("message_type", "map_to", "enqueue", "deliver", "payload")
_JSON_WORDS = {"true": True, "false": False, "null": None}


def parse(text: str, *, file: str = "<spec>") -> Document:
    """The syntax tree of a spec; SpecInvalid shows the line that cannot be read."""
    text = text.removeprefix(BYTE_ORDER_MARK)
    if len(text) > MAX_BYTES:
        raise SpecInvalid(f"{file}: a spec has {len(text)} characters; at most {MAX_BYTES} are allowed")
    comments: list[Comment] = []
    token = _comments.set(comments)
    try:
        app: SyntaxEntry = _parser().parse(text)  # type: ignore[assignment]
    except UnexpectedInput as error:
        raise invalid([_problem(error, text)], file=file, text=text) from None
    finally:
        _comments.reset(token)
    return Document(file=file, text=text, app=app, comments=tuple(comments))


@cache
def _parser() -> Lark:
    grammar = files("weir.spec").joinpath("grammar.lark").read_text()
    return Lark(
        grammar.replace("@EXPRESSION@", _expression_pattern()),
        parser="lalr",
        transformer=_ToTree(),
        lexer_callbacks={"COMMENT": _keep_comment},
    )


def _expression_pattern() -> str:
    """The pattern of an expression: texts, brackets balanced to `MAX_BRACKETS` levels, other characters."""
    inside = ""
    for _ in range(MAX_BRACKETS):
        inside = rf"[(\[{{](?:{_TEXT}|{inside + '|' if inside else ''}[^()\[\]{{}}\"'])*[)\]}}]"
    unit = rf"(?:{_TEXT}|{inside}|\/(?!\/)|[^\s,()\[\]{{}}\"'\/])"
    return rf"{unit}(?:[ \t]*{unit})*"


def _keep_comment(token: Token) -> Token:
    _comments.get().append(Comment(token.rstrip(), _span(token)))
    return token


def _span(token: Token) -> SourceSpan:
    return SourceSpan(token.line or 1, token.column or 1, token.start_pos or 0, token.end_pos or 0)


def _across(first: SourceSpan, last: SourceSpan) -> SourceSpan:
    return SourceSpan(first.line, first.column, first.start, last.end)


def unescaped(text: str) -> str:
    """A quoted text without its quotes and escapes."""

    def meaning(found: re.Match[str]) -> str:
        escape = found[1]
        if escape[0] == "u" and len(escape) == 5:
            return chr(int(escape[1:], 16))
        return _ESCAPES.get(escape, escape)

    plain = _ESCAPE.sub(meaning, text[1:-1])
    if not _SURROGATES.search(plain):
        return plain
    # Two escapes may spell one character. A half of one without the other stays, and is refused later.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def one_line(expression: str) -> str:
    """An expression on one line: each run of white space outside quoted texts becomes one space."""
    if len(expression) > MAX_SPACED:
        return expression
    return _SPACES.sub(lambda found: found[1] or " ", expression.strip())


class _Member(NamedTuple):
    """One member of a JSON object."""

    name: str
    span: SourceSpan
    value: JsonValue


@v_args(inline=True)
class _ToTree(Transformer[Token, SyntaxEntry]):
    """Turns grammar rules into nodes while the parser runs."""

    def start(self, app: SyntaxEntry) -> SyntaxEntry:
        return app

    def app(self, name: Scalar, body: tuple[SyntaxEntry, ...], close: Token) -> SyntaxEntry:
        end = _span(close)
        return SyntaxEntry("app", name.span, _across(name.span, end), label=name, body=body)

    def body(self, *items: SyntaxEntry) -> tuple[SyntaxEntry, ...]:
        return items

    def property(self, key: Token, value: Scalar | Listing | Condition) -> SyntaxEntry:
        span = _span(key)
        return SyntaxEntry(str(key), span, _across(span, value.span), value=value)

    def block(self, key: Token, *rest: object) -> SyntaxEntry:
        span = _span(key)
        label = rest[0] if isinstance(rest[0], Scalar) else None
        *_, body, close = rest
        return SyntaxEntry(str(key), span, _across(span, _span(close)), label=label, body=body)  # type: ignore[arg-type]

    def message_type(self, key: Token, *rest: object) -> SyntaxEntry:
        *fields, close = rest
        span = _span(key)
        return SyntaxEntry(str(key), span, _across(span, _span(close)), body=tuple(fields))  # type: ignore[arg-type]

    def field(self, key: Token, value: Scalar) -> SyntaxEntry:
        span = _span(key)
        return SyntaxEntry(str(key), span, _across(span, value.span), value=value)

    def type(self, word: Token, *rest: object) -> Scalar:
        inner = [part for part in rest if isinstance(part, Scalar)]
        tokens = [part for part in rest if isinstance(part, Token)]
        text = str(word) + (f"<{', '.join(str(part.value) for part in inner)}>" if inner else "")
        maybe = "?" if tokens and tokens[-1].type == "MAYBE" else ""
        span = _across(_span(word), _span(tokens[-1] if tokens else word))
        return Scalar(ValueKind.TYPE, text + maybe, text + maybe, span)

    def map_to(self, key: Token, command: Token, path: Token, *inputs: SyntaxEntry) -> SyntaxEntry:
        return _action(key, Scalar(ValueKind.PATH, str(path), str(path), _span(path)), inputs)

    def enqueue(self, key: Token, target: Scalar, *inputs: SyntaxEntry) -> SyntaxEntry:
        return _action(key, target, inputs)

    def deliver(self, key: Token, target: Token, *options: SyntaxEntry) -> SyntaxEntry:
        value = unescaped(target) if target.type == "STRING" else str(target)
        return _action(key, Scalar(ValueKind.URL, value, str(target), _span(target)), options)

    def inputs(self, *rest: object) -> SyntaxEntry:
        *entries, close = rest
        return SyntaxEntry("", _span(close), _span(close), body=tuple(entries))  # type: ignore[arg-type]

    def options(self, body: tuple[SyntaxEntry, ...], close: Token) -> SyntaxEntry:
        return SyntaxEntry("", _span(close), _span(close), body=body)

    def input(self, key: Token, expression: Token) -> SyntaxEntry:
        value = Scalar(ValueKind.EXPRESSION, one_line(expression), str(expression), _span(expression))
        return SyntaxEntry(str(key), _span(key), _across(_span(key), value.span), value=value)

    def payload(self, key: Token, value: JsonValue) -> SyntaxEntry:
        span = _span(key)
        return SyntaxEntry(str(key), span, _across(span, value.span), value=value)

    def object(self, *rest: _Member | Token) -> JsonValue:
        members = [part for part in rest if isinstance(part, _Member)]
        found: dict[str, object] = {}
        mistakes = [mistake for member in members for mistake in member.value.mistakes]
        for member in members:
            if member.name in found:
                mistakes.append((f"`{member.name}` stands twice in this object; keep one", member.span))
            found[member.name] = member.value.value
        return _json(found, members[0].span if members else None, rest[-1], mistakes)

    def member(self, key: Token, value: JsonValue) -> _Member:
        return _Member(unescaped(key) if key.type == "STRING" else str(key), _span(key), value)

    def array(self, *rest: JsonValue | Token) -> JsonValue:
        items = [part for part in rest if isinstance(part, JsonValue)]
        mistakes = [mistake for item in items for mistake in item.mistakes]
        return _json([item.value for item in items], items[0].span if items else None, rest[-1], mistakes)

    def literal(self, token: Token) -> JsonValue:
        text, span = str(token), _span(token)
        if token.type == "STRING":
            return JsonValue(unescaped(token), span)
        if token.type == "NUMBER":
            return JsonValue(_number(token).value, span)
        if text in _JSON_WORDS:
            return JsonValue(_JSON_WORDS[text], span)
        mistake = f"`{text}` is not a JSON value; put a text into double quotes"
        return JsonValue(None, span, ((mistake, span),))

    def name(self, token: Token) -> Scalar:
        if token.type == "STRING":
            return Scalar(ValueKind.STRING, unescaped(token), str(token), _span(token))
        if token in ("true", "false"):
            return Scalar(ValueKind.FLAG, token == "true", str(token), _span(token))
        return Scalar(ValueKind.WORD, str(token), str(token), _span(token))

    def number(self, token: Token) -> Scalar:
        return _number(token)

    def listing(self, *rest: Scalar | Token) -> Listing:
        items = tuple(part for part in rest if isinstance(part, Scalar))
        end = _span(rest[-1]) if isinstance(rest[-1], Token) else rest[-1].span
        return Listing(items, _across(items[0].span if items else end, end))

    def share(self, part: Token, _: Token, whole: Token) -> Scalar:
        text = f"{part} in {whole}"
        return Scalar(ValueKind.SHARE, text, text, _across(_span(part), _span(whole)))

    def condition(self, metric: Token, operator: Token, threshold: Token) -> Condition:
        word = Scalar(ValueKind.WORD, str(metric), str(metric), _span(metric))
        number = _number(threshold)
        return Condition(word, str(operator), number, _across(word.span, number.span))


def _json(
    value: object, first: SourceSpan | None, close: object, mistakes: Sequence[tuple[str, SourceSpan]]
) -> JsonValue:
    assert isinstance(close, Token)
    end = _span(close)
    return JsonValue(value, _across(first or end, end), tuple(mistakes))


def _number(token: Token) -> Scalar:
    text = str(token)
    if token.type == "DURATION":
        # A number with too many digits becomes a huge duration, which the property refuses as too long.
        milliseconds = written_ms(text)
        return Scalar(ValueKind.DURATION, 2**63 if milliseconds is None else milliseconds, text, _span(token))
    return Scalar(ValueKind.NUMBER, read_number(text), text, _span(token))


def _action(key: Token, target: Scalar, parts: Sequence[SyntaxEntry]) -> SyntaxEntry:
    span = _span(key)
    end = parts[0].span if parts else target.span
    return SyntaxEntry(
        str(key), span, _across(span, end), value=target, body=parts[0].body if parts else None
    )


def _problem(error: UnexpectedInput, text: str) -> SpecProblem:
    line, column = max(1, error.line), max(1, error.column)
    start = error.pos_in_stream or 0
    if isinstance(error, UnexpectedToken):
        # The lexer reads the rest of the line as an expression; the error shows only its first word.
        expected = error.expected
        found = _word_at(text, start) if error.token.type == "EXPR" else str(error.token)
        if error.token.type == "$END":
            lines = text.split("\n")
            last = SourceSpan(len(lines), len(lines[-1]) + 1, len(text), len(text))
            return SpecProblem(message=f"the text ends too early; expected {_spoken(expected)}", span=last)
    elif text.startswith('"', start):
        span = SourceSpan(line, column, start, start + 1)
        return SpecProblem(message='this text has no end; close it with `"` in the same line', span=span)
    else:
        expected = error.allowed if isinstance(error, UnexpectedCharacters) and error.allowed else set()
        found = _word_at(text, start)
    hint = nearest(found, _known(expected)) if found.isidentifier() else ""
    shown = found if len(found) <= 40 else found[:40] + "…"
    return SpecProblem(
        message=f"`{shown}` does not belong here; expected {_spoken(expected)}",
        span=SourceSpan(line, column, start, start + max(1, len(found))),
        hint=hint,
    )


def _word_at(text: str, start: int) -> str:
    found = re.compile(r"\w+|\S|\s").match(text, start)
    return found[0] if found else ""


def _known(expected: set[str]) -> list[str]:
    return [name.lower() for name in expected if name.lower() in (*_KEYWORDS, "app", "command")]


def _spoken(expected: set[str]) -> str:
    words = sorted({_WORDS.get(name, f"`{name.lower()}`") for name in expected} - {"`,`"})
    if len(words) > 4 and "a word" in words:
        words = [word for word in words if word.strip("`") not in _KEYWORDS]
    return " or ".join(words) if words else "something else"
