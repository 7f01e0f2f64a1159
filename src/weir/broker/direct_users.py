"""The users of Redis for clients in direct mode: one per token, made and removed with it.

A user may run the scripts of producers and consumers on the keys of one shard, and nothing else: no text of
its own, because a script that does not end stops Redis for everybody. So Weir loads these scripts for it.
The user is named after the id of its token, and its password is the secret of the token. Weir stores only the
hash of the secret, which Redis accepts too.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from redis.asyncio.cluster import RedisCluster
from redis.exceptions import NoPermissionError, ResponseError

from weir.broker import keys
from weir.broker.failures import translated
from weir.broker.runner import Client
from weir.broker.scripts import script
from weir.errors import BrokerUnavailable
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of

VERBS = (
    "ack",
    "announce",
    "dead_letter",
    "dequeue",
    "enqueue",
    "enqueue_one",
    "extend",
    "forget_calls",
    "give_back",
    "nack",
    "now",
)
"""The scripts that a producer or consumer calls."""
_COMMANDS = ("auth", "get", "ping", "select", "subscribe", "unsubscribe")
"""The commands that a client sends outside of scripts."""
_CLUSTER_COMMANDS = ("asking", "cluster|slots", "command", "readonly")
_CALLED = re.compile(r"redis\.p?call\('([A-Z]+)'")


def user_name(token_id: str) -> str:
    """The user that belongs to a token."""
    return f"weir-direct-{token_id}"


@cache
def script_commands() -> frozenset[str]:
    """Every command that the scripts of producers and consumers call."""
    return frozenset(name.lower() for verb in VERBS for name in _CALLED.findall(script(verb).source))


class DirectUsers:
    """Makes and removes users on every node of one Redis."""

    def __init__(self, client: Client, *, shards: int) -> None:
        self._client = client
        self._shards = shards
        self._loaded = False

    @property
    def shards(self) -> int:
        return self._shards

    async def epoch(self) -> str | None:
        """The epoch of the data in this Redis: a client compares it with the epoch at its own URL."""
        with translated():
            stored = await self._client.execute_command("GET", keys.EPOCH)
        return None if stored is None else stored.decode()

    async def load_scripts(self) -> None:
        """Load the scripts that users may run, on every node that lost them or never had them."""
        scripts = [script(verb) for verb in VERBS]
        with translated():
            try:
                found = await self._run_everywhere("SCRIPT", "EXISTS", *(one.sha for one in scripts))
                for one, places in zip(scripts, zip(*self._by_node(found), strict=True), strict=True):
                    # The server may drop a script that came with EVAL, but none that was loaded.
                    if not all(places) or not self._loaded:
                        await self._run_everywhere("SCRIPT", "LOAD", one.source)
            except NoPermissionError as error:
                raise _refused(error) from error
        self._loaded = True

    async def allow(self, token_id: str, *, digest: bytes, environment: EnvironmentRef) -> None:
        """Make the user of a token, or replace it."""
        await self.load_scripts()
        rules = self._rules(digest, shard=shard_of(environment, shards=self._shards))
        with translated():
            try:
                await self._run_everywhere(
                    "ACL", "SETUSER", user_name(token_id), *rules, "%R~" + keys.EPOCH.decode()
                )
            except ResponseError as error:
                if "syntax" not in str(error).lower():
                    raise _refused(error) from error
                # Before Redis 7 a rule cannot allow only reading. The client then does without the epoch.
                await self._run_everywhere("ACL", "SETUSER", user_name(token_id), *rules)

    async def exists(self, token_id: str) -> bool:
        with translated():
            found = await self._run_everywhere("ACL", "GETUSER", user_name(token_id))
        return all(node is not None for node in self._by_node(found))

    async def remove(self, token_id: str) -> None:
        """End the user of a token, and its connections."""
        with translated():
            await self._run_everywhere("ACL", "DELUSER", user_name(token_id))

    def _rules(self, digest: bytes, *, shard: int) -> list[str]:
        commands = script_commands().union(_COMMANDS, _CLUSTER_COMMANDS if self._is_cluster else ())
        wake = keys.shard_key(shard, "wake").decode()
        allowed = [f"+{command}" for command in sorted(commands)]
        allowed += [f"+evalsha|{script(verb).sha}" for verb in VERBS]
        # Redis 6.2 lets a new user hear every channel.
        channels = ["resetchannels", f"&{wake}"]
        return ["reset", "on", f"#{digest.hex()}", f"~{keys.prefix(shard).decode()}*", *channels, *allowed]

    @property
    def _is_cluster(self) -> bool:
        return isinstance(self._client, RedisCluster)

    async def _run_everywhere(self, *words: str) -> object:
        """Run a command of two words on every node."""
        if self._is_cluster:
            # The driver's client of a cluster knows these commands by both words.
            command, nodes = " ".join(words[:2]), {"target_nodes": RedisCluster.ALL_NODES}
            return await self._client.execute_command(command, *words[2:], **nodes)
        return await self._client.execute_command(*words)

    def _by_node(self, found: object) -> list[Any]:
        """The answer of each node."""
        return list(found.values()) if isinstance(found, dict) and self._is_cluster else [found]


def _refused(error: ResponseError) -> BrokerUnavailable:
    return BrokerUnavailable(
        f"Redis does not let Weir make users: {error}; allow its own user the commands ACL and SCRIPT, "
        "or create the token without direct mode",
        refused=True,
    )
