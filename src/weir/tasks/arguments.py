"""The arguments of a task as a JSON payload, and back into the values that its function takes."""

from __future__ import annotations

import inspect
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from inspect import BoundArguments, Parameter, Signature
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from weir.errors import InvalidInput, Misconfigured
from weir.model.handling import describe_failure
from weir.model.limits import MAX_RESULT_BYTES

V = TypeVar("V")
OMITTED = "weir-omitted"
"""The only member of a note that stands for a result that was not kept. It says why."""

CONTEXT = "context"
"""A parameter of this name gets the context of the message, and is not part of the payload."""

# JSON has neither bytes nor infinite numbers. Written like this, they come back as they were.
_CONFIG = ConfigDict(
    extra="forbid", ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="strings"
)


class TaskArguments:
    """Checks arguments against a signature, and carries them through JSON.

    The payload is an object with a member per parameter, so that any program can push it.
    """

    def __init__(self, function: Callable[..., Any], *, task: str) -> None:
        self._task = task
        found = _signature(function, task=task)
        self.takes_context = CONTEXT in found.parameters
        own = [one for one in found.parameters.values() if one.name != CONTEXT]
        self._signature = found.replace(parameters=own)
        self._names = {f"p{at}": one.name for at, one in enumerate(own)}
        self._model = _model(task, own)
        self._returns = _result_model(found, task=task)

    def bind(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, partial: bool = False
    ) -> BoundArguments:
        """The arguments by parameter; TypeError says what is missing or too much, as a call would."""
        try:
            if partial:
                missing = self.first_missing(args, kwargs)
                # A stand-in for the argument that comes later, so that all others are checked now.
                later = {} if missing is None else {missing: None}
                bound = self._signature.bind(*args, **kwargs, **later)
                for name in later:
                    del bound.arguments[name]
                return bound
            return self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._task}() {error}") from None

    def first_missing(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """The first parameter without a default that is not given: it gets the result of the call before."""
        given = self._signature.bind_partial(*args, **kwargs).arguments
        needed = [
            one.name
            for one in self._signature.parameters.values()
            if one.kind not in (*_VARIABLE, Parameter.POSITIONAL_ONLY) and one.default is Parameter.empty
        ]
        return next((name for name in needed if name not in given), None)

    def by_name(self, bound: BoundArguments) -> dict[str, Any]:
        """Every argument under its name, with the defaults. Members of `**kwargs` stand beside the others."""
        full = BoundArguments(self._signature, OrderedDict(bound.arguments))
        full.apply_defaults()
        found = dict(full.arguments)
        for one in self._signature.parameters.values():
            if one.kind is Parameter.VAR_KEYWORD:
                found |= found.pop(one.name)
        return found

    def pack(self, bound: BoundArguments, *, partial: bool = False) -> bytes:
        """The payload. A value that does not fit its annotation raises a ValidationError of pydantic."""
        model = self._partial_model() if partial else self._model
        checked = model.model_validate(dict(bound.arguments))
        return checked.model_dump_json(by_alias=True, exclude_unset=True).encode()

    def _partial_model(self) -> type[BaseModel]:
        """The model with every argument optional. It is made for each call, because workflows are few."""
        optional = [
            one.replace(default=None) if one.default is Parameter.empty and one.kind not in _VARIABLE else one
            for one in self._signature.parameters.values()
        ]
        return _model(self._task, optional)

    def unpack(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the keyword arguments for a call; InvalidInput if the payload does not fit."""
        try:
            found = self._model.model_validate_json(payload)
        except ValidationError as error:
            raise InvalidInput(f"the payload does not fit the task `{self._task}`: {_said(error)}") from None
        given = found.model_fields_set
        values = OrderedDict(
            (name, getattr(found, field)) for field, name in self._names.items() if field in given
        )
        bound = BoundArguments(self._signature, values)
        return bound.args, bound.kwargs

    def pack_result(self, result: Any) -> bytes | None:
        """A result as JSON, or a note that says why it is not kept; None for None."""
        if result is None:
            return None
        try:
            data = self.dump_result(result)
            if len(data) <= MAX_RESULT_BYTES:
                json.loads(data)  # numbers of many digits and deep nesting can be written and not be read
        except Exception as error:  # a result may raise anything while it is written
            return omitted(f"it has no JSON form ({describe_failure(error).splitlines()[0]})")
        if len(data) > MAX_RESULT_BYTES:
            return omitted(f"it has {len(data)} bytes, and at most {MAX_RESULT_BYTES} are kept")
        return data

    def dump_result(self, result: Any) -> bytes:
        """A result as JSON, however large; ValueError if it has no JSON form."""
        return self._returns.model_construct(root=result).model_dump_json(warnings=False).encode()

    def unpack_result(self, result: Any) -> Any:
        """A result as the function returned it, by the annotation of its return value."""
        if result is None:
            return None
        return self._returns.model_validate_json(json.dumps(result)).root


_VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def _signature(function: Callable[..., Any], *, task: str) -> Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except NameError as error:
        raise Misconfigured(
            f"the annotations of the task `{task}` cannot be read ({error}); import their types where the "
            "function stands, and not only for type checkers"
        ) from None


def _model(task: str, parameters: Sequence[Parameter]) -> type[BaseModel]:
    fields: dict[str, Any] = {f"p{at}": (_type_of(one), _field(one)) for at, one in enumerate(parameters)}
    try:
        return create_model(task, __config__=_CONFIG, **fields)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        reason = str(error).splitlines()[0]
        raise Misconfigured(
            f"an argument of the task `{task}` cannot go through a queue ({reason}); annotate it with a type "
            "that pydantic knows"
        ) from None


def _type_of(parameter: Parameter) -> Any:
    one = Any if parameter.annotation is Parameter.empty else parameter.annotation
    match parameter.kind:
        case Parameter.VAR_POSITIONAL:
            return tuple.__class_getitem__((one, ...))
        case Parameter.VAR_KEYWORD:
            return dict.__class_getitem__((str, one))
    return one


def _field(parameter: Parameter) -> Any:
    if parameter.kind in _VARIABLE or parameter.default is not Parameter.empty:
        # This default is never used: an argument that was not pushed gets the function's own default.
        return Field(default=None, alias=parameter.name)
    return Field(alias=parameter.name)


class _Result(RootModel[V], Generic[V]):
    """A result on its own."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="strings")


def omitted(why: str) -> bytes:
    """The note that is kept instead of a result."""
    return json.dumps({OMITTED: why}).encode()


def _result_model(signature: Signature, *, task: str) -> type[_Result[Any]]:
    returned = signature.return_annotation
    unknown = returned is Signature.empty or returned is None
    try:
        return cast(type[_Result[Any]], _Result.__class_getitem__(Any if unknown else returned))
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        reason = str(error).splitlines()[0]
        raise Misconfigured(
            f"the result of the task `{task}` cannot be kept ({reason}); annotate it with a type that "
            "pydantic knows, or with None"
        ) from None


def _said(error: ValidationError) -> str:
    """The first mistakes of a payload in one line, without the values, which may be secret."""
    found = [
        f"{'.'.join(str(part) for part in one['loc']) or 'payload'}: {one['msg']}"
        for one in error.errors(include_url=False, include_input=False)[:3]
    ]
    return "; ".join(found)
