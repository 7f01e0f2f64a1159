"""Workers: commands, retries, death, leases, timeouts, draining, and following the spec."""

from __future__ import annotations

import asyncio
import threading
import time

import orjson
import pytest

from support.waiting import until
from weir.errors import Misconfigured
from weir.worker import Commands, Context, Reject, Retry
from weir.workers.commands import load_commands

SPEC = """
app A {
  queue Q {
    message_type { id: int, name: string? }
    delivery { max_attempts: 3, initial_backoff_ms: 1, max_backoff_ms: 2 }
    map_to: command Thing.Do { number: id, shout: name == null ? "none" : name.upperAscii() }
  }
}
"""


async def test_a_command_gets_its_inputs_and_the_message_is_done(rig):
    seen = []

    @rig.commands.command("Thing.Do")
    async def do(number: int, shout: str, context: Context) -> dict[str, int]:
        seen.append((number, shout, context.attempt, context.queue))
        return {"id": number}

    await rig.apply(SPEC)
    await rig.put("Q", b'{"id": 7, "name": "ann"}', b'{"id": 8}', idempotency_key=None)
    async with rig.working():
        await until(lambda: rig.endings() == ["done", "done"])
    assert sorted(seen) == [(7, "ANN", 1, "Q"), (8, "none", 1, "Q")]
    assert (await rig.broker.state(rig.environment.queue("Q"))).running == 0
    assert {attempt.result["id"] for attempt in rig.journal.attempts} == {7, 8}


async def test_inputs_that_are_not_provably_small_are_evaluated_in_the_box(rig):
    seen = []

    @rig.commands.command("Thing.Do")
    async def do(large: list[int], about: str) -> None:
        seen.append((large, about))

    await rig.apply(
        """
        app A {
          queue Q {
            delivery { max_attempts: 1 }
            map_to: command Thing.Do {
              large: l.filter(n, n > 1)
              about: message.queue + " " + string(message.enqueued_at.getFullYear() > 2000)
            }
          }
        }
        """
    )
    await rig.put("Q", b'{"l": [1, 2, 3]}')
    async with rig.working():
        await until(lambda: rig.endings() == ["done"])
        await rig.put("Q", b'{"l": ' + str(list(range(20_000))).encode() + b"}")
        await until(lambda: len(rig.endings()) == 2)
    assert seen == [([2, 3], "Q true")]
    assert rig.endings()[-1] == "dead"
    assert "more than" in str(rig.journal.attempts[-1].error)


async def test_a_synchronous_command_runs_in_a_thread(rig):
    threads = []

    @rig.commands.command("Thing.Do")
    def do(number: int, shout: str) -> None:
        threads.append(threading.current_thread())

    await rig.apply(SPEC)
    await rig.put("Q", b'{"id": 1}')
    async with rig.working():
        await until(lambda: rig.endings() == ["done"])
    assert threads[0] is not threading.main_thread()


async def test_synchronous_commands_run_side_by_side(rig):
    barrier = threading.Barrier(4, timeout=5)

    @rig.commands.command("Thing.Do")
    def do(**inputs: object) -> None:
        barrier.wait()

    await rig.apply(SPEC)
    await rig.put("Q", *[b'{"id": 1}'] * 4)
    async with rig.working(concurrency=4):
        await until(lambda: rig.endings() == ["done"] * 4)


async def test_no_more_than_the_concurrency_run_at_once(rig):
    running, most = 0, 0

    @rig.commands.command("Thing.Do")
    async def do(**inputs: object) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1

    await rig.apply(SPEC)
    await rig.put("Q", *[b'{"id": 1}'] * 40)
    async with rig.working(concurrency=3, prefetch=20) as worker:
        await until(lambda: worker.processed == 40)
    assert most == 3


async def test_a_failing_command_is_tried_again_and_dies_with_its_error(rig):
    @rig.commands.command("Thing.Do")
    async def do(**inputs: object) -> None:
        raise RuntimeError("boom 42")

    await rig.apply(SPEC)
    await rig.put("Q", b'{"id": 1}')
    async with rig.working():
        await until(lambda: len(rig.journal.attempts) == 3)
    assert rig.endings() == ["failed", "failed", "dead"]
    (dead,) = await rig.outbox()
    assert dead.attempts == 3
    assert "RuntimeError: boom 42" in dead.error


