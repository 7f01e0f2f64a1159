"""How the files of the archive are divided between the tasks of a rebuild."""

from __future__ import annotations

from weir.pipeline.rebuild_tasks import (
    EVENTS_PER_TASK,
    FILES_PER_TASK,
    RebuildTask,
    SizedPiece,
    rebuild_tasks,
)


def hour(name: str, files: int, *, events: int = 10) -> list[SizedPiece]:
    return [
        ((f"{name}-{number}", [(0, f"{number}-0", f"{number + 1}-0")]), events) for number in range(files)
    ]


def shape(tasks: list[RebuildTask]) -> list[tuple[int, bool]]:
    return [(len(task.pieces), task.whole) for task in tasks]


def divided(*hours: list[SizedPiece], mergeable: bool = True) -> list[RebuildTask]:
    tasks = list(rebuild_tasks(hours, mergeable=mergeable))
    given = [piece for hour in hours for piece, _ in hour]
    assert [piece for task in tasks for piece in task.pieces] == given
    return tasks


def test_small_hours_share_a_task_and_their_rows_are_final() -> None:
    assert shape(divided(hour("a", 20), hour("b", 30), hour("c", 1))) == [(50, True), (1, True)]


def test_an_hour_with_too_many_files_is_cut_and_stands_alone() -> None:
    tasks = divided(hour("a", 3), hour("b", FILES_PER_TASK + 1), hour("c", 2))
    assert shape(tasks) == [(3, True), (FILES_PER_TASK, False), (1, False), (2, True)]


def test_the_events_of_a_task_are_bounded_too() -> None:
    large = EVENTS_PER_TASK // 2
    tasks = divided(hour("a", 3, events=large), hour("b", 2, events=large), hour("c", 1, events=1))
    assert shape(tasks) == [(2, False), (1, False), (2, True), (1, True)]


def test_a_file_that_is_too_large_has_a_task_of_its_own() -> None:
    assert shape(divided(hour("a", 1, events=3 * EVENTS_PER_TASK), hour("b", 1))) == [(1, True), (1, True)]


def test_rows_that_cannot_be_merged_are_final_in_any_task() -> None:
    tasks = divided(hour("a", FILES_PER_TASK + 1), mergeable=False)
    assert shape(tasks) == [(FILES_PER_TASK, True), (1, True)]


def test_no_hours_are_no_tasks() -> None:
    assert divided() == []
