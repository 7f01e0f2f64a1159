"""Chains and groups: in memory, and on real servers with workers that are killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from support.processes import descendants, is_alive, kill9
from support.waiting import until
from tasks import shop
from tasks.world import START_S, World
from weir import App, TaskContext, chain, group
from weir.errors import Misconfigured
from weir.model.message import Delivery
from weir.spec.ir import DeliveryPolicy
from weir.tasks.workflows import TaskChain, TaskGroup
from weir.testing import MemoryTasks, eager
from weir.workers.outcome import HandlerOutcome

MEMBERS = 1_000


def shown(world: World, queue: str) -> str:
    return world.command("queue", "show", queue, "--json").stdout


def test_a_chain_hands_each_result_to_the_next_call() -> None:
    app = App()
    seen: list[object] = []

    @app.task
    def add(left: int, right: int) -> int:
        return left + right

    @app.task
    def show(value: int, *, title: str) -> None:
        seen.append((title, value))

    with eager(app):
        handle = chain(add.call(1, 2), add.call(right=10), show.call(title="sum")).push()
        assert handle.result(timeout=1) == 3
    assert seen == [("sum", 13)]


def test_the_calls_of_a_chain_are_checked_where_it_is_made() -> None:
    with MemoryTasks(shop.app):
        with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
            chain(shop.label.call("a"), shop.label.call(colour="red")).push()
        with pytest.raises(ValidationError, match="copies"):
            chain(shop.label.call("a"), shop.label.call(copies="many")).push()
    with pytest.raises(Misconfigured, match="at least one call"):
        chain()


def test_a_group_calls_back_once_when_all_are_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHOP_NOTES", str(tmp_path / "notes"))
    members = [
        shop.member.call(1),
        chain(shop.label.call("a"), shop.label.call(copies=2)),
        shop.member.call(3),
    ]
    with MemoryTasks(shop.app) as tasks:
        made = group(members, then=shop.all_done.call("x"), failed=shop.some_died.call("x"))
        handles = made.push()
        assert [one.id for one in made.push()] == [one.id for one in handles], "pushing it again adds nothing"
        tasks.advance(10)
        assert [one.result(timeout=1) for one in handles] == [1, "a", 3]
    lines = (tmp_path / "notes").read_text().splitlines()
    assert lines.count("all_done x") == 1
    assert "some_died x" not in lines
    assert lines.index("all_done x") == len(lines) - 1
    assert "label a 2" in lines


@pytest.mark.parametrize(
    ("made", "after"),
    [
        (lambda: group([shop.member.call(0)], then=shop.all_done.call("x")), "all_done x"),
        (lambda: chain(shop.label.call("a"), shop.label.call(copies=2)), "label a 2"),
    ],
    ids=["group", "chain"],
)
def test_what_comes_after_a_call_comes_once_if_its_worker_dies_before_the_ack(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: Callable[[], TaskGroup | TaskChain], after: str
) -> None:
    monkeypatch.setenv("SHOP_NOTES", str(tmp_path / "notes"))
    with MemoryTasks(shop.app) as tasks:
        settle, died = tasks.settle, []

        async def die_first(delivery: Delivery, outcome: HandlerOutcome) -> None:
            if died:
                await settle(delivery, outcome)
            else:
                died.append(delivery.message_id)

        monkeypatch.setattr(tasks, "settle", die_first)
        made().push()
        tasks.run()
        tasks.advance(DeliveryPolicy().lease_ms / 1_000)
        assert tasks.run() == 1, "the lease of the dead worker lapsed"
    assert (tmp_path / "notes").read_text().splitlines().count(after) == 1


async def test_a_dead_member_fails_the_group_and_its_redrive_completes_it(world: World) -> None:
    key = world.folder / "key"
    with world.worker():
        await until(lambda: "working as" in world.log(), within_s=START_S)
        calls = [shop.doomed.call(str(key)), shop.doomed.call(str(key)), shop.member.call(0)]
        made = group(calls, then=shop.all_done.call("g"), failed=shop.some_died.call("g"))
        await made.apush()
        await until(lambda: world.notes("some_died") != [], within_s=START_S)
        key.touch()

        def dead() -> str:
            return world.command("dlq", "list", "doomed", "--json").stdout

        await until(lambda: dead().count('"reason"') == 2, within_s=START_S)
        redriven = world.command("dlq", "redrive", "--queue", "doomed", "--yes")
        assert redriven.returncode == 0, redriven.stderr
        await until(lambda: world.notes("all_done") != [], within_s=START_S)
    assert world.notes("some_died") == ["g"], "two members died, and the group failed once"
    assert world.notes("all_done") == ["g"]


async def test_the_callback_of_a_thousand_members_runs_once_whoever_dies(world: World) -> None:
    """Members fail, are retried, and their workers are killed while they run them."""
    with world.worker("--processes", "2", stores=True) as worker:
        await until(lambda: world.log().count("working as") == 2, within_s=START_S)
        made = group(
            [shop.member.call(number) for number in range(MEMBERS)],
            then=shop.all_done.call("all"),
            failed=shop.some_died.call("all"),
        )
        await made.apush()
        killed = 0
        deadline = time.monotonic() + START_S
        while not world.notes("all_done") and time.monotonic() < deadline + START_S:
            reached = len(set(world.notes("member")))
            if killed < 3 and reached > (killed + 1) * MEMBERS // 5:
                # Below the supervisor stand the guards of its workers, and below those nothing else.
                victim = next(one.pid for one in descendants(worker.pid) if is_alive(one.pid))
                kill9(victim)
                killed += 1
            await asyncio.sleep(0.05)
        assert killed == 3
        assert set(world.notes("member")) == {str(number) for number in range(MEMBERS)}
        # Everything that is left of the group is worked off; a second callback would be among it.
        for queue in ("members", "callbacks"):
            await until(lambda queue=queue: '"depth": 0' in shown(world, queue), within_s=START_S)
    assert world.notes("all_done") == ["all"]
    assert world.notes("some_died") == []


small = App(name="small", queue="first")
charged: list[int] = []


@small.task(max_attempts=1)
def charge(number: int) -> int:
    charged.append(number)
    return number


@small.task(queue="second", max_depth=1)
def receipt(number: int) -> int:
    return number


@small.task(queue="begin", max_attempts=3)
def begin(context: TaskContext) -> None:
    chain(charge.call(7), charge.call()).push()
    group([charge.call(8), charge.call(9)]).push()
    if context.attempt < 3:
        raise ValueError("again")


def test_a_full_queue_of_the_next_step_neither_runs_nor_kills_the_step_before() -> None:
    charged.clear()
    with MemoryTasks(small) as tasks:
        for number in range(3):
            chain(charge.call(number), receipt.call()).push()
        tasks.run()
        tasks.advance(1)
        assert tasks.dead == []
    assert sorted(charged) == [0, 1, 2]


def test_workflows_that_a_task_pushes_are_pushed_once_although_it_is_tried_again() -> None:
    charged.clear()
    with MemoryTasks(small) as tasks:
        begin.push()
        tasks.advance(600)
        assert tasks.dead == []
    assert sorted(charged) == [7, 7, 8, 9]
