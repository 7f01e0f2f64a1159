"""`weir alert-rule`: which metric a rule watches, when it raises an alert, and whom it notifies."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from weir.cli.alert_words import RULE_COLUMNS
from weir.cli.api import ApiScope, ApiSession, about_environment, ask_api
from weir.cli.options import JsonOption, given, with_options
from weir.cli.output import print_fields, print_items, print_result
from weir.errors import NotFound
from weir.model.durations import duration_ms

app = typer.Typer(no_args_is_help=True)

RuleArgument = Annotated[str, typer.Argument(help="Name or id of the rule.")]
_OPERATORS = "`>`, `>=`, `<` or `<=`; or `gt`, `gte`, `lt`, `lte`, which need no quotes"


def _options(
    queue: Annotated[
        str | None,
        typer.Option(
            help="Queue that is watched; empty, or not given for a new rule: every queue by itself."
        ),
    ] = None,
    window: Annotated[
        str | None, typer.Option(help="How long a breach must last, such as `30s`, `5m` or `2h`.")
    ] = None,
    cooldown: Annotated[
        str | None, typer.Option(help="Least time between two alerts of the rule, such as `15m`.")
    ] = None,
    clear: Annotated[
        float | None,
        typer.Option(help="Value at which the metric counts as calm again, instead of the threshold."),
    ] = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(help="Alert channel to notify; repeat it for several, empty for none."),
    ] = None,
    auto_resolve: Annotated[
        bool | None,
        typer.Option(
            "--auto-resolve/--no-auto-resolve", help="Whether an alert is resolved once its metric is calm."
        ),
    ] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="Whether the rule is evaluated.")
    ] = None,
) -> dict[str, Any]:
    """The fields of a rule that the options give, as the API takes them."""
    found = given(
        window_ms=None if window is None else duration_ms(window),
        cooldown_ms=None if cooldown is None else duration_ms(cooldown),
        clear_threshold=clear,
        channels=[name for name in channel if name] if channel else None,
        auto_resolve=auto_resolve,
        enabled=enabled,
    )
    # An empty text means every queue, which the API calls null; to leave the option out changes nothing.
    return found if queue is None else {**found, "queue": queue or None}


@app.command("list")
@about_environment
def list_rules(scope: ApiScope, as_json: JsonOption = False) -> None:
    """List the rules of an environment by name."""
    found = ask_api(scope, lambda api: api.get("alert-rules"))["items"]
    print_items(found, RULE_COLUMNS, as_json=as_json)


@app.command()
@about_environment
def show(scope: ApiScope, rule: RuleArgument, as_json: JsonOption = False) -> None:
    """Show all fields of one rule."""
    print_fields(ask_api(scope, lambda api: _find(api, rule)), as_json=as_json)


@app.command()
@about_environment
@with_options(options=_options)
def create(
    scope: ApiScope,
    options: dict[str, Any],
    name: Annotated[str, typer.Argument(help="Name of the rule; its alerts carry it.")],
    metric: Annotated[str, typer.Argument(help="Metric that is watched, such as `backlog`.")],
    operator: Annotated[str, typer.Argument(help=f"Comparison: {_OPERATORS}.")],
    threshold: Annotated[float, typer.Argument(help="Value that the metric is compared with.")],
    as_json: JsonOption = False,
) -> None:
    """Create a rule: `weir alert-rule create deep backlog gt 1000 --window 5m`; prints its id."""
    body = {"name": name, "metric": metric, "operator": operator, "threshold": threshold, **options}
    made = ask_api(scope, lambda api: api.post("alert-rules", body=body))
    print_result(made, made["id"], as_json=as_json)


@app.command()
@about_environment
@with_options(options=_options)
def change(
    scope: ApiScope,
    options: dict[str, Any],
    rule: RuleArgument,
    name: Annotated[str | None, typer.Option(help="New name of the rule.")] = None,
    metric: Annotated[str | None, typer.Option(help="Metric that is watched from now on.")] = None,
    operator: Annotated[str | None, typer.Option(help=f"Comparison: {_OPERATORS}.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Value that the metric is compared with.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Change a rule; options that are left out stay as they are."""
    new = {**given(name=name, metric=metric, operator=operator, threshold=threshold), **options}

    async def alter(api: ApiSession) -> dict[str, Any]:
        found = await _find(api, rule)
        before = {key: value for key, value in found.items() if key not in _SET_BY_WEIR}
        return await api.put(
            "alert-rules", found["id"], body={**before, **new}, revision=found.get("revision")
        )

    print_result(ask_api(scope, alter), as_json=as_json)


@app.command()
@about_environment
def delete(scope: ApiScope, rule: RuleArgument) -> None:
    """Delete a rule; its open alerts are resolved, and their channels are notified."""

    async def remove(api: ApiSession) -> None:
        await api.delete("alert-rules", (await _find(api, rule))["id"])

    ask_api(scope, remove)


_SET_BY_WEIR = frozenset({"id", "condition", "origin", "created_at_ms", "updated_at_ms", "revision"})


async def _find(api: ApiSession, rule: str) -> dict[str, Any]:
    """Find a rule by its id or its name; both are unique."""
    for found in (await api.get("alert-rules"))["items"]:
        if rule in (found["id"], found["name"]):
            return dict(found)
    raise NotFound(f"there is no alert rule `{rule}`; `weir alert-rule list` shows them")