async def test_a_rejected_message_dies_at_once(rig):
    @rig.commands.command("Thing.Do")
    async def do(**inputs: object) -> None:
        raise Reject("never")

    await rig.apply(SPEC)
    await rig.put("Q", b'{"id": 1}')
    async with rig.working():
        await until(lambda: rig.endings() == ["dead"])
    (dead,) = await rig.outbox()
    assert dead.attempts == 1


async def test_a_command_may_choose_its_own_delay(rig):
    starts = []

    @rig.commands.command("Thing.Do")
    async def do(**inputs: object) -> None:
        starts.append(time.monotonic())
        if len(starts) == 1:
            raise Retry("later", delay=0.12)

    await rig.apply(SPEC)
    await rig.put("Q", b'{"id": 1}')
    async with rig.working():
        await until(lambda: len(starts) == 2)
    assert starts[1] - starts[0] >= 0.115


@pytest.mark.parametrize("payload", [b"not json", b'{"id": "text"}', b"{}", b"[]"])
async def test_a_message_that_does_not_fit_its_type_dies_at_once_with_the_reason(rig, payload):
    @rig.commands.command("Thing.Do")
    async def do(**inputs: object) -> None:
        pytest.fail("must not run")

    await rig.apply(SPEC)
    await rig.put("Q", payload)
    async with rig.working():
        await until(lambda: rig.endings() == ["dead"])
    (dead,) = await rig.outbox()
    assert dead.error


async def test_a_handler_that_takes_too_long_is_stopped_and_retried(rig):
    attempts = []

    @rig.commands.command("Thing.Do")
    async def do(context: Context, **inputs: object) -> None:
        attempts.append(context.attempt)
        if context.attempt == 1:
            await asyncio.sleep(30)

    await rig.apply(SPEC.replace("max_attempts: 3", "max_attempts: 3, handler_timeout: 50ms"))
    await rig.put("Q", b'{"id": 1}')
    async with rig.working():
        await until(lambda: rig.endings() == ["failed", "done"])
    assert "longer than 50 ms" in rig.journal.attempts[0].error


async def test_a_poison_message_that_exits_does_not_end_the_worker(rig):
    @rig.commands.command("Thing.Do")
    def do(number: int, shout: str) -> None:
        if number == 666:
            raise SystemExit(1)

    await rig.apply(SPEC)
    await rig.put("Q", b'{"id": 666}', b'{"id": 1}')
    async with rig.working():
        await until(lambda: rig.endings().count("dead") == 1 and "done" in rig.endings())


async def test_leases_are_renewed_while_a_handler_runs(rig):
    @rig.commands.command("Thing.Do")
    async def do(**inputs: object) -> None:
        await asyncio.sleep(1.0)

    await rig.apply(SPEC.replace("max_attempts: 3", "max_attempts: 3, lease: 300ms"))
    await rig.put("Q", b'{"id": 1}')
    async with rig.working():
        await until(lambda: rig.endings() == ["done"])
    assert rig.journal.attempts[0].delivery.attempt == 1


async def test_a_lost_lease_stops_the_handler_and_settles_nothing(rig):
    started, stopped = asyncio.Event(), asyncio.Event()

    @rig.commands.command("Thing.Do")
    async def do(context: Context, **inputs: object) -> None:
        if context.attempt > 1:
            return
        started.set()
        try:
            await asyncio.sleep(30)
        finally:
            stopped.set()

    await rig.apply(SPEC.replace("max_attempts: 3", "max_attempts: 3, lease: 300ms"))
    await rig.put("Q", b'{"id": 1}')
    extend = rig.broker.extend

    async def late(leases, *, lease_ms):
        await asyncio.sleep(0.4)
        for shard in range(rig.broker.shards):
            await rig.broker.sweep(shard)
        return await extend(leases, lease_ms=lease_ms)

    rig.broker.extend = late
    async with rig.working():
        await asyncio.wait_for(started.wait(), 5)
        await asyncio.wait_for(stopped.wait(), 5)
        await until(lambda: sorted(rig.endings()) == ["done", "lost"])


async def test_draining_finishes_what_runs_and_gives_the_rest_back(rig):
    gate, started_work = asyncio.Event(), []

    @rig.commands.command("Thing.Do")
    async def do(number: int, shout: str) -> None:
        started_work.append(number)
        if number == 1:
            await gate.wait()
        else:
            await asyncio.sleep(60)

    await rig.apply(SPEC)
    await rig.put("Q", b'{"id": 1}', b'{"id": 2}')
    started = time.monotonic()
    async with rig.working(drain_s=0.5):
        await until(lambda: len(started_work) == 2)
        gate.set()
    assert time.monotonic() - started < 10
    assert sorted(rig.endings()) == ["done", "failed"]
    state = await rig.broker.state(rig.environment.queue("Q"))
    assert (state.depth, state.running) == (1, 0)


