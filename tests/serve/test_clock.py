"""A process on a host whose clock is an hour off keeps the stores' time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ingress import signing
from weir.control.sealing import new_key
from weir.control.spec_plans import SpecText
from weir.errors import Unauthenticated
from weir.model.clock import SystemClock
from weir.model.names import EnvironmentRef
from weir.serve.build import open_process
from weir.settings import EmbeddedSettings, SecretSettings, Settings, StoreUrls

SECRET = "whsec_" + "c2VjcmV0" * 6
SPEC = 'app A { queue In {} webhook Paid { queue: In, verify stripe { secret: "PAID_SECRET" } } }'


@pytest.mark.parametrize("offset_ms", [3_600_000, -3_600_000])
async def test_windows_and_schedules_do_not_follow_the_hosts_clock(
    redis_url: str,
    database_url: str,
    warehouse_url: str,
    environment: EnvironmentRef,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    offset_ms: int,
) -> None:
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: int(time.time() * 1_000) + offset_ms)
    keys = tmp_path / "keys"
    keys.write_text(new_key())
    settings = Settings(
        redis_url=redis_url,
        embedded=EmbeddedSettings(data_dir=tmp_path),
        secrets=SecretSettings(key_file=keys),
    )
    urls = StoreUrls(redis=redis_url, postgres=database_url, clickhouse=warehouse_url)
    async with open_process(settings, urls, accept_loss=True) as process:
        services = process.services
        assert abs(services.clock.now_ms() - time.time() * 1_000) < 10_000
        assert services.dead_letters is not None
        assert services.dead_letters.clock is services.clock
        assert services.specs is not None
        assert services.receiver is not None
        assert services.secrets is not None
        await services.secrets.put(environment, "PAID_SECRET", SECRET, actor="test")
        await services.secrets.load()
        await services.specs.apply(environment, SpecText(source=SPEC), actor="test")
        await services.receiver._specs.refresh()
        hook = services.receiver.find_in(environment, "Paid")
        for age_s, refused in ((0, False), (3_600, True), (-3_600, True)):
            body = b'{"id": "evt_%d"}' % age_s
            signed = signing.stripe(SECRET, body, int(time.time()) - age_s)
            headers = {"content-type": "application/json", **signed}
            receiving = services.receiver.receive(hook, headers=headers, body=body, source_ip="::1")
            if refused:
                with pytest.raises(Unauthenticated):
                    await receiving
            else:
                assert (await receiving).status == 202
