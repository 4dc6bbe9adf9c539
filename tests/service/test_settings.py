"""Settings: defaults that depend on each other, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from lamella.service.config.settings import Settings
from lamella.service.process.server import serve
from lamella.service.process.worker_app import WorkerApp
from lamella.snapshot.errors import InvalidRequest


@pytest.mark.parametrize(
    ("warehouse", "url", "catalog"),
    [
        ("/a b/c/", "file:///a b/c", "/a b/c/_catalog.db"),
        ("file:///a%20b", "file:///a%20b", "/a%20b/_catalog.db"),
    ],
)
def test_a_local_warehouse_holds_the_catalog_by_default(warehouse: str, url: str, catalog: str) -> None:
    """Locations are not unescaped, and the catalog lies inside the folder."""
    settings = Settings(warehouse=warehouse)
    assert (settings.warehouse_url, settings.catalog_url) == (url, catalog)


def test_a_relative_warehouse_is_below_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written to manifests is absolute."""
    monkeypatch.chdir(tmp_path)
    assert Settings(warehouse="lake").warehouse_url == f"file://{tmp_path}/lake"


def test_a_warehouse_elsewhere_needs_a_catalog() -> None:
    """There is no default that would be right."""
    with pytest.raises(InvalidRequest, match="LAMELLA_CATALOG"):
        _ = Settings(warehouse="s3://bucket/x").catalog_url
    assert Settings(warehouse="s3://bucket/x", catalog="/c.db").catalog_url == "/c.db"


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables are `LAMELLA_` and the name; an argument wins."""
    monkeypatch.setenv("LAMELLA_WAREHOUSE", "/env")
    monkeypatch.setenv("LAMELLA_STORE_OPTIONS", '{"s3": {"endpoint_url": "http://x"}}')
    settings = Settings(port=1)  # type: ignore[call-arg]  # the warehouse comes from the environment
    assert (settings.warehouse, settings.port) == ("/env", 1)
    assert settings.store_options == {"s3": {"endpoint_url": "http://x"}}


def test_settings_survive_the_way_to_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker process has the same settings as the process that started it, whatever its environment says."""
    settings = Settings(
        warehouse="/w", store_options={"s3": {"anon": True}}, insecure=True, commit_deadline_s=0.5, log_format="text"
    )
    seen: list[Settings] = []
    monkeypatch.setattr("lamella.service.app.served", lambda found, **_: seen.append(found))
    given = pickle.dumps(WorkerApp(settings.model_dump_json()))
    monkeypatch.setenv("LAMELLA_COMMIT_DEADLINE_S", "9")
    monkeypatch.setenv("LAMELLA_CACHE_DIR", "/set/meanwhile")
    pickle.loads(given)()  # noqa: S301  # our own
    assert seen == [settings]


@pytest.mark.parametrize(
    "wrong", [{"warehouse": ""}, {"port": 0}, {"workers": 0}, {"log_level": "loud"}, {"colour": "red"}]
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    """Values outside their range and names that are none."""
    with pytest.raises(ValidationError):
        Settings(**{"warehouse": "/w", **wrong})  # type: ignore[arg-type]  # wrong on purpose


def test_settings_cannot_be_changed() -> None:
    """A service's settings hold for its life."""
    with pytest.raises(ValidationError):
        Settings(warehouse="/w").port = 1


def test_secrets_are_not_part_of_the_text_of_settings() -> None:
    """The catalog's password and the store's keys do not end up in a log."""
    settings = Settings(warehouse="/w", catalog="postgresql://u:hush@h/d", store_options={"s3": {"secret": "hush"}})
    assert "hush" not in repr(settings) + str(settings)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104  # that is what is tested
        ("::", False),
        ("10.0.0.1", False),
        ("example.test", False),
        ("", False),
    ],
)
def test_an_address_that_others_reach_is_refused_without_insecure(tmp_path: Path, host: str, loopback: bool) -> None:
    """`serve` does not listen there, and says what to do; nothing has been created by then."""
    settings = Settings(warehouse=str(tmp_path / "w"), host=host)
    assert settings.is_loopback is loopback
    if not loopback:
        with pytest.raises(InvalidRequest, match="--insecure"):
            serve(settings)
        assert not (tmp_path / "w").exists()
