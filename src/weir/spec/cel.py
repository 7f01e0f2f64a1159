"""CEL, the language of input expressions and filters. Only this module knows the engine.

Expressions are short, and have no side effects and no unlimited loops. Every mistake in the text or in the
evaluation becomes an `InvalidInput`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cel
from cel.stdlib import STDLIB_FUNCTIONS

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
    """Every name in it, also the names that its comprehensions bind."""
    functions: frozenset[str]
    comprehensions: tuple[str, ...]
    """The name that each comprehension binds."""
    library: Mapping[str, Callable[..., Any]]
    """The functions of the library that it calls."""
    program: Any

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """The value of the expression; InvalidInput says why it has none."""
        return _evaluate(self, _context(self, variables), variables)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledMapping:
    """Compiled expressions by the name of the input that each computes."""

    expressions: Mapping[str, Expression]
    variables: frozenset[str]
    library: Mapping[str, Callable[..., Any]]

    def evaluate(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all inputs. The variables are converted once for all of them."""
        context = _context(self, variables)
        return {
            name: _evaluate(expression, context, variables) for name, expression in self.expressions.items()
        }


@lru_cache(maxsize=4_096)
def compile_mapping(inputs: tuple[tuple[str, str], ...]) -> CompiledMapping:
    """Compile the expressions of named inputs; the same inputs are compiled once."""
    expressions = {name: compile_expression(text) for name, text in inputs}
    return CompiledMapping(
        expressions=expressions,
        variables=frozenset(name for one in expressions.values() for name in one.variables),
        library={name: call for one in expressions.values() for name, call in one.library.items()},
    )


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
    functions = frozenset(program.functions())
    return Expression(
        text=text,
        variables=frozenset(program.variables()),
        functions=functions,
        comprehensions=comprehensions,
        library=_library(functions),
        program=program,
    )


def _library(functions: frozenset[str]) -> dict[str, Callable[..., Any]]:
    """The functions of the library with these names; the engine names `lists.range` by its last part."""
    known = {**STDLIB_FUNCTIONS, "lists.range": _short_range}
    return {name: call for name, call in known.items() if name.rpartition(".")[2] in functions}


def _context(compiled: Expression | CompiledMapping, variables: Mapping[str, Any]) -> Any:
    context = cel.Context(
        variables={name: variables[name] for name in compiled.variables if name in variables}
    )
    # Only functions that are called: the library took 16 us per context, and most expressions call none.
    for name, call in compiled.library.items():
        context.add_function(name, call)
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
