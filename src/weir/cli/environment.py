"""`weir environment`: the environments that the token reaches, and their limits."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, ApiSession, about_token, ask_api
from weir.cli.options import (
    DataDirOption,
    JsonOption,
    OrganizationOption,
    ProjectOption,
    settings_with,
    with_options,
)
from weir.cli.output import Columns, print_items, print_result, shown_time
from weir.cli.tables import id_column, long_column, number_column
from weir.errors import InvalidInput, NotFound

app = typer.Typer(no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Name of the environment.")]
ConcurrencyOption = Annotated[
    int | None, typer.Option(min=1, help="Messages of the environment that may be leased at once.")
]


def _project_scope(
    *,
    organization: OrganizationOption = None,
    project: ProjectOption = None,
    data_dir: DataDirOption = None,
) -> ApiScope:
    return ApiScope(settings=settings_with(data_dir), organization=organization, project=project)


@app.command("list")
@about_token
def list_environments(scope: ApiScope, as_json: JsonOption = False) -> None:
    """List the environments inside the scope of the token."""
    found = ask_api(scope, lambda api: api.get("environments"))["items"]
    columns: Columns = {
        id_column("organization"): "organization",
        id_column("project"): "project",
        id_column("environment"): "environment",
        number_column("concurrency"): lambda row: row["concurrency"] or "no limit",
        long_column("created"): lambda row: shown_time(row["created_at_ms"]),
    }
    print_items(found, columns, as_json=as_json)


@app.command()
@with_options(scope=_project_scope)
def create(
    scope: ApiScope, name: NameArgument, concurrency: ConcurrencyOption = None, as_json: JsonOption = False
) -> None:
    """Create an environment, and the organization and project that it names."""

    async def make(api: ApiSession) -> dict[str, Any]:
        if await _find(api, name) is not None:
            raise InvalidInput(f"the environment `{name}` exists; use `weir environment change`")
        return await api.put("environments", name, body={"concurrency": concurrency})

    print_result(ask_api(scope, make), as_json=as_json)


@app.command()
@with_options(scope=_project_scope)
def change(
    scope: ApiScope,
    name: NameArgument,
    concurrency: ConcurrencyOption = None,
    unlimited: Annotated[bool, typer.Option("--unlimited", help="Remove the limit of leases.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Change how many messages of an environment may be leased at once."""
    if (concurrency is None) != unlimited:
        raise InvalidInput("say what to change: give either `--concurrency` or `--unlimited`")

    async def alter(api: ApiSession) -> dict[str, Any]:
        if await _find(api, name) is None:
            raise NotFound(f"there is no environment `{name}`; use `weir environment create`")
        return await api.put("environments", name, body={"concurrency": concurrency})

    print_result(ask_api(scope, alter), as_json=as_json)


async def _find(api: ApiSession, name: str) -> dict[str, Any] | None:
    """The environment of this name in the project that the request is about."""
    me = await api.get("me")
    wanted = (api.options.organization or me["organization"], api.options.project or me["project"], name)
    for one in (await api.get("environments"))["items"]:
        if (one["organization"], one["project"], one["environment"]) == wanted:
            return dict(one)
    return None
