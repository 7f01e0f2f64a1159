"""The cluster of the tests comes up also on a machine that stands still for seconds."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from redis import Redis

from support.redis_cluster import NODE_TIMEOUT_MS, NODES, RunningCluster
from weir.embedded.ports import HOST


class FrozenBeforeMeeting(RunningCluster):
    """Two nodes stand still between the order to meet the first and the attempt, until it is too late."""

    def _wait_until_whole(self) -> None:
        others = self._processes[1:]
        for process, port in zip(others, self.ports[1:], strict=True):
            with Redis(host=HOST, port=port) as client:
                client.execute_command("CLUSTER", "MEET", HOST, self.ports[0])
                os.kill(process.pid, signal.SIGSTOP)
        # Nothing can be seen of a frozen process but that its time has passed.
        time.sleep(1.1 * NODE_TIMEOUT_MS / 1_000)
        for process in others:
            os.kill(process.pid, signal.SIGCONT)
        super()._wait_until_whole()


def test_nodes_that_gave_up_their_meeting_meet_again(quick_path: Path) -> None:
    cluster = FrozenBeforeMeeting(quick_path)
    try:
        for port in cluster.ports:
            with Redis(host=HOST, port=port) as client:
                assert client.cluster("info")["cluster_known_nodes"] == str(NODES)
    finally:
        cluster.stop()
