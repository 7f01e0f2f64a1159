"""Results and progress keep their numbers on the way: integers of any size, and `1.10` as it was written."""

from __future__ import annotations

import pytest

from weir import Weir
from weir.client.encoding import encode

from .place import QUEUE, Place

LARGE = 2**70 + 1


@pytest.mark.parametrize("many", [False, True])
def test_large_integers_in_results_and_progress_are_exact(place: Place, many: bool) -> None:
    with Weir(place.api.url, token=place.token) as weir:
        weir.push(QUEUE, 1)
        (message,) = weir.pop(QUEUE)
        weir.progress(message, {"done": LARGE})
        assert weir.outcome(message.id).progress == {"done": LARGE}
        if many:
            item = {**message.reference(), "result": [LARGE, {"deep": [-LARGE]}]}
            send = weir._client._transport.send
            weir._run(send("POST", "/api/v1/ack/batch", content=lambda: encode({"acknowledgments": [item]})))
        else:
            weir.ack(message, result=[LARGE, {"deep": [-LARGE]}])
        assert weir.outcome(message.id).result == [LARGE, {"deep": [-LARGE]}]
