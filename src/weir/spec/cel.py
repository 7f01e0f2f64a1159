"""CEL, the language of input expressions and filters. Only this module knows the engine.

Expressions are short, and have no side effects and no unlimited loops. Every mistake in the text or in the
evaluation becomes an `InvalidInput`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import cel
from cel.stdlib import add_stdlib_to_context

from weir.errors import InvalidInput

MAX_LENGTH = 1_024
MAX_COMPREHENSIONS = 2
MAX_RANGE = 1_000
# The longest list per number of comprehensions. Two may be nested, so that 1,000 items are a million steps.
_LIST_LIMITS = {0: None, 1: 10_000, 2: 1_000}

# Texts are blanked before comprehensions are counted: `".map("` inside a text is not one.
_STRING = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
_COMPREHENSION = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*(\w*)")
_UNREADABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_PARSE_POSITION = re.compile(r"<input>:(\d+):(\d+): (?:Syntax error: )?(.*)")
# The engine lists every token that it would accept, which is too long to help.
_EXPECTING = re.compile(r" expecting .*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A compiled expression. `evaluate` may be called from several threads at once."""

    text: str
    variables: frozenset[str]
    """Every name in it, also those that its comprehensions bind."""
    functions: frozenset[str]
    comprehensions: tuple[str, ...]
    """The name that each comprehension binds."""
    program: Any

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """The value of the expression; InvalidInput says why it has none."""
        return _evaluate(self, _context([self], variables), variables)


def evaluate_all(expressions: Mapping[str, Expression], variables: Mapping[str, Any]) -> dict[str, Any]:
    """The values of several expressions over the same variables. Converting these once saves time."""
    context = _context(list(expressions.values()), variables)
    return {name: _evaluate(expression, context, variables) for name, expression in expressions.items()}


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
    comprehensions = tuple(_COMPREHENSION.findall(_STRING.sub("''", text)))
    if (count := len(comprehensions)) > MAX_COMPREHENSIONS:
        raise InvalidInput(
            f"an expression has {count} comprehensions; at most {MAX_COMPREHENSIONS} are allowed",
            offset=0,
        )
    try:
        program = cel.compile(text)
    except Exception as error:  # the engine's parser raises ValueError, and others on odd text
        raise _parse_error(text, error) from None
    return Expression(
        text=text,
        variables=frozenset(program.variables()),
        functions=frozenset(program.functions()),
        comprehensions=comprehensions,
        program=program,
    )


def _context(expressions: list[Expression], variables: Mapping[str, Any]) -> Any:
    names = {name for expression in expressions for name in expression.variables}
    context = cel.Context(variables={name: variables[name] for name in names if name in variables})
    add_stdlib_to_context(context)
    context.add_function("lists.range", _short_range)
    return context


def _short_range(length: int) -> list[int]:
    """A range with a limit: the engine's own would fill the memory."""
    if length > MAX_RANGE:
        raise ValueError(f"a range of {length} values; at most {MAX_RANGE} are allowed")
    return list(range(length))


def _evaluate(expression: Expression, context: Any, variables: Mapping[str, Any]) -> Any:
    limit = _LIST_LIMITS[len(expression.comprehensions)]
    if limit is not None:
        _refuse_long_lists((variables.get(name) for name in expression.variables), limit=limit)
    try:
        return expression.program.execute(context)
    except KeyError as error:
        raise InvalidInput(f"`{expression.text}`: there is no field `{error.args[0]}`") from None
    except Exception as error:  # the engine raises any of a dozen built-in classes
        raise InvalidInput(f"`{expression.text}`: {_first_line(error)}") from None


def _parse_error(text: str, error: Exception) -> InvalidInput:
    found = _PARSE_POSITION.search(str(error))
    if found is None:
        return InvalidInput(f"`{text:.80}` is not a CEL expression: {_first_line(error)}", offset=0)
    line, column = int(found[1]), int(found[2])
    what = _EXPECTING.sub("", found[3]).replace("'<EOF>'", "the end of the expression").strip()
    offset = sum(len(part) + 1 for part in text.split("\n")[: line - 1]) + column - 1
    return InvalidInput(f"`{text:.80}` is not a CEL expression: {what}", offset=min(offset, len(text)))


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _refuse_long_lists(values: Iterable[Any], *, limit: int) -> None:
    """Refuse lists and maps over which a comprehension would take too long."""
    waiting = [value for value in values if isinstance(value, (dict, list))]
    while waiting:
        value = waiting.pop()
        if len(value) > limit:
            raise InvalidInput(
                f"a comprehension meets a list of {len(value)} values; at most {limit} are allowed"
            )
        parts = value.values() if isinstance(value, dict) else value
        waiting.extend(part for part in parts if isinstance(part, (dict, list)))