SIMPLE = "app A { queue Q { delivery { max_attempts: 3 } map_to: command Thing.Do } }"


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_worker_that_stops_counts_no_attempt_of_what_never_began(rig, attempts):
    begun = []

    @rig.commands.command("Thing.Do")
    async def do(context: Context) -> None:
        begun.append(context.message_id)
        await asyncio.Event().wait()

    await rig.apply(SIMPLE.replace("max_attempts: 3", f"max_attempts: {attempts}"))
    ids = await rig.put("Q", *[b"{}"] * 6)
    async with rig.working(concurrency=1, prefetch=3, drain_s=0.1) as worker:
        await until(lambda: bool(begun))
        if attempts == 1:
            assert worker.fetched_ahead == 0, "a kill -9 would cost it its only attempt"
        else:
            await until(lambda: worker.fetched_ahead == 3)
    queue = rig.environment.queue("Q")
    dead = [one.message_id for one in await rig.outbox()]
    assert dead == (begun if attempts == 1 else [])
    found = await rig.broker.dequeue(queue, consumer="c", limit=9, wait_ms=1_000)
    assert {one.message_id: one.attempt for one in found if one.message_id not in begun} == {
        one: 1 for one in ids if one not in begun
    }


async def test_queues_of_one_attempt_share_the_slots_and_keep_nothing_in_hand(rig):
    @rig.commands.command("Thing.Do")
    async def do() -> None:
        await asyncio.Event().wait()

    queue = "queue {} {{ delivery {{ max_attempts: 1 }} map_to: command Thing.Do }}"
    await rig.apply(f"app A {{ {' '.join(queue.format(name) for name in 'QRS')} }}")
    async with rig.working(concurrency=2, drain_s=0.1) as worker:
        await until(lambda: len(worker._claims) == 3)
        await asyncio.gather(*(rig.put(name, *[b"{}"] * 4) for name in "QRS"))
        await until(lambda: worker.free_slots == 0 and not len(worker._settling))
        held = [len(list(worker._renewer)), worker.fetched_ahead]
    assert held == [2, 0]
    assert len(await rig.outbox()) == 2


async def test_a_worker_follows_the_spec_without_a_restart(rig):
    seen = []

    @rig.commands.command("Thing.Do")
    async def do(**inputs: object) -> None:
        seen.append("do")

    @rig.commands.command("Other.Do")
    async def other() -> None:
        seen.append("other")

    await rig.apply(SPEC)
    async with rig.working():
        await rig.put("Q", b'{"id": 1}')
        await until(lambda: seen == ["do"])
        await rig.apply("app A { queue Q {} queue R { map_to: command Other.Do } }")
        await rig.put("R", b"{}")
        await until(lambda: seen == ["do", "other"])


async def test_a_command_that_nobody_registered_is_named_with_the_nearest(rig):
    @rig.commands.command("Thing.Doo")
    async def do(**inputs: object) -> None: ...

    await rig.apply(SPEC)
    await rig.put("Q", b'{"id": 1}')
    async with rig.working():
        await until(lambda: len(rig.journal.attempts) == 1)
    assert "did you mean `Thing.Doo`?" in rig.journal.attempts[0].error


@pytest.mark.parametrize("inputs", ["", "{ b: a }"])
async def test_a_chained_message_says_whose_it_is_and_is_not_a_replay(rig, inputs):
    await rig.apply(f"app A {{ queue In {{ enqueue: Out {inputs} }} queue Out {{}} }}")
    headers = {"weir-replay-of": "018bcfe5-6800-7000-8000-000000000000", "trace": "t"}
    (first,) = await rig.put("In", orjson.dumps({"a": 21}), headers=headers)
    async with rig.working():
        await until(lambda: rig.endings() == ["done"])
    (found,) = await rig.broker.dequeue(rig.environment.queue("Out"), consumer="test")
    assert found.headers["weir-chained-from"] == first
    assert "weir-replay-of" not in found.headers
    assert ("trace" in found.headers) is (not inputs)


