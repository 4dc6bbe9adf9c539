"""The reference pages say what is there, and nothing that is not."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from lamella.service.config.settings import Settings
from lamella.service.http.problem import status_of
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import BY_CODE

DOCS = Path(__file__).resolve().parents[2] / "docs"


def rows(page: str) -> list[list[str]]:
    """The cells of every table row of a page that starts with code, without their code marks."""
    lines = (DOCS / page).read_text("utf-8").splitlines()
    cells = [line.strip("|").split("|") for line in lines if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in cells]


def unquoted(text: str) -> str:
    """A cell's text without code marks."""
    return text.replace("`", "")


def test_every_setting_is_documented_with_its_default_and_meaning() -> None:
    """docs/settings.md lists the settings, in their order, as the code describes them."""
    documented = {unquoted(name): (default, meaning) for name, default, meaning in rows("settings.md")}
    assert list(documented) == list(Settings.model_fields)
    for name, field in Settings.model_fields.items():
        default, meaning = documented[name]
        assert meaning == field.description
        if field.is_required():
            assert default == "required"
        elif field.default is not None:
            value = field.default
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            assert unquoted(default) == text


def test_every_error_code_is_documented_with_its_status() -> None:
    """docs/errors.md lists each code once, with the status that it is answered with."""
    documented = [(unquoted(code), int(status)) for code, status, _ in rows("errors.md")]
    assert len(documented) == len(set(documented))
    assert dict(documented) == {code: status_of(kind) for code, kind in BY_CODE.items()}


def described(metric: Metric) -> tuple[str, str]:
    """A metric's name as it is scraped, and its kind."""
    return metric.name + ("_total" if metric.type == "counter" else ""), metric.type


def test_every_metric_is_documented_with_its_kind_and_labels() -> None:
    """docs/metrics.md lists our metrics as they are scraped."""
    documented = {unquoted(name): (kind, labels) for name, kind, labels, _ in rows("metrics.md")}
    registered = {
        name: kind
        for metric in Metrics().registry.collect()
        for name, kind in [described(metric)]
        if name.startswith("lamella_")
    }
    assert {name: kind for name, (kind, _) in documented.items()} == registered
    labelled = {
        collector._name: collector._labelnames
        for collector in Metrics().registry._collector_to_names
        if isinstance(collector, MetricWrapperBase)
    }
    assert len(labelled) == len(documented)
    for name, own in labelled.items():
        _, labels = documented.get(f"{name}_total") or documented[name]
        assert tuple(re.findall(r"`(\w+)`", labels)) == own
