"""The Grafana dashboard asks what the warehouse can answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from support.warehouse import WarehouseRig
from weir.warehouse.percentiles import waits_sql
from weir.warehouse.reading.reader import Question

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"


def dashboard() -> dict:
    return json.loads((FOLDER / "dashboards" / "weir-queues.json").read_text())


def as_run(sql: str) -> str:
    """The query with Grafana's macros and variables filled in."""
    sql = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 >= toDateTime(1)", sql)
    sql = re.sub(r"\$__timeInterval\((\w+)\)", r"toStartOfMinute(\1)", sql)
    sql = sql.replace("${queue:singlequote}", "'q'").replace("$__interval_s", "600")
    return re.sub(r"\$\{\w+\}", "x", sql)


async def test_every_panel_and_variable_can_be_asked(rig: WarehouseRig) -> None:
    document = dashboard()
    queries = [target["rawSql"] for panel in document["panels"] for target in panel["targets"]]
    queries += [one["query"] for one in document["templating"]["list"] if one["type"] == "query"]
    assert len(queries) >= 15
    for sql in queries:
        assert await rig.warehouse.reader.ask(Question(sql=f"EXPLAIN {as_run(sql)}", parameters={})), sql


def test_a_rate_divides_by_the_span_of_its_points() -> None:
    spelled = [target["rawSql"] for panel in dashboard()["panels"] for target in panel["targets"]]
    assert [sql for sql in spelled if "/ 60" in sql] == []
    assert [sql for sql in spelled if "/ greatest(60, $__interval_s)" in sql]


def test_percentiles_are_read_as_weir_reads_them() -> None:
    spelled = [target["rawSql"] for panel in dashboard()["panels"] for target in panel["targets"]]
    (waits,) = [sql for sql in spelled if "wait_sketch" in sql or "wait_digest" in sql]
    assert " ".join(waits_sql("t", digests=True).split()) in waits


def test_the_dashboard_can_be_provisioned_anywhere() -> None:
    document = dashboard()
    assert (document["id"], document["uid"]) == (None, "weir-queues")
    assert {panel["datasource"]["uid"] for panel in document["panels"]} == {"${datasource}"}
    source = yaml.safe_load((FOLDER / "provisioning" / "datasources" / "weir.yaml").read_text())
    assert source["datasources"][0]["type"] == "grafana-clickhouse-datasource"
    assert "${" in source["datasources"][0]["secureJsonData"]["password"]