async def test_a_chained_message_arrives_once_however_often_the_step_runs(rig):
    await rig.apply(
        """
        app A {
          queue In { message_type { a: int }  enqueue: Out { b: a * 2 } }
          queue Out { message_type { b: int }  map_to: command Thing.Do { b: b } }
        }
        """
    )
    seen = []

    @rig.commands.command("Thing.Do")
    async def do(b: int) -> None:
        seen.append(b)

    ack, calls = rig.broker.ack, []

    async def forgetful(leases):
        calls.append(leases)
        if leases[0].queue.queue == "In" and len(calls) == 1:
            return await rig.broker.nack([_failure(lease) for lease in leases])
        return await ack(leases)

    rig.broker.ack = forgetful
    await rig.put("In", orjson.dumps({"a": 21}))
    async with rig.working():
        await until(lambda: len(seen) == 1 and rig.endings().count("done") >= 3, within_s=15)
    assert seen == [42]


COMMAND_AND_CHAIN = """
app A {
  queue In {
    message_type { a: int }
    delivery { initial_backoff: 1ms, max_backoff: 1ms }
    map_to: command Thing.Do { a: a }
    enqueue: Out { a: a, twice: result.twice }
  }
  queue Out { message_type { a: int, twice: int } }
}
"""


async def test_a_command_passes_its_message_on_with_its_result_once_it_is_done(rig):
    await rig.apply(COMMAND_AND_CHAIN)
    attempts = []

    @rig.commands.command("Thing.Do")
    async def do(a: int, context: Context) -> dict[str, int]:
        attempts.append(context.attempt)
        if context.attempt == 1:
            raise ValueError("not yet")
        return {"twice": a * 2}

    (first,) = await rig.put("In", orjson.dumps({"a": 21}))
    out = rig.environment.queue("Out")
    async with rig.working():
        await until(lambda: rig.endings() == ["failed", "done"], within_s=15)
    (found,) = await rig.broker.dequeue(out, consumer="test", limit=9)
    assert attempts == [1, 2]
    assert orjson.loads(found.payload) == {"a": 21, "twice": 42}
    assert found.headers["weir-chained-from"] == first
    assert rig.journal.attempts[-1].result == {"twice": 42}


@pytest.mark.parametrize("slots", [1, 10])
async def test_a_full_next_queue_costs_neither_an_attempt_nor_another_run(rig, slots):
    spec = COMMAND_AND_CHAIN.replace("queue Out {", "queue Out { retention { max_depth: 2 }")
    await rig.apply(spec.replace("delivery { initial", "delivery { max_attempts: 1, initial"))
    runs = []

    @rig.commands.command("Thing.Do")
    async def do(a: int) -> dict[str, int]:
        runs.append(a)
        return {"twice": a * 2}

    out = rig.environment.queue("Out")
    await rig.put("In", *(b'{"a": %d}' % number for number in range(6)))
    found = []
    async with rig.working(concurrency=slots):
        await until(lambda: len(runs) == 6, within_s=15)
        while len(found) < 6:
            for one in await rig.broker.dequeue(out, consumer="test", limit=9, wait_ms=1_000):
                found.append(orjson.loads(one.payload)["twice"])
                await rig.broker.ack([one.lease])
        await until(lambda: len(rig.endings()) == 6, within_s=15)
    assert rig.endings() == ["done"] * 6
    assert sorted(runs) == [0, 1, 2, 3, 4, 5]
    assert sorted(found) == [0, 2, 4, 6, 8, 10]


async def test_a_worker_that_stops_gives_back_what_waits_for_room_in_the_next_queue(rig):
    await rig.apply(
        "app A { queue In { delivery { max_attempts: 1 } enqueue: Out }"
        " queue Out { retention { max_depth: 1 } } }"
    )
    await rig.put("Out", b"{}")
    await rig.put("In", b"{}")
    async with rig.working(drain_s=0.2) as worker:
        await until(lambda: len(worker._passing) == 1)
    assert await rig.outbox() == []
    (again,) = await rig.broker.dequeue(rig.environment.queue("In"), consumer="c", wait_ms=1_000)
    assert again.attempt == 1


async def test_what_was_usual_in_one_queue_is_usual_in_the_next_and_urgent_stays_urgent(rig):
    await rig.apply("app A { queue In { priority: 6, enqueue: Out } queue Out { priority: 2 } }")
    await rig.put("In", b"1")
    await rig.put("In", b"2", priority=9)
    queue = rig.environment.queue("Out")
    async with rig.working():
        await until(lambda: rig.endings().count("done") == 2)
    got = await rig.broker.dequeue(queue, consumer="test", limit=9)
    assert [(one.payload, one.priority) for one in got] == [(b"2", 9), (b"1", 2)]


def _failure(lease):
    from weir.model.message import Failure

    return Failure(lease=lease, error="the ack was lost", delay_ms=0)


