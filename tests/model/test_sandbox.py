"""The box: what runs in it has little time and memory, and nobody else notices."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future

import pytest

from support.processes import is_alive
from support.waiting import until, wait_until
from weir.errors import InvalidInput, OverBudget, Unavailable
from weir.model import sandbox as module
from weir.model.sandbox import Budget, Sandbox
from weir.model.sandboxed import begin_item

SHORT = Budget(processor_s=0.3, wall_s=30.0, memory_bytes=64 << 20)


def double(value):
    return value * 2


def pid():
    return os.getpid()


def spin():
    while True:
        pass


def spin_at_third():
    for index in range(5):
        begin_item(index)
        if index == 2:
            spin()


def hang():
    time.sleep(600)


def eat():
    return len(bytearray(1 << 30))


def refuse():
    raise InvalidInput("no", field="name")


def strange():
    class Local(Exception):
        pass

    raise Local("it")


def die(number):
    os.kill(os.getpid(), number)


def hold(seconds, path):
    path.touch()
    time.sleep(seconds)
    return "held"


def about():
    return dict(os.environ), os.nice(0), signal.getsignal(signal.SIGTERM)


@pytest.fixture
def box():
    return Sandbox(children=2)


async def test_a_function_runs_in_another_process_and_its_result_comes_back(box):
    assert await box.run(double, 21, owner="a") == 42
    first = await box.run(pid, owner="a")
    assert first != os.getpid()
    assert await box.run(pid, owner="a") == first, "an idle child is used again"


async def test_what_the_function_raises_is_raised_here(box):
    with pytest.raises(InvalidInput) as caught:
        await box.run(refuse, owner="a")
    assert (caught.value.message, caught.value.extra) == ("no", {"field": "name"})
    with pytest.raises(RuntimeError, match="Local"):
        await box.run(strange, owner="a")


async def test_a_call_that_computes_for_too_long_is_killed_and_the_next_caller_is_served(box):
    with pytest.raises(OverBudget, match=r"the expression used more than 0\.3 s of processor time"):
        await box.run(spin, owner="a", what="the expression", budget=SHORT)
    assert await box.run(double, 1, owner="a") == 2


async def test_the_error_says_at_which_item_the_time_ran_out(box):
    with pytest.raises(OverBudget) as caught:
        await box.run(spin_at_third, owner="a", budget=SHORT)
    assert caught.value.extra == {"item": 2}


async def test_a_call_that_hangs_is_killed_and_the_next_caller_is_served(box):
    with pytest.raises(OverBudget, match="took longer than 1 s"):
        await box.run(hang, owner="a", budget=Budget(wall_s=1.0))
    assert await box.run(double, 1, owner="a") == 2


async def test_a_call_that_takes_too_much_memory_fails_and_the_next_caller_is_served(box):
    with pytest.raises(OverBudget, match="used more than 64 MiB of memory"):
        await box.run(eat, owner="a", budget=SHORT)
    assert await box.run(double, 1, owner="a") == 2


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV])
async def test_a_call_whose_process_crashes_is_its_authors_error(box, number):
    with pytest.raises(OverBudget, match="ended its process"):
        await box.run(die, number, owner="a")
    assert await box.run(double, 1, owner="a") == 2


async def test_an_idle_child_that_was_killed_is_replaced_before_it_is_used(box):
    first = await box.run(pid, owner="a")
    os.kill(first, signal.SIGKILL)
    assert await box.run(pid, owner="a") != first


async def test_a_call_whose_child_is_killed_from_outside_runs_again_in_another(box, tmp_path):
    running = asyncio.ensure_future(box.run(hold, 0.5, tmp_path / "first", owner="a"))
    await until(lambda: (tmp_path / "first").exists(), within_s=60)
    for number in box.pids():
        os.kill(number, signal.SIGKILL)
    assert await running == "held"


async def test_a_call_whose_children_are_always_killed_may_be_tried_later(box):
    with pytest.raises(Unavailable, match="killed"):
        await box.run(die, signal.SIGKILL, owner="a")


async def test_one_owner_never_holds_all_children(box, tmp_path):
    long = Budget(wall_s=30.0)
    many = [box.submit(hold, 60, tmp_path / str(n), owner="heavy", budget=long) for n in range(5)]
    await until(lambda: (tmp_path / "0").exists(), within_s=60)
    assert await box.run(double, 1, owner="other") == 2
    assert not (tmp_path / "1").exists()
    for call in many:
        call.cancel()


async def test_owners_take_turns(box):
    order: list[str] = []
    calls: list[Future[str]] = []
    for owner in ("a", "a", "a", "b"):
        call = box.submit(time.sleep, 0.2, owner=owner)
        call.add_done_callback(lambda _, owner=owner: order.append(owner))
        calls.append(call)
    for call in calls:
        await asyncio.wrap_future(call)
    assert order.index("b") < 2


async def test_a_line_that_is_too_long_is_refused_at_once(box, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    short = Budget(wall_s=1.0)
    first = box.submit(hang, owner="a", budget=short)
    await until(first.running)
    waiting = [box.submit(hang, owner="a", budget=short) for _ in range(2)]
    with pytest.raises(Unavailable, match="try again"):
        box.submit(hang, owner="a", budget=short)
    for call in waiting:
        call.cancel()


async def test_a_call_that_waited_too_long_is_refused(box, monkeypatch):
    monkeypatch.setattr(module, "WAIT_S", -1.0)
    with pytest.raises(Unavailable, match="try again"):
        await box.run(double, 1, owner="a")


async def test_a_call_that_gets_no_turn_is_refused_in_time_however_long_the_others_take(
    box, monkeypatch, tmp_path
):
    paths = [tmp_path / name for name in "ab"]
    holding = [asyncio.ensure_future(box.run(hold, 600, path, owner=path.name)) for path in paths]
    await asyncio.gather(*(until(path.exists, within_s=60) for path in paths))
    monkeypatch.setattr(module, "WAIT_S", 0.2)
    with pytest.raises(Unavailable, match="too many expressions and specs"):
        await box.run(pid, owner="c")
    assert not any(one.done() for one in holding)
    for child in box.pids():
        os.kill(child, signal.SIGSEGV)
    await asyncio.gather(*holding, return_exceptions=True)


async def test_a_child_has_no_secret_a_low_priority_and_outlives_a_signal_to_the_group(box, monkeypatch):
    monkeypatch.setenv("WEIR_REDIS__URL", "redis://:secret@host")
    variables, niceness, on_term = await box.run(about, owner="a")
    assert not any(name.startswith("WEIR_") for name in variables)
    assert niceness > os.nice(0)
    assert on_term == signal.SIG_IGN


async def test_an_idle_child_ends_after_a_while():
    box = Sandbox(children=2, idle_s=0.05)
    child = await box.run(pid, owner="a")
    await until(lambda: not is_alive(child))
    assert await box.run(double, 1, owner="a") == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_children_end_with_their_parent(number):
    program = (
        "import time\n"
        "from weir.model.sandbox import SANDBOX\n"
        "SANDBOX.submit(int, '1', owner='a').result()\n"
        "SANDBOX.submit(time.sleep, 600, owner='a')\n"
        "SANDBOX.submit(int, '1', owner='b').result()\n"
        "while len(SANDBOX.pids()) < 2: time.sleep(0.01)\n"
        "print(*SANDBOX.pids(), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        children = [int(word) for word in parent.stdout.readline().split()]
        parent.send_signal(number)
    assert len(children) == 2
    wait_until(lambda: not any(map(is_alive, children)), timeout_s=60, what="the end of the children")


def test_a_process_that_was_forked_has_children_of_its_own():
    program = (
        "import os\n"
        "from weir.model.sandbox import SANDBOX\n"
        "first = SANDBOX.submit(os.getpid, owner='a').result()\n"
        "if os.fork() == 0:\n"
        "    second = SANDBOX.submit(os.getpid, owner='a').result()\n"
        "    os._exit(7 if second != first else 8)\n"
        "_, status = os.wait()\n"
        "print(os.waitstatus_to_exitcode(status), SANDBOX.submit(os.getpid, owner='a').result() == first)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["7", "True"], done.stderr


def test_a_process_that_uses_no_box_starts_nothing():
    program = "import weir.model.sandbox, threading; print(threading.active_count())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_a_process_ends_at_once_while_a_call_runs():
    program = (
        "import sys, time\n"
        "from weir.model.sandbox import SANDBOX\n"
        "SANDBOX.submit(int, '1', owner='a').result()\n"
        "running = SANDBOX.submit(time.sleep, 600, owner='a')\n"
        "while not running.running(): time.sleep(0.01)\n"
        "print(*SANDBOX.pids(), flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    wait_until(lambda: not any(is_alive(int(word)) for word in done.stdout.split()), timeout_s=60)
