"""The page of all routes with curl commands and bodies, generated from the OpenAPI description."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from weir.api.app import describe

_INTRO = """# Routes

Every route with its parameters, a request and the shape of its answer. [The HTTP API](http.md) says what
they have in common: tokens, limits, idempotency and errors. The commands expect the address and a token in
the shell:

```sh
export WEIR_URL=http://127.0.0.1:8420
export WEIR_TOKEN=$(cat .weir/admin.token)
```

Generated from the OpenAPI description (`weir openapi`, or `/openapi.json` of a running API).
"""
_TENANT = {"weir-organization", "weir-project", "weir-environment"}
"""Headers that every route takes; the page of the API describes them once."""
_DEEPEST = 4
_SAMPLES = {"string": "…", "integer": 1, "number": 1.0, "boolean": True, "null": None}

Document = Mapping[str, Any]


def routes_page() -> str:
    whole = describe()
    by_tag: dict[str, list[str]] = defaultdict(list)
    for path, methods in whole["paths"].items():
        for method, route in methods.items():
            by_tag[route.get("tags", ["other"])[0]] += _section(whole, method.upper(), path, route)
    parts = (line for tag in sorted(by_tag) for line in (f"\n## {tag.capitalize()}\n", *by_tag[tag]))
    return "\n".join([_INTRO, *parts])


def _section(whole: Document, method: str, path: str, route: Document) -> Iterator[str]:
    yield f"### `{method} {path}`\n"
    yield f"{route.get('description') or route.get('summary', '')}\n"
    yield from _parameters(whole, route)
    body = _body(whole, route)
    yield f"```sh\n{_curl(method, path, route, body)}\n```\n"
    answer = _answer(whole, route)
    if answer is not None:
        yield f'??? example "Answer {answer[0]}"\n'
        yield f"    ```json\n{_indented(answer[1])}\n    ```\n"


def _parameters(whole: Document, route: Document) -> Iterator[str]:
    wanted = [one for one in route.get("parameters", []) if one["name"].lower() not in _TENANT]
    if not wanted:
        return
    yield "| Parameter | In | |"
    yield "|---|---|---|"
    for one in wanted:
        need = "" if one.get("required") else "optional; "
        text = one.get("description") or _type(whole, one["schema"])
        yield f"| `{one['name']}` | {one['in']} | {need}{text} |"
    yield ""


def _type(whole: Document, schema: Document) -> str:
    found = _resolve(whole, schema)
    if "enum" in found:
        return ", ".join(f"`{value}`" for value in found["enum"])
    if "anyOf" in found:
        return " or ".join(_type(whole, one) for one in found["anyOf"] if one.get("type") != "null")
    return str(found.get("type", "any"))


def _curl(method: str, path: str, route: Document, body: object) -> str:
    needed = {
        one["name"]: "…"
        for one in route.get("parameters", [])
        if one["in"] == "query" and one.get("required")
    }
    query = f"?{urlencode(needed)}".replace("%E2%80%A6", "…") if needed else ""
    filled = path.replace("{", "").replace("}", "")
    words = ["curl", "-sS"] if method == "GET" else ["curl", "-sS", "-X", method]
    lines = [" ".join([*words, f'"$WEIR_URL{filled}{query}"'])]
    if route.get("security"):
        lines.append('-H "Authorization: Bearer $WEIR_TOKEN"')
    if body is not None:
        lines += ["-H 'Content-Type: application/json'", f"-d '{json.dumps(body, ensure_ascii=False)}'"]
    return " \\\n  ".join(lines)


def _body(whole: Document, route: Document) -> object:
    content = route.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return None
    return (
        content["example"]
        if "example" in content
        else _sample(whole, content.get("schema", {}), required=True)
    )


def _answer(whole: Document, route: Document) -> tuple[str, object] | None:
    for status, answer in route["responses"].items():
        content = answer.get("content", {}).get("application/json")
        if status.startswith("2") and content is not None:
            sample = content.get("example") or _sample(whole, content.get("schema", {}))
            return (status, sample) if sample not in ({}, None, "…") else None
    return None


def _sample(whole: Document, schema: Document, *, depth: int = 0, required: bool = False) -> Any:
    """An example value of the schema; with `required`, objects have only their required fields."""
    found = _resolve(whole, schema)
    for known in ("example", "default", "const"):
        if found.get(known) is not None:
            return found[known]
    if found.get("enum"):
        return found["enum"][0]
    for choice in ("anyOf", "oneOf", "allOf"):
        if found.get(choice):
            return _sample(whole, found[choice][0], depth=depth, required=required)
    if found.get("type") == "array":
        return [] if depth >= _DEEPEST else [_sample(whole, found.get("items", {}), depth=depth + 1)]
    if found.get("properties"):
        names = found.get("required", []) if required else found["properties"]
        return (
            {name: _sample(whole, found["properties"][name], depth=depth + 1) for name in names}
            if depth < _DEEPEST
            else {}
        )
    return _SAMPLES.get(str(found.get("type")), {})


def _resolve(whole: Document, schema: Document) -> Document:
    while "$ref" in schema:
        schema = whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _indented(value: object) -> str:
    return "\n".join(f"    {line}" for line in json.dumps(value, indent=2, ensure_ascii=False).splitlines())
