"""Finds the metrics of this installation: the package's own, and the ones that users' modules define.

A module registers its metrics by an entry point of the group `weir.metrics`, or by the setting
`WEIR_PIPELINE__METRICS=module:definitions`. Only the driver imports it: a definition is data, and Spark sends
it to the executors.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import entry_points

from weir.errors import Misconfigured
from weir.pipeline.definition import DEFINITIONS, MetricDefinition, by_name

ENTRY_POINTS = "weir.metrics"
"""The group of entry points that name definitions."""
SETTING = "WEIR_PIPELINE__METRICS"


def load_definitions(setting: str | None) -> tuple[MetricDefinition, ...]:
    """The package's metrics and every registered one; `setting` names definitions, separated by commas."""
    installed = (one.value for one in entry_points(group=ENTRY_POINTS))
    return with_registered([*installed, *(setting or "").split(",")])


def with_registered(targets: Iterable[str]) -> tuple[MetricDefinition, ...]:
    """The package's metrics and the ones that the targets name; a target that occurs twice counts once."""
    named = dict.fromkeys(stripped for target in targets if (stripped := target.strip()))
    found = [*DEFINITIONS, *(definition for target in named for definition in _load(target))]
    return tuple(by_name(found).values())


def registered(definitions: Iterable[MetricDefinition]) -> tuple[MetricDefinition, ...]:
    """The definitions that users registered, without the package's own."""
    return tuple(one for one in definitions if one not in DEFINITIONS)


def _load(target: str) -> tuple[MetricDefinition, ...]:
    """The definitions that `module:name` points at: one, or a list of them."""
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        raise Misconfigured(
            f"`{target:.120}` does not name metrics; "
            f"write `module:definitions` in `{SETTING}` or in the entry point"
        )
    try:
        module = import_module(module_name)
    except Exception as error:
        # Whatever the user's module raises, the answer is one line that names it.
        raise Misconfigured(
            f"the metrics `{target}` cannot be loaded: importing `{module_name}` failed "
            f"({type(error).__name__}: {error}); install it, or put it on `PYTHONPATH`"
        ) from error
    if not hasattr(module, attribute):
        raise Misconfigured(
            f"the metrics `{target}` cannot be loaded: `{module_name}` has no `{attribute}`; "
            "name the variable that holds the definitions"
        )
    return _definitions(target, getattr(module, attribute))


def _definitions(target: str, found: object) -> tuple[MetricDefinition, ...]:
    listed = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    # A subclass is refused: executors lack the user's module, and must be able to unpickle the definition.
    if not all(type(one) is MetricDefinition for one in listed):
        raise Misconfigured(
            f"`{target}` is not a `MetricDefinition` or a list of them; build them with `weir.metrics`"
        )
    return listed
