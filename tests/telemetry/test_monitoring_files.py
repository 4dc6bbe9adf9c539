"""Alert rules and dashboard ask for what the service shows: names, labels and values are held against a live one."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import promql_parser
import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families
from promql_parser import AggregateExpr, BinaryExpr, Call, Expr, VectorSelector

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.telemetry.component_metrics import CALL_S, REQUEST_S, WAIT_S
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import BY_CODE
from stack.tools import debian
from support.app_client import AppClient
from support.service_api import parquet_bytes

ROOT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = ROOT / "deploy"
RULES: Final = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD: Final = DEPLOY / "grafana" / "lamella.json"
#: What Prometheus itself adds.
OF_PROMETHEUS: Final = frozenset({"up"})
TARGET_LABELS: Final = frozenset({"job", "instance"})
#: What stands for Grafana's variables where a query is read.
VARIABLES: Final = {"$__rate_interval": "5m", "$instance": ".*", "$job": "lamella"}


def rules() -> list[dict[str, Any]]:
    """Every rule of every group."""
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """The alerts by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def dashboard() -> dict[str, Any]:
    """The dashboard."""
    return dict(json.loads(DASHBOARD.read_text("utf-8")))


def panels() -> list[dict[str, Any]]:
    """Its panels, without the headings of rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def panel_queries() -> list[str]:
    """The queries of all panels."""
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def parsed(query: str) -> Expr:
    """A query, with something in the place of each variable."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    assert "$" not in query, query
    found: Expr = promql_parser.parse(query)
    return found


def nodes(expression: Expr) -> Iterator[Expr]:
    """An expression and all that it consists of."""
    found: list[Expr] = []
    promql_parser.walk(expression, lambda node: found.append(node))
    yield from found


def selectors(query: str) -> list[VectorSelector]:
    """Every series that a query asks for."""
    return [node for node in nodes(parsed(query)) if isinstance(node, VectorSelector)]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, frozenset[str]]:
    """The labels of each series that a live service shows after some work, by name; without labels where it has none
    yet."""
    folder = tmp_path_factory.mktemp("live")
    file = folder / "x.parquet"
    file.write_bytes(parquet_bytes({"a": [1, 2]}))
    settings = Settings(warehouse=str(folder / "w"), cache_dir=str(folder / "cache"))
    with AppClient(create_app(settings), base_url="http://localhost") as client:
        assert client.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        body: dict[str, Any] = {"name": "t", "schema": [{"name": "a", "type": "int64"}]}
        assert client.post("/v1/namespaces/db/tables", json=body).status_code == 201
        assert client.post("/v1/namespaces/db/tables/t/register", json={"paths": [str(file)]}).status_code == 200
        assert client.post("/v1/namespaces/db/tables/t/prune", json={"filter": "a > 1"}).status_code == 200
        assert client.get("/v1/namespaces/db/tables/nothing").status_code == 404
        assert client.post("/v1/jobs", json={"kind": "vacuum", "table": "db.t"}).status_code == 201
        text = client.get("/metrics").text
    found: dict[str, frozenset[str]] = {}
    for family in text_string_to_metric_families(text):
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(family.type, ("",))
        found |= {family.name + suffix: frozenset() for suffix in suffixes}
        for sample in family.samples:
            found[sample.name] = frozenset(sample.labels)
    return found


def declared() -> dict[str, frozenset[str]]:
    """The labels that the code gives each metric, by the names of its series."""
    found: dict[str, frozenset[str]] = {}
    for collector in Metrics().registry._collector_to_names:
        if isinstance(collector, MetricWrapperBase):
            names = frozenset(collector._labelnames)
            for suffix in ("", "_total", "_count", "_sum"):
                found[collector._name + suffix] = names
            found[collector._name + "_bucket"] = names | {"le"}
    return found


def all_queries() -> list[str]:
    """Those of the rules and of the dashboard."""
    return [*(rule["expr"] for rule in rules()), *panel_queries()]


def test_every_name_that_is_queried_is_shown_by_a_live_service(shown: dict[str, frozenset[str]]) -> None:
    """By rules and dashboard; or it is recorded by a rule, or Prometheus' own."""
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    queried = {selector.name for query in all_queries() for selector in selectors(query)}
    assert len(queried) > 50
    assert queried - set(shown) - recorded - OF_PROMETHEUS == set()
    assert {
        name for name in queried if name not in recorded and name is not None and not name.startswith("lamella")
    } <= {
        "up",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
    }


def test_every_label_that_is_queried_is_one_of_its_metric(shown: dict[str, frozenset[str]]) -> None:
    """In selectors and in groupings; labels of other metrics would silently give nothing."""
    known = declared()
    for query in all_queries():
        labels_here: set[str] = set(TARGET_LABELS)
        for selector in selectors(query):
            own = (
                known.get(selector.name or "", frozenset())
                | shown.get(selector.name or "", frozenset())
                | TARGET_LABELS
            )
            used = {matcher.name for matcher in selector.matchers.matchers}
            assert used <= own, (query, used - own)
            labels_here |= own
        for node in nodes(parsed(query)):
            if isinstance(node, AggregateExpr) and node.modifier is not None:
                assert set(node.modifier.labels) <= labels_here, query