def test_a_registry_is_loaded_by_name_and_mistakes_are_explained(tmp_path, monkeypatch):
    (tmp_path / "shop_commands.py").write_text(
        "from weir.worker import Commands\napp = Commands()\nother = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(load_commands("shop_commands:app"), Commands)
    for target in ("shop_commands", "nowhere_at_all:app", "shop_commands:other", "shop_commands:gone"):
        with pytest.raises(Misconfigured):
            load_commands(target)


async def test_a_worker_knows_how_much_room_it_has_left(rig):
    gate = asyncio.Event()

    @rig.commands.command("Thing.Do")
    async def do(number: int, shout: str) -> None:
        await gate.wait()

    await rig.apply(SPEC)
    await rig.put("Q", *(b'{"id": %d}' % number for number in range(5)))
    async with rig.working(concurrency=3, prefetch=4) as worker:
        await until(lambda: worker.fetched_ahead == 2)
        assert worker.free_slots == 0
        gate.set()
        await until(lambda: worker.free_slots == 3)
        assert worker.fetched_ahead == 0


async def test_an_attempt_takes_as_long_as_its_handler_and_not_as_its_wait_for_a_slot(rig):
    @rig.commands.command("Thing.Do")
    async def do(**inputs: object) -> None:
        await asyncio.sleep(0.1)

    await rig.apply(SPEC)
    await rig.put("Q", *[b'{"id": 1}'] * 4)
    async with rig.working(concurrency=1, prefetch=10):
        await until(lambda: rig.endings() == ["done"] * 4)
    for attempt in rig.journal.attempts:
        assert 95 <= attempt.finished_at_ms - attempt.started_at_ms < 195


async def test_a_worker_describes_what_runs_and_what_it_only_fetched_ahead(rig):
    free = asyncio.Event()

    @rig.commands.command("Thing.Do")
    async def do(**inputs: object) -> None:
        await free.wait()

    await rig.apply(SPEC)
    await rig.put("Q", *[b'{"id": 1}'] * 5)
    async with rig.working(concurrency=2, prefetch=3) as worker:
        await until(lambda: sum(load.held for load in worker.described().loads) == 5)
        seen = worker.described()
        (load,) = seen.loads
        assert (load.queue.queue, load.running, seen.slots, seen.free_slots) == ("Q", 2, 2, 0)
        assert seen.takes(rig.environment.queue("Q"))
        await until(lambda: worker.described().loads[0].running_ms > load.running_ms)
        free.set()
        await until(lambda: rig.endings() == ["done"] * 5)
        assert worker.described().loads == ()
    assert not worker.described().takes(rig.environment.queue("Q")), "it drained"


@pytest.mark.parametrize(
    ("only", "ending"),
    [
        ((), "done"),
        ((0, 1), "done"),
        ((0, 2), "done"),
        ((0, 3), "done"),
        ((1, 1), "failed"),
        ((1, 2), "failed"),
        ((1, 3), "failed"),
    ],
)
async def test_a_command_is_registered_for_those_scopes_only_that_it_names(rig, only, ending):
    """`only` is the scope of the rig (0) or of a neighbour with the same names inside (1), and its depth."""
    names = rig.environment.names
    scopes = (names, ("neighbour", *names[1:]))
    chosen = [scopes[only[0]][: only[1]]] if only else []
    rig.commands.command("Thing.Do", only=chosen)(lambda: None)
    spec = "app A {{ queue {} {{ delivery {{ max_attempts: 1 }} map_to: command {} }} }}"
    await rig.apply(spec.format("Q", "Thing.Do"))
    await rig.put("Q", b"{}")
    async with rig.working():
        await until(lambda: rig.endings() == [ending])
    if ending == "failed":
        await rig.apply(spec.format("R", "Thing.Doo"))
        await rig.put("R", b"{}")
        async with rig.working():
            await until(lambda: rig.endings() == ["failed", "failed"])
        assert await rig.outbox() == [], "nothing was tried"
        errors = [one.error for one in rig.journal.attempts]
        assert [error.replace("Doo", "Do") for error in errors] == [
            "no command `Thing.Do` is registered here"
        ] * 2


@pytest.mark.parametrize("only", ["acme", [()], [("a", "b", "c", "d")], ["acme"]])
def test_a_scope_that_cannot_be_one_is_refused(only):
    with pytest.raises(Misconfigured, match="`only` is a list of scopes"):
        Commands().command("Thing.Do", only=only)
