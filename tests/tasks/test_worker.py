"""`weir worker module:app`: over HTTP with a URL and a token alone, and on the stores, on real servers."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from decimal import Decimal

import httpx2
import pytest

from support.waiting import until
from tasks import shop
from tasks.world import START_S, World, stop
from weir import MessageOutcome, TaskFailed
from weir.client.sync import Weir

HOME = shop.Address(street="Main", since=datetime(2026, 1, 2, tzinfo=UTC))
both = pytest.mark.parametrize("stores", [False, True], ids=["over HTTP", "on the stores"])


def working(world: World) -> bool:
    return "working as" in world.log()


@both
async def test_tasks_are_pushed_run_and_their_results_come_back(world: World, stores: bool) -> None:
    with world.worker(stores=stores) as worker:
        await until(lambda: working(world), within_s=START_S)
        parcel = shop.Parcel(weight=Decimal("1.10"), size=shop.Size.SMALL)
        receipt = (await shop.ship.apush(parcel, HOME, "a", urgent=True)).aresult(timeout=START_S)
        assert (await receipt).total == Decimal("2.20")
        assert world.notes("ship") == ["Main a True {}"]
        nothing = await shop.forget.apush("me")
        assert await nothing.aresult(timeout=START_S) is None
        assert stop(worker) == 0


@both
async def test_a_failing_task_is_retried_pushes_once_and_leaves_its_traceback(
    world: World, stores: bool
) -> None:
    with world.worker(stores=stores):
        await until(lambda: working(world), within_s=START_S)
        handle = await shop.fail_twice.apush("x")
        assert await handle.aresult(timeout=START_S) == 3
        await until(lambda: world.notes("label") != [], within_s=START_S)
        refused = await shop.refuse.apush("y")
        with pytest.raises(TaskFailed, match=r"is dead: .*never y"):
            await refused.aresult(timeout=START_S)
        assert await refused.astatus() == "dead"
    assert world.notes("fail_twice") == ["x 1", "x 2", "x 3"]
    assert world.notes("label") == ["x 2"]
    assert "ValueError: not yet x" in world.log()
    if stores:
        # Attempts over HTTP are not recorded; there the last error has the traceback.
        with Weir(world.api.url, token=world.write_token) as weir:
            shown = weir._run(weir._client._transport.send("GET", f"/api/v1/messages/{handle.id}"))
        assert "in fail_twice" in shown["attempts"][0]["error"]
        assert shown["attempts"][0]["error"].endswith("ValueError: not yet x")


@both
async def test_progress_is_told_while_a_task_runs(world: World, stores: bool) -> None:
    with world.worker(stores=stores):
        await until(lambda: working(world), within_s=START_S)
        handle = await shop.steps.apush(4)
        assert await handle.aresult(timeout=START_S) == 4
        await until(lambda: len(world.notes("label")) == 4, within_s=START_S)
        assert '"step 0"' in world.log() or "step 0" in world.log()
        assert f"message_id={handle.id}" in world.log()


@both
async def test_a_call_is_followed_to_its_end_with_and_without_a_loop(world: World, stores: bool) -> None:
    go = world.folder / "go"
    with world.worker(stores=stores):
        await until(lambda: working(world), within_s=START_S)
        handle = await shop.stop_halfway.apush(str(go))

        def follow() -> list[MessageOutcome]:
            return list(handle.watch(timeout=START_S))

        blocking = asyncio.create_task(asyncio.to_thread(follow))
        seen = []
        async for outcome in handle.awatch(timeout=START_S):
            seen.append((outcome.status, outcome.progress, outcome.result))
            if outcome.progress == {"half": 1}:
                go.write_text("on")
        assert ("running", {"half": 1}, None) in seen
        assert seen[-1] == ("done", None, "whole")
        assert (await blocking)[-1].result == "whole"
    await shop.app.aclose()


@both
async def test_what_a_failed_attempt_told_last_is_kept(world: World, stores: bool) -> None:
    go = world.folder / "go"
    go.write_text("fail")
    with world.worker(stores=stores):
        await until(lambda: working(world), within_s=START_S)
        handle = await shop.stop_halfway.apush(str(go))
        with pytest.raises(TaskFailed, match="stopped"):
            await handle.aresult(timeout=START_S)
        assert await handle.aprogress() == {"half": 2}
    await shop.app.aclose()


@both
async def test_a_hanging_task_is_ended_with_its_process(world: World, stores: bool) -> None:
    with world.worker(stores=stores):
        await until(lambda: working(world), within_s=START_S)
        quick = await shop.hang.apush(0.0)
        assert await quick.aresult(timeout=START_S) > 0
        stuck = await shop.hang.apush(600.0)
        with pytest.raises(TaskFailed, match="took longer than 1 s"):
            await stuck.aresult(timeout=START_S)
    pids = [line for line in world.notes("hang") if line.isdigit()]
    assert len(pids) == 3, "one call and two attempts"
    assert world.notes("hang").count("ended") == 1


async def test_a_worker_declares_its_queues_and_a_plan_shows_it(world: World) -> None:
    planned = world.command("worker", "tasks.shop:app", "--plan")
    assert planned.returncode == 0, planned.stderr
    assert "+ queue parcels" in planned.stdout
    with world.worker() as worker:
        await until(lambda: working(world), within_s=START_S)
        assert "+ queue parcels" in world.log()
        assert stop(worker) == 0
    again = world.command("worker", "tasks.shop:app", "--plan")
    assert again.stdout == "no changes\n"
    shown = world.command("queue", "show", "flaky", "--json")
    assert '"max_attempts": 3' in shown.stdout


async def test_without_an_admin_token_a_worker_says_what_differs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.worker(token=world.write_token) as worker:
        await until(lambda: worker.poll() is not None, within_s=START_S)
        assert worker.returncode == 2
    assert "start the worker once with an admin token" in world.log()
    with world.worker():
        await until(lambda: working(world), within_s=START_S)
    refused = world.command("queue", "change", "flaky", "--max-attempts", "9")
    assert "belongs to the app `shop`; change it in its code" in refused.stderr
    monkeypatch.setenv("SHOP_ATTEMPTS", "9")
    with world.worker(token=world.write_token):
        await until(lambda: "differs from what holds" in world.log(), within_s=START_S)
        assert "~ queue flaky / delivery / max_attempts: 3 → 9" in world.log()


async def test_apps_and_specs_own_their_queues_by_name(world: World) -> None:
    spec = world.folder / "shop.weir"
    spec.write_text("app Other { queue parcels {} queue mine {} }")
    with world.worker():
        await until(lambda: working(world), within_s=START_S)
    refused = world.command("spec", "apply", str(spec))
    assert refused.returncode == 1
    assert "queue `parcels` belongs to the app `shop`" in refused.stderr
    spec.write_text("app Other { queue mine {} }")
    assert world.command("spec", "apply", str(spec)).returncode == 0
    queues = world.command("queue", "list", "--json").stdout
    assert all(f'"{name}"' in queues for name in ("parcels", "mine", "flaky"))
    spec.write_text("app Other { queue mine {} queue reports {} }")
    assert world.command("spec", "apply", str(spec)).returncode == 0
    with world.worker(app="tasks.shop:reports") as worker:
        await until(lambda: worker.poll() is not None, within_s=START_S)
    assert "queue `reports` belongs to the spec `Other`" in world.log()


async def test_schedules_of_an_app_are_declared_and_run(world: World) -> None:
    with world.worker(app="tasks.shop:reports"):
        await until(lambda: working(world), within_s=START_S)
        shown = world.command("schedule", "show", "nightly", "--json")
        assert '"origin": "app"' in shown.stdout, shown.stderr
        assert '"timezone": "Europe/Berlin"' in shown.stdout
        refused = world.command("schedule", "delete", "nightly")
        assert "belongs to the app `reports`; change it in its code" in refused.stderr
        assert world.command("schedule", "run", "nightly").returncode == 0
        await until(lambda: world.notes("nightly") != [], within_s=START_S)
        assert world.notes("nightly")[0].startswith("sales ")


async def test_a_spec_is_exported_that_declares_the_same(world: World) -> None:
    exported = world.command("spec", "export", "tasks.shop:reports")
    assert exported.returncode == 0, exported.stderr
    assert "cron: 0 3 * * *" in exported.stdout
    file = world.folder / "reports.yaml"
    file.write_text(exported.stdout)
    assert world.command("spec", "check", str(file)).returncode == 0


async def test_only_the_named_queues_are_served(world: World) -> None:
    with world.worker("--queue", "parcels"):
        await until(lambda: working(world), within_s=START_S)
        other = await shop.refuse.apush("stays")
        assert await (await shop.label.apush("a")).aresult(timeout=START_S) == "a"
        assert await other.astatus() == "waiting"
    with world.worker("--queue", "nowhere") as worker:
        await until(lambda: worker.poll() is not None, within_s=START_S)
    assert "has no queue `nowhere`; it has callbacks, doomed, flaky" in world.log()


@both
async def test_a_worker_tells_prometheus_and_probes_how_it_is(world: World, stores: bool) -> None:
    with world.worker("--port", "0", stores=stores):
        await until(lambda: working(world), within_s=START_S)
        found = re.search(r"probes at port (\d+)", world.log())
        assert found is not None
        base = f"http://127.0.0.1:{found[1]}"
        await (await shop.label.apush("a")).aresult(timeout=START_S)
        async with httpx2.AsyncClient() as http:
            assert (await http.get(f"{base}/livez")).status_code == 200
            assert (await http.get(f"{base}/readyz")).status_code == 200
            assert (await http.get(f"{base}/other")).status_code == 404
            metrics = (await http.get(f"{base}/metrics")).text
        assert 'weir_task_attempts_total{ending="done",task="label"} 1.0' in metrics


async def test_several_processes_share_the_work(world: World) -> None:
    with world.worker("--processes", "2") as worker:
        await until(lambda: world.log().count("working as") == 2, within_s=START_S)
        handles = [await shop.label.apush(f"n{number}") for number in range(20)]
        assert [await one.aresult(timeout=START_S) for one in handles] == [
            f"n{number}" for number in range(20)
        ]
        assert stop(worker) == 0


async def test_a_watched_worker_runs_the_newest_code(world: World) -> None:
    code = world.folder / "fresh.py"
    template = (
        "from weir import App\napp = App(name='fresh')\n\n@app.task\ndef answer() -> int:\n    return {}\n"
    )
    code.write_text(template.format(1))
    with world.worker("--watch", app="fresh:app"):
        await until(lambda: working(world), within_s=START_S)
        code.write_text(template.format(22))
        await until(lambda: world.log().count("working as") == 2, within_s=START_S)
        assert "fresh.py changed" in world.log()
