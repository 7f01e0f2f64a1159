"""Evaluates expressions where that stops nobody: here if it is provably small, otherwise in the box."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import orjson

from weir.errors import InvalidInput, OverBudget
from weir.model.sandbox import EXPRESSION, SANDBOX, Budget
from weir.model.sandboxed import begin_item
from weir.spec.cel import NUL_ESCAPE, CompiledMapping, Expression, readable
from weir.spec.cel_functions import ALLOWANCE

T = TypeVar("T")

IN_PLACE_BYTES = 16 << 10
"""What an expression may convert beside an event loop: for the engine, and back as often as it is copied."""
VALUE = Budget(answer_bytes=4 << 20)
"""A value is taken apart beside an event loop. A payload of 1 MiB of numbers is about as large as this."""
TURN_S = 1.0
"""After so much processor time a turn in the box ends, and other tenants have theirs."""
TURN_BYTES = 16 << 20
"""The same for the answers of a turn."""
BATCH_S = 10.0
"""Processor time that all turns of one batch may take."""

_VALUE_BYTES = 8
"""What each text, number or moment beside a payload costs, however short it is."""
_RECORD_BYTES = 128
"""Each of many records costs something, however small it is."""

Record = tuple[bytes | None, dict[str, Any]]
"""A payload as it came, None if it is not needed, and the other variables."""


async def evaluated(
    function: Callable[..., T],
    *args: Any,
    compiled: Expression | CompiledMapping,
    size: int,
    owner: str,
    what: str,
    budget: Budget = VALUE,
) -> T:
    """Call an importable function that evaluates `compiled` over `size` bytes: here, or in the box."""
    if compiled.cheap and size * max(1, compiled.copies) <= IN_PLACE_BYTES:
        ALLOWANCE.exhausted = False
        try:
            value = function(*args)
        except InvalidInput:
            if not ALLOWANCE.exhausted:
                raise
        else:
            if not ALLOWANCE.exhausted:
                return value
    return await SANDBOX.run(in_the_box, function, *args, owner=owner, what=what, budget=budget)


def size_named(compiled: Expression | CompiledMapping, variables: Mapping[str, Any]) -> int:
    """About how many bytes those variables have that the expression looks at."""
    return sum(_size_of(variables[name]) for name in compiled.variables if name in variables)


def _size_of(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(_size_of(key) + _size_of(one) for key, one in value.items())
    return _VALUE_BYTES + (len(value) if isinstance(value, str) else 0)


def in_the_box(function: Callable[..., T], *args: Any) -> T:
    """Call a function whose expressions may look at and make as much as the budget of the box allows."""
    ALLOWANCE.widen()
    return function(*args)


async def evaluated_each(
    answer: Callable[..., T],
    *args: Any,
    records: Sequence[Record],
    compiled: Expression,
    owner: str,
    what: str,
) -> list[T | InvalidInput]:
    """What `answer(*args, payload, values)` returns for each record, or the InvalidInput that it raises.

    OverBudget has the place of the record as its `item`.
    """
    answers: list[T | InvalidInput] = []
    used_s = 0.0
    while len(answers) < len(records):
        rest = records[len(answers) :]
        try:
            found, turn_s = await evaluated(
                answer_each,
                rest,
                answer,
                *args,
                compiled=compiled,
                size=sum(_RECORD_BYTES + len(payload or b"") + _size_of(values) for payload, values in rest),
                owner=owner,
                what=what,
                budget=EXPRESSION,
            )
        except OverBudget as error:
            item = len(answers) + error.extra.get("item", 0)
            raise OverBudget(error.message, item=item) from None
        answers += found
        used_s += turn_s
        if used_s > BATCH_S and len(answers) < len(records):
            raise OverBudget(
                f"{what} used {BATCH_S:g} s of processor time for {len(answers)} of {len(records)}",
                item=len(answers),
            )
    return answers


def answer_each(
    records: Sequence[Record], answer: Callable[..., T], *args: Any
) -> tuple[list[T | InvalidInput], float]:
    """The answers for the first records, until the turn ends, and the processor time that they took."""
    begun_s = time.process_time()
    answers: list[T | InvalidInput] = []
    made = 0
    for index, record in enumerate(records):
        begin_item(index)
        answers.append(_one(answer, *args, *record))
        last = answers[-1]
        made += len(last) if isinstance(last, bytes) else 0
        if time.process_time() - begun_s > TURN_S or made > TURN_BYTES:
            break
    return answers, time.process_time() - begun_s


def _one(answer: Callable[..., T], *args: Any) -> T | InvalidInput:
    try:
        return answer(*args)
    except InvalidInput as error:
        return error
    except MemoryError:
        raise
    except Exception as error:  # one odd payload is the affair of one record
        return InvalidInput(f"{type(error).__name__}: {error}"[:300])


def json_value(raw: bytes) -> Any:
    """A JSON value as the engine can read it; None if it is not JSON."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            # It takes what orjson refuses: half of a surrogate pair, which JavaScript writes.
            return readable(json.loads(raw))
        except (ValueError, RecursionError):
            return None
    return readable(value) if NUL_ESCAPE in raw else value
