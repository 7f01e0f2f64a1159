"""The OpenAPI description: the routes of the framework, and the hot routes.

Every operation gets the same errors, and each error is a `Problem`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from weir.api.openapi_hot import DESCRIBED, Described
from weir.api.responses import STATUSES, problem_answer
from weir.api.schemas.shared import Problem

_REF = "#/components/schemas/{model}"
_METHODS = ("get", "put", "post", "delete", "patch")
_OPEN = frozenset({"/livez", "/healthz", "/readyz", "/metrics"})
_SCOPE_HEADERS = tuple(
    {
        "name": name,
        "in": "header",
        "required": False,
        "description": "Percent-encoded; only for tokens that reach more than one.",
        "schema": {"type": "string", "maxLength": 1024},
    }
    for name in ("Weir-Organization", "Weir-Project", "Weir-Environment")
)


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """The framework's description with the hot routes, the errors and the way to authenticate."""
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas.update(_schemas())
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "weir_…"}}
    for described in DESCRIBED:
        document["paths"].setdefault(described.path, {})[described.method] = _operation(described)
    for path, operation in _operations(document):
        _finish(path, operation)
    components["schemas"] = dict(sorted(schemas.items()))
    components["responses"] = {f"Problem{status}": problem_answer(status) for status in STATUSES}
    document["paths"] = dict(sorted(document["paths"].items()))
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                yield path, methods[method]


def _finish(path: str, operation: dict[str, Any]) -> None:
    """Add the errors and the security that every operation has."""
    responses = operation.setdefault("responses", {})
    if path in _OPEN:
        return
    for status in STATUSES:
        responses[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
    operation["responses"] = dict(sorted(responses.items()))
    # A webhook is authenticated by the signature of its body.
    operation["security"] = [] if path.startswith("/hook/") else [{"token": []}]


def _models() -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = [Problem]
    for described in DESCRIBED:
        found += [*described.answers.values(), *([described.body] if described.body else [])]
    return list(dict.fromkeys(found))


def _schemas() -> dict[str, Any]:
    _, top = models_json_schema([(model, "validation") for model in _models()], ref_template=_REF)
    definitions: dict[str, Any] = top["$defs"]
    return definitions


def _operation(described: Described) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": described.operation_id,
        "summary": described.summary,
        "tags": ["messages"],
        "parameters": [*described.parameters, *_SCOPE_HEADERS],
        "responses": {str(status): _answer(model) for status, model in described.answers.items()},
    }
    if described.body is not None:
        content: dict[str, Any] = {"schema": _ref(described.body)}
        if described.example is not None:
            content["example"] = described.example
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    if described.raw:
        operation["requestBody"] = {
            "required": True,
            "content": {
                "application/json": {"schema": {}, "example": {"order": 42}},
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            },
        }
    return operation


def _answer(model: type[BaseModel]) -> dict[str, Any]:
    return {"description": "Done.", "content": {"application/json": {"schema": _ref(model)}}}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}
