"""The rate right now, and the forecast that follows from it, on scripted drains."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from weir.warehouse.reading.pace import Chunk, Pace, PaceBuckets, chunks_of, current_rate

TICK_S = 0.1
STEP_S = 5
PREPARED_S = 20.0
"""How long a script runs before its drain begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How many messages arrive and can be done per second, bursts by their time, and the last change."""

    arriving: Callable[[float], float] = lambda _: 0.0
    served: Callable[[float], float] = lambda _: 20.0
    bursts: dict[float, int] = field(default_factory=dict)
    steady_from_s: float = PREPARED_S


def until(change_s: float, before: float, after: float) -> Callable[[float], float]:
    return lambda at_s: before if at_s < change_s else after


def ramp(start: float, end: float, *, over_s: float) -> Callable[[float], float]:
    return lambda at_s: start + (end - start) * min(max(at_s - PREPARED_S, 0) / over_s, 1)


def every(seconds: float, count: int, *, more: dict[float, int]) -> dict[float, int]:
    return {PREPARED_S + 3 + seconds * number: count for number in range(30)} | more


SCRIPTS = {
    "a burst": Script(served=lambda _: 31, bursts={20: 1_000}),
    "a burst that takes minutes": Script(served=lambda _: 8, bursts={20: 1_000}),
    "a burst over traffic": Script(arriving=lambda _: 5, bursts={20: 800}),
    "a burst of ten seconds": Script(
        arriving=lambda s: 100 if 20 <= s < 30 else 2, served=lambda _: 30, steady_from_s=30
    ),
    "two bursts": Script(arriving=lambda _: 1, bursts={20: 600, 45: 600}, steady_from_s=45),
    "a trickle": Script(arriving=lambda _: 0.2, served=lambda _: 1, bursts={20: 40}),
    "steady": Script(arriving=until(20, 60, 10)),
    "steady and slow": Script(arriving=until(20, 10, 1), served=lambda _: 2),
    "more and more workers": Script(arriving=until(20, 80, 5), served=ramp(20, 32, over_s=60)),
    "fewer and fewer workers": Script(arriving=until(20, 80, 5), served=ramp(30, 21, over_s=60)),
    "arrivals that fall": Script(
        arriving=lambda s: 80 if s < 20 else ramp(15, 3, over_s=120)(s), served=lambda _: 25
    ),
    "workers come back": Script(arriving=lambda _: 10, served=until(60, 0, 30), steady_from_s=60),
    "a stall in the middle": Script(
        arriving=until(20, 60, 0), served=lambda s: 0 if 40 <= s < 60 else 20, steady_from_s=60
    ),
    "workers are added": Script(arriving=until(20, 50, 8), served=until(60, 10, 30), steady_from_s=60),
    "workers are lost": Script(arriving=until(20, 80, 2), served=until(30, 40, 12), steady_from_s=30),
    "a timer every ten seconds": Script(served=lambda _: 15, bursts=every(10, 80, more={20: 900})),
    "work in batches": Script(served=lambda s: 60 if s % 3 < 1 else 0, bursts={20: 1_500}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """What happened, tick by tick, until the queue was empty."""

    arrived: list[int]
    left: list[int]
    depth: list[int]

    def forecast_ms(self, tick: int, *, phase_s: float) -> float:
        """What is said at a tick, from buckets that begin at any time."""
        end_ms = round((tick * TICK_S + phase_s) * 1_000) + 1_000_000
        starts = [self._bucket(at, phase_s) for at in range(tick)]
        found = dict.fromkeys(starts, (0, 0))
        for start, arrived, left in zip(starts, self.arrived, self.left, strict=False):
            found[start] = (found[start][0] + arrived, found[start][1] + left)
        buckets = PaceBuckets(
            starts_ms=list(found),
            arrived=[pair[0] for pair in found.values()],
            left=[pair[1] for pair in found.values()],
            taken=[pair[1] for pair in found.values()],
        )
        return buckets.pace(end_ms=end_ms).drain_ms(self.depth[tick - 1])

    @staticmethod
    def _bucket(tick: int, phase_s: float) -> int:
        at_ms = round((tick * TICK_S + phase_s) * 1_000) + 1_000_000
        return at_ms - at_ms % (STEP_S * 1_000)


def play(script: Script, *, seed: int) -> Drain:
    """Run a script until its queue is empty: arrivals by chance, service with some jitter."""
    dice = random.Random(seed)
    drain, depth, spare, tick = Drain(arrived=[], left=[], depth=[]), 0, 0.0, 0
    while tick * TICK_S < script.steady_from_s + 1 or depth > 0:
        at_s = tick * TICK_S
        arrived = _chance(script.arriving(at_s) * TICK_S, dice) + script.bursts.get(round(at_s, 1), 0)
        spare += script.served(at_s) * TICK_S * dice.uniform(0.5, 1.5)
        left = min(depth + arrived, int(spare))
        spare -= int(spare)
        depth += arrived - left
        for column, value in ((drain.arrived, arrived), (drain.left, left), (drain.depth, depth)):
            column.append(value)
        tick += 1
        assert tick < 10_000, "it never drains"
    return drain


def _chance(mean: float, dice: random.Random) -> int:
    """A Poisson number, as the count of exponential waits within one tick."""
    count, waited = 0, dice.expovariate(1.0)
    while waited < mean:
        count, waited = count + 1, waited + dice.expovariate(1.0)
    return count


def looks(script: Script, drain: Drain, *, seed: int, after_s: float) -> list[bool]:
    """Whether the forecast was within a factor of two, asked now and then until shortly before the end."""
    found = []
    for tick in range(round((script.steady_from_s + after_s) / TICK_S), len(drain.depth) - 50, 17):
        true_ms = (len(drain.depth) - tick) * TICK_S * 1_000
        said_ms = drain.forecast_ms(tick, phase_s=seed * 0.83)
        found.append(true_ms / 2 <= said_ms <= true_ms * 2)
    return found


@pytest.mark.parametrize("after_s", [5, 10])
def test_nine_of_ten_forecasts_of_scripted_drains_are_within_a_factor_of_two(after_s: float) -> None:
    shares = {}
    for name, script in SCRIPTS.items():
        drains = [(seed, play(script, seed=seed)) for seed in range(4)]
        seen = [one for seed, drain in drains for one in looks(script, drain, seed=seed, after_s=after_s)]
        shares[name] = sum(seen) / len(seen)
    assert sum(shares.values()) >= 0.9 * len(shares), shares
    assert min(shares.values()) >= 0.6, shares


def chunks(*counts: int, newest_ms: int = 5_000) -> list[Chunk]:
    """Chunks of five seconds, the newest first."""
    first, *rest = counts
    return [Chunk(count=first, span_ms=newest_ms), *(Chunk(count=one, span_ms=5_000) for one in rest)]


def test_a_burst_is_forgotten_in_the_next_bucket() -> None:
    assert current_rate(chunks(0, 1_000, 0, 0)) == 0
    assert current_rate(chunks(0, 1_000, 0, 0, newest_ms=2_500)) == 0


def test_a_steady_rate_is_a_mean_over_all_of_it() -> None:
    assert current_rate(chunks(50, 48, 53, 49, 50, 50)) == pytest.approx(10)


def test_what_comes_in_turns_is_its_mean() -> None:
    assert current_rate(chunks(*(0, 100) * 6)) == pytest.approx(10)


def test_a_newest_bucket_that_has_just_begun_says_nothing_alone() -> None:
    assert current_rate(chunks(0, 50, 50, 50, newest_ms=100)) == pytest.approx(10, rel=0.05)


def test_nothing_happened_is_no_rate() -> None:
    assert current_rate([]) == 0
    assert current_rate(chunks_of({}, besides=0, open_ms=0, end_ms=1)) == 0


def test_what_has_not_landed_yet_counts_for_the_time_since_then() -> None:
    buckets = PaceBuckets(starts_ms=[0, 5_000], arrived=[0, 0], left=[50, 50], taken=[50, 50])
    behind = buckets.pace(end_ms=30_000)
    assert behind.leaving == 0, "without the rest it looks like a stall"
    known = buckets.pace(end_ms=30_000, late=(0, 200, 200), late_from_ms=10_000)
    assert known.leaving == pytest.approx(10)


def test_a_backlog_that_does_not_shrink_never_drains() -> None:
    assert Pace(arriving=2, leaving=2).drain_ms(5) == math.inf
    assert Pace(arriving=2, leaving=1).drain_ms(5) == math.inf
    assert Pace(arriving=2, leaving=1).drain_ms(0) == 0
    assert Pace(arriving=1, leaving=2).drain_ms(5) == 5_000