def test_values_that_are_queried_exist(tmp_path: Path) -> None:
    """Routes, error codes and bounds of buckets that stand in a query are those of the code."""
    routes = set(create_app(Settings(warehouse=str(tmp_path))).openapi()["paths"])
    bounds = {str(bound) for bound in (*CALL_S, *REQUEST_S, *WAIT_S)}
    checked = 0
    for query in all_queries():
        for selector in selectors(query):
            for matcher in selector.matchers.matchers:
                is_pattern = str(matcher.op) in ("MatchOp.Re", "MatchOp.NotRe")
                if matcher.name == "route":
                    found = {route for route in routes if re.fullmatch(matcher.value, route)} if is_pattern else routes
                    assert found if is_pattern else matcher.value in routes, query
                    checked += 1
                if matcher.name == "code":
                    assert set(matcher.value.split("|")) <= set(BY_CODE), query
                    checked += 1
                if matcher.name == "le":
                    assert matcher.value in bounds, query
                    if selector.name == "lamella_request_seconds_bucket":
                        assert float(matcher.value) in REQUEST_S
                    checked += 1
    assert checked > 20


def test_counters_are_queried_for_their_growth() -> None:
    """A counter, or a bucket, means nothing by itself: each stands in a rate or an increase, over minutes at least."""
    for query in all_queries():
        expression = parsed(query)
        grown: set[str] = set()
        for node in nodes(expression):
            if isinstance(node, Call) and node.func.name in ("rate", "increase"):
                inside = node.args[0]
                assert isinstance(inside, promql_parser.MatrixSelector)
                assert inside.range.total_seconds() >= 120, query
                grown.add(inside.vector_selector.name or "")
        for selector in selectors(query):
            name = selector.name or ""
            if name.endswith(("_total", "_bucket", "_count", "_sum")):
                assert name in grown, query


def test_alerts_say_how_bad_it_is_and_what_it_means() -> None:
    """Each has a severity, a line for a pager and a description; it compares with something; the page explains it."""
    page = (ROOT / "docs" / "telemetry.md").read_text("utf-8")
    assert len(alerts()) >= 25
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in ("critical", "warning"), name
        assert set(rule["annotations"]) == {"summary", "description"}, name
        assert all(rule["annotations"].values()), name
        assert f"`{name}`" in page, name
        is_absent = "absent(" in rule["expr"]
        operators = {str(node.op) for node in nodes(parsed(rule["expr"])) if isinstance(node, BinaryExpr)}
        assert is_absent or operators & {">", "<", "==", "unless"}, name
    explained = set(re.findall(r"`(Lamella[A-Z]\w+)`", page))
    assert explained == set(alerts())


def test_the_rules_do_what_their_cases_say() -> None:
    """Prometheus' own tool runs them: each alert fires in its case, and none does while all is well."""
    cases = yaml.safe_load((RULES.parent / "alerts.test.yml").read_text("utf-8"))
    fires = {case["alertname"] for test in cases["tests"] for case in test["alert_rule_test"] if case.get("exp_alerts")}
    quiet = {
        case["alertname"] for test in cases["tests"] for case in test["alert_rule_test"] if not case.get("exp_alerts")
    }
    assert fires == quiet == set(alerts())
    promtool = debian("promtool", "prometheus")
    for words in (["test", "rules", "alerts.test.yml"], ["check", "config", "prometheus.yml"]):
        done = subprocess.run([promtool, *words], cwd=RULES.parent, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_scrapes_the_replicas_of_the_compose_file() -> None:
    """Each of them by its name and port, under the job's name that rules and dashboard go by."""
    config = yaml.safe_load((RULES.parent / "prometheus.yml").read_text("utf-8"))
    (scraped,) = config["scrape_configs"]
    assert scraped["job_name"] == "lamella"
    targets = [target for each in scraped["static_configs"] for target in each["targets"]]
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    replicas = [name for name, each in services.items() if each.get("command") == ["serve"]]
    ports = {services[name]["environment"]["LAMELLA_PORT"] for name in replicas}
    assert sorted(targets) == sorted(f"{name}:{port}" for name in replicas for port in ports)
    for name in config["rule_files"]:
        assert (RULES.parent / name).is_file()


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    """A title, a description, a unit, the chosen data source, and a legend where there are several lines."""
    titles = [panel["title"] for panel in panels()]
    assert len(titles) > 40
    assert len(set(titles)) == len(titles)
    for panel in panels():
        assert panel["title"], panel
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for target in (panel, *panel["targets"]):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        if len(panel["targets"]) > 1:
            assert all(target["legendFormat"] for target in panel["targets"]), panel["title"]
        shown_labels = {
            name for target in panel["targets"] for name in re.findall(r"{{(\w+)}}", target["legendFormat"])
        }
        for target in panel["targets"]:
            labels = labels_left(target["expr"])
            assert labels is None or set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, panel["title"]
        assert len(shown_labels) <= 3


def labels_left(query: str) -> set[str] | None:
    """The labels that the outermost grouping leaves; None: there is none, and all are left."""
    for node in nodes(parsed(query)):
        if isinstance(node, AggregateExpr) and str(node.op) != "topk":
            return set() if node.modifier is None else set(node.modifier.labels)
    return None


def test_panels_do_not_lie_over_one_another() -> None:
    """Each has a number and a place of its own within the 24 columns."""
    everything = dashboard()["panels"]
    numbers = [panel["id"] for panel in everything]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & taken, panel["title"]
        taken |= own


def test_grafana_is_given_the_dashboard_and_its_data_source() -> None:
    """The provisioning names the folder that the compose file mounts, and a Prometheus that it runs."""
    grafana = DEPLOY / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((grafana / "dashboards" / "lamella.yaml").read_text("utf-8"))["providers"]
    (source,) = yaml.safe_load((grafana / "datasources" / "prometheus.yaml").read_text("utf-8"))["datasources"]
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    mounted = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    folder = mounted["./deploy/grafana"]
    assert provider["options"]["path"] == folder
    assert services["grafana"]["environment"]["GF_PATHS_PROVISIONING"] == f"{folder}/provisioning"
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in services
    interval = yaml.safe_load((RULES.parent / "prometheus.yml").read_text("utf-8"))["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval
    assert dashboard()["uid"] == "lamella"
