"""The description is checked in, stable and uniform."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from fastapi.routing import APIRoute

from weir.api.app import describe as describe_anew
from weir.api.openapi_hot import DESCRIBED
from weir.api.routes import compatibility, health
from weir.api.routes.table import HOT

describe = cache(describe_anew)
CHECKED_IN = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in describe()["paths"].items()
        for method, operation in methods.items()
    ]


def test_the_checked_in_description_is_the_one_that_is_served() -> None:
    known = json.loads(CHECKED_IN.read_text())
    found = json.loads(json.dumps(describe()))
    changed = {
        path
        for path in known["paths"].keys() | found["paths"].keys()
        if known["paths"].get(path) != found["paths"].get(path)
    }
    text = (
        f"the API changed ({sorted(changed)}); look at it, then `weir openapi > docs/reference/openapi.json`"
    )
    assert known == found, text


def test_outside_of_api_v1_are_only_the_sources_routes_and_those_of_health() -> None:
    routers = (*compatibility.ROUTERS, health.router)
    known = {route.path for router in routers for route in router.routes if isinstance(route, APIRoute)}
    known |= {route.path for route in compatibility.ROUTES}
    outside = {path for path, _, _ in operations() if not path.startswith("/api/v1/")}
    assert outside == known


def test_it_is_openapi_3_1() -> None:
    assert describe()["openapi"].startswith("3.1.")


def test_operation_ids_are_unique_words() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name == name.lower() for name in names)


def test_every_error_is_a_problem() -> None:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    shared = describe()["components"]["responses"]
    assert all(answer["content"] == problem for answer in shared.values())
    for path, method, operation in operations():
        for status, answer in operation["responses"].items():
            if status.startswith(("4", "5")) and path not in ("/readyz", "/metrics"):
                assert answer == {"$ref": f"#/components/responses/Problem{status}"}, (path, method)
                assert f"Problem{status}" in shared


def test_every_hot_route_is_described() -> None:
    described = {(one.path, one.method.upper()) for one in DESCRIBED}
    listed = {(path, method.upper()) for path, method, _ in operations()}
    served = {(route.path, method) for route in HOT for method in route.endpoints if method != "OPTIONS"}
    assert served <= listed
    assert described <= served
