"""How fairly a queue served its keys, as an answer."""

from __future__ import annotations

from pydantic import BaseModel, Field

from weir.warehouse.reading.fairness import KeyFairness, KeyUse


class KeyUseView(BaseModel):
    """How long the messages of one key waited and were leased."""

    key: str
    messages: int
    mean_wait_ms: float = Field(description="Without the time before a message was due, and the back-off.")
    leased_ms: int
    leased_share: float = Field(description="Share of the leased time of all keys, 0 to 1.")


class FairnessPointView(BaseModel):
    time_ms: int
    keys: int = Field(description="Keys with messages that ended in this slot.")
    fairness: float = Field(
        description="Jain's index of their mean waits: 1 if all waited alike, 1 / keys if only one waited."
    )


class KeyFairnessView(BaseModel):
    """How a queue served its keys, by the messages that ended in the period."""

    queue: str
    from_ms: int
    to_ms: int
    step_ms: int
    keys: int
    waited_most: list[KeyUseView]
    took_most: list[KeyUseView]
    points: list[FairnessPointView] = Field(description="Slots without a message that ended are left out.")


def fairness_view(queue: str, found: KeyFairness) -> KeyFairnessView:
    def use(one: KeyUse) -> KeyUseView:
        share = one.leased_ms / found.leased_ms if found.leased_ms else 0.0
        return KeyUseView(
            key=one.key,
            messages=one.messages,
            mean_wait_ms=one.mean_wait_ms,
            leased_ms=one.leased_ms,
            leased_share=share,
        )

    return KeyFairnessView(
        queue=queue,
        from_ms=found.from_ms,
        to_ms=found.to_ms,
        step_ms=found.step_ms,
        keys=found.keys,
        waited_most=[use(one) for one in found.waited_most],
        took_most=[use(one) for one in found.took_most],
        points=[
            FairnessPointView(time_ms=one.at_ms, keys=one.keys, fairness=one.fairness) for one in found.points
        ],
    )
