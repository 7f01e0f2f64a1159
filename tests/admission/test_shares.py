"""Under pressure everyone keeps a fair share, and nobody has more than the limit allows."""

from __future__ import annotations

from contextlib import ExitStack

from weir.admission.admission import Admission
from weir.admission.capacity import WINDOW, AdaptiveLimit, FairShares
from weir.admission.decide import Decision
from weir.admission.kinds import OperationType
from weir.model.holders import STRANGERS, Holder

PUSH = OperationType.PUSH


def holder(name: object) -> Holder:
    return f"organization {name}", "project", "environment"


LOUD, QUIET = holder("loud"), holder("quiet")


def flooded(stack: ExitStack, *, limit: int = 30) -> Admission:
    """A process that one holder has filled, without room in the operation queue."""
    admission = Admission(limit=AdaptiveLimit(initial=limit, minimum=4))
    admission.budget.spend(1_000, LOUD)
    while admission.decide(PUSH, LOUD) is Decision.EXECUTE:
        stack.enter_context(admission.executing(LOUD))
    return admission


def begin_all(stack: ExitStack, admission: Admission, one: Holder, *, most: int = 1_000) -> int:
    """Execute as many as are admitted for a holder."""
    for number in range(most):
        if admission.decide(PUSH, one) is not Decision.EXECUTE:
            return number
        stack.enter_context(admission.executing(one))
    return most


def test_one_holder_alone_has_the_whole_limit_and_no_more() -> None:
    with ExitStack() as stack:
        admission = flooded(stack)
        assert admission.in_flight == 30
        assert admission.decide(PUSH, LOUD) is Decision.REJECT
        assert not admission.let_in(PUSH, LOUD)
    assert (admission.in_flight, admission.beyond, admission.shares.total) == (0, 0, 0)


def test_a_quiet_holder_is_executed_up_to_its_share_while_another_floods() -> None:
    with ExitStack() as stack:
        admission = flooded(stack)
        assert begin_all(stack, admission, QUIET) == 15
        assert admission.decide(PUSH, LOUD) is Decision.REJECT


def test_an_exception_for_the_quiet_does_not_end_the_shedding_of_the_loud() -> None:
    with ExitStack() as stack:
        admission = flooded(stack)
        for _ in range(10):
            assert admission.decide(PUSH, QUIET) is Decision.EXECUTE
            assert admission.decide(PUSH, LOUD) is Decision.REJECT


def test_beyond_the_limit_there_are_never_more_than_the_limit_again() -> None:
    with ExitStack() as stack:
        admission = flooded(stack, limit=10)
        entered = sum(begin_all(stack, admission, holder(number), most=1) for number in range(100))
        assert entered == 10
        assert admission.in_flight == 20


def test_a_limit_that_shrinks_does_not_shut_out_the_quiet() -> None:
    with ExitStack() as stack:
        admission = flooded(stack, limit=60)
        for _ in range(10 * WINDOW):
            admission.limit.observe(latency_ms=1_000, in_flight=60)
        assert admission.limit.limit == 4
        assert admission.decide(PUSH, QUIET) is Decision.EXECUTE


def test_a_late_event_loop_sheds_the_loud_and_not_the_quiet() -> None:
    with ExitStack() as stack:
        admission = Admission(limit=AdaptiveLimit(initial=64))
        for _ in range(5):
            stack.enter_context(admission.executing(LOUD))
        admission.lag_ms = 1_000
        assert admission.decide(PUSH, LOUD) is Decision.REJECT
        assert admission.decide(PUSH, QUIET) is Decision.EXECUTE
        stack.enter_context(admission.executing(QUIET))
        assert admission.decide(PUSH, LOUD) is Decision.REJECT


def test_those_on_their_way_in_count_for_their_holders() -> None:
    with ExitStack() as stack:
        admission = flooded(stack)
        assert sum(admission.let_in(PUSH, QUIET) for _ in range(100)) == 15
        admission.count_arrived(QUIET)
        assert admission.let_in(PUSH, QUIET)
        assert not admission.let_in(PUSH, QUIET)


def test_strangers_are_one_holder() -> None:
    with ExitStack() as stack:
        admission = flooded(stack)
        assert begin_all(stack, admission, STRANGERS) == 15


def test_who_has_nothing_in_progress_takes_no_memory() -> None:
    shares = FairShares()
    for number in range(1_000):
        shares.take(holder(number))
        shares.give_back(holder(number))
    assert shares._held == {}
    assert shares.total == 0


def test_a_budget_that_one_spent_is_not_held_against_another() -> None:
    with ExitStack() as stack:
        admission = flooded(stack)
        assert not admission.may_queue(PUSH, 1, LOUD, for_load=True)
        queued = 0
        while admission.may_queue(PUSH, 1, QUIET, for_load=True):
            queued += 1
        assert queued == 50
        admission.count_rest(1.0)
        assert admission.may_queue(PUSH, 1, QUIET, for_load=True)
        assert not admission.may_queue(PUSH, 1, LOUD, for_load=True)


def test_one_holder_alone_has_the_budget_and_no_more() -> None:
    admission = Admission()
    queued = 0
    while admission.may_queue(PUSH, 1, LOUD, for_load=True):
        queued += 1
    assert queued == 100
    admission.depth = 1
    for _ in range(100):
        admission.count_rest(1.0)
        assert not admission.may_queue(PUSH, 1, LOUD, for_load=True)


def test_one_holder_on_its_way_into_the_queue_does_not_keep_others_out() -> None:
    admission = Admission()
    with ExitStack() as stack:
        while admission.may_queue(PUSH, 1, LOUD, for_load=False):
            stack.enter_context(admission.entering(1, LOUD))
        assert admission.queueing == admission.queueing_limit.limit
        others = 0
        while admission.may_queue(PUSH, 1, QUIET, for_load=False):
            stack.enter_context(admission.entering(1, QUIET))
            others += 1
        assert others == admission.queueing_limit.limit // 2
    assert admission.queueing_shares.total == 0
