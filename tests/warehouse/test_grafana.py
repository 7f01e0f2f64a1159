"""The Grafana dashboard asks what the warehouse can answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import yaml

from support.warehouse import WarehouseRig
from support.warehouse_template import WarehouseTemplate
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
    assert len(queries) >= 14
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


GRANT = re.compile(r"^GRANT (SELECT(?:\([\w, ]+\))? ON weir\.\S+) TO grafana;", re.MULTILINE)
POLICY = re.compile(
    r"^CREATE ROW POLICY IF NOT EXISTS \w+ ON ([^;]+?)\s+USING ([^;]+?) TO grafana;", re.MULTILINE
)
# The engine has no command for users. So its only user gets from a file what `reader.sql` gives to `grafana`.
TRIES = """
import json, sys
import chdb
folder, tries = sys.argv[1], json.load(sys.stdin)
connection = chdb.connect(folder)
answers = {}
for name, sql in tries.items():
    try:
        answers[name] = connection.query(sql, "TSV").bytes().decode()
    except Exception as error:
        answers[name] = "denied" if "ACCESS_DENIED" in str(error) else str(error)
json.dump(answers, sys.stdout)
"""


def tried(folder: str, tries: dict[str, str]) -> dict[str, str]:
    """The answers of an engine in a process of its own, because a process has one engine."""
    done = subprocess.run(
        [sys.executable, "-c", TRIES, folder],
        input=json.dumps(tries),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return dict(json.loads(done.stdout))


def users_of_the_engine(reader: str) -> str:
    """The file of users that lets the engine's only user read what `reader.sql` lets Grafana read."""
    grants = "".join(f"<query>GRANT {grant}</query>" for grant in GRANT.findall(reader))
    filters = "".join(
        f"<{table.strip().removeprefix('weir.')}><filter>{condition}</filter></{table.strip().removeprefix('weir.')}>"
        for tables, condition in POLICY.findall(reader)
        for table in tables.split(",")
    )
    return (
        "<clickhouse><profiles><default/></profiles><quotas><default/></quotas><users><default><password/>"
        "<networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota>"
        f"<grants>{grants}</grants><databases><weir>{filters}</weir></databases>"
        "</default></users></clickhouse>"
    )


async def test_the_reader_sees_its_own_organization_and_nothing_of_others(
    warehouses: WarehouseTemplate, quick_path: Path
) -> None:
    reader = (FOLDER / "reader.sql").read_text()
    plain = {sql for sql in warehouses.definitions if "MATERIALIZED VIEW" not in sql}
    tables = {re.match(r"CREATE TABLE \w+\.(\w+)", sql)[1]: sql for sql in plain}  # type: ignore[index]
    owned = {name for name, sql in tables.items() if "`organization`" in sql and "ENGINE = Null" not in sql}
    assert {"message_log", "message_lives", "queue_ledger", "queue_metrics_1h"} <= owned
    setup = {"database": "CREATE DATABASE weir"}
    for name, sql in tables.items():
        # Without their lifetimes: a row without a time is too old for every table.
        setup[name] = re.sub(
            r"\bTTL .+? SETTINGS", "SETTINGS", sql.replace("weir_template.", "weir."), flags=re.S
        )
        for organization in ("default", "other") if name in owned else ():
            setup[f"{name} of {organization}"] = (
                f"INSERT INTO weir.{name} (organization) VALUES ('{organization}')"
            )
    folder, users = quick_path / "engine", quick_path / "users.xml"
    assert {name: said for name, said in tried(str(folder), setup).items() if said} == {}
    users.write_text(users_of_the_engine(reader))
    config = quick_path / "config.xml"
    config.write_text(
        f"<clickhouse><user_directories><users_xml><path>{users}</path></users_xml></user_directories></clickhouse>"
    )

    tries = {name: f"SELECT DISTINCT organization FROM weir.{name}" for name in owned}
    tries |= {name: f"SELECT * FROM weir.{name}" for name in tables.keys() - owned}
    found = tried(f"{folder}?config-file={config}", tries)
    read = {name for name, said in found.items() if said != "denied"}
    assert {found[name].strip() for name in read} == {"default"}
    assert read == {name for name in owned if name.startswith(("queue_metrics_", "environment_metrics_"))}

    panels = [target["rawSql"] for panel in dashboard()["panels"] for target in panel["targets"]]
    tables_read = {name for sql in panels for name in re.findall(r"FROM (\w+)", sql)} - read
    assert tables_read == {"metric_gaps"}
    columns = {"gaps": "SELECT metric, shard, from_at, to_at, reason FROM weir.metric_gaps"}
    columns["entries"] = "SELECT entries FROM weir.metric_gaps"
    answers = tried(f"{folder}?config-file={config}", columns)
    assert (answers["gaps"] != "denied", answers["entries"]) == (True, "denied")
