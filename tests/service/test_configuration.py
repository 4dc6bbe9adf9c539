"""Where settings come from, what is refused, and what a check says of them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from lamella.service.catalog import open_catalog
from lamella.service.config.check import ConfigReport, check_configuration, effective_settings
from lamella.service.config.settings import ENV_PREFIX, Settings
from lamella.service.config.sources import Configuration, Origin, load_settings
from lamella.snapshot.errors import InvalidSettings
from lamella.snapshot.storage import FsspecStore


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine has a say."""
    for name in list(os.environ):
        if name.upper().startswith(ENV_PREFIX):
            monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], str]:
    """Makes a file that only its owner reads; returns its path."""

    def make(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    return make


def problems(given: dict[str, Any] | None = None, *, config: str | None = None) -> list[str]:
    """All that is wrong."""
    with pytest.raises(InvalidSettings) as caught:
        load_settings(given, config=config)
    found = caught.value.details["problems"]
    assert found
    return list(found)


SOURCES = ("file", "secret file", "environment", "option")


@examples(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chosen=st.dictionaries(st.sampled_from(["port", "workers"]), st.sets(st.sampled_from(SOURCES)), min_size=1))
def test_the_nearest_source_wins_and_is_reported(
    tmp_path_factory: pytest.TempPathFactory, chosen: dict[str, set[str]]
) -> None:
    """An option before a variable or the file that one names, those before the configuration file, that before the
    default; for each setting by itself."""
    folder = tmp_path_factory.mktemp("places")
    values = {"option": 11, "environment": 12, "secret file": 13, "file": 14}
    with pytest.MonkeyPatch.context() as patch:
        lines = ['warehouse = "/w"']
        options: dict[str, Any] = {}
        for name, sources in chosen.items():
            sources -= {"secret file"} if "environment" in sources else set()  # both are refused: see below
            if "file" in sources:
                lines.append(f"{name} = {values['file']}")
            if "secret file" in sources:
                (folder / name).write_text(f"{values['secret file']}\n")
                patch.setenv(f"LAMELLA_{name.upper()}_FILE", str(folder / name))
            if "environment" in sources:
                patch.setenv(f"LAMELLA_{name.upper()}", str(values["environment"]))
            if "option" in sources:
                options[name] = values["option"]
        (folder / "lamella.toml").write_text("\n".join(lines))
        patch.setenv("LAMELLA_CONFIG", str(folder / "lamella.toml"))
        found = load_settings(options)
    assert found.origins["warehouse"] == Origin(kind="file", name=str(folder / "lamella.toml"))
    assert found.origins["host"] == Origin(kind="default")
    for name, sources in chosen.items():
        nearest = max(sources, key=SOURCES.index, default="default")
        assert found.origins[name].kind == nearest
        assert getattr(found.settings, name) == values.get(nearest, Settings.model_fields[name].default)


def test_a_configuration_file_holds_values_of_every_shape(write: Callable[[str, str], str]) -> None:
    """Numbers, truth, texts and tables are written as TOML writes them."""
    path = write(
        "lamella.toml",
        'warehouse = "s3://b/w"\ncatalog = "/c.db"\ninsecure = true\ncommit_deadline_s = 1.5\n'
        '[store_options.s3]\nendpoint_url = "http://x"\nanon = true\n',
    )
    settings = load_settings(config=path).settings
    assert (settings.insecure, settings.commit_deadline_s) == (True, 1.5)
    assert settings.store_options == {"s3": {"endpoint_url": "http://x", "anon": True}}


def test_a_secret_in_a_file_is_read_without_the_end_of_its_line(
    write: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As container engines mount secrets; what is JSON in a variable is JSON in such a file."""
    monkeypatch.setenv("LAMELLA_WAREHOUSE", "s3://b/w")
    monkeypatch.setenv("LAMELLA_CATALOG_FILE", write("catalog", "postgresql+psycopg://u:p w@h/d\r\n"))
    monkeypatch.setenv("LAMELLA_STORE_OPTIONS_FILE", write("options", '{"s3": {"secret": "hush"}}\n'))
    found = load_settings()
    assert found.settings.catalog == "postgresql+psycopg://u:p w@h/d"
    assert found.settings.store_options == {"s3": {"secret": "hush"}}
    assert str(found.origins["catalog"]) == "secret file LAMELLA_CATALOG_FILE"


@pytest.mark.parametrize("name", ["allowed_locations", "store_options", "oidc_algorithms"])
def test_a_variable_that_is_null_is_none(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """JSON knows null: it is the value None, which a setting takes or refuses as any other."""
    monkeypatch.setenv(f"LAMELLA_{name.upper()}", "null")
    if Settings.model_fields[name].default is None:
        assert getattr(load_settings({"warehouse": "/w"}).settings, name) is None
    else:
        with pytest.raises(InvalidSettings) as refused:
            load_settings({"warehouse": "/w"})
        assert name.upper() in str(refused.value.details["problems"])


def test_the_name_of_a_setting_is_no_file_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting whose own name ends like that of a file of secrets is read as what it is."""
    monkeypatch.setenv("LAMELLA_TLS_KEY_FILE", "/no/such/file")
    assert load_settings({"warehouse": "/w"}).settings.tls_key_file == "/no/such/file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("warehouse = '/w'\nprot = 1", "prot in {path} is not a setting; did you mean port?"),
        ("warehouse = '/w'\nquite_another_thing = 1", "quite_another_thing in {path} is not a setting"),
        ("warehouse = '/w'\nport = 0", "port in {path}: must be at least 1"),
        ("warehouse = '/w'\n[store_options]\ns3 = 1", "store_options.s3 in {path}: "),
        ("port = ", "{path}: not valid TOML: "),
    ],
)
def test_a_configuration_file_with_a_mistake_is_refused(
    write: Callable[[str, str], str], text: str, message: str
) -> None:
    """By the setting's name, the file, and what may have been meant."""
    path = write("lamella.toml", text)
    (problem,) = problems(config=path)
    assert problem.startswith(message.format(path=path))


def test_all_mistakes_are_reported_together_and_without_values(
    write: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody starts a service five times to learn of five of them; a secret in the wrong place stays one."""
    config = write("lamella.toml", "prot = 1\nhots = 2")
    monkeypatch.setenv("LAMELLA_WAREHOSUE", "/w")
    monkeypatch.setenv("LAMELLA_CATALOG", "a")
    monkeypatch.setenv("LAMELLA_CATALOG_FILE", write("catalog", "b"))
    monkeypatch.setenv("LAMELLA_TOKEN_SECRET_FILE", str(tmp_path / "missing"))
    monkeypatch.setenv("LAMELLA_STORE_OPTIONS", "hush")
    found = problems(config=config)
    assert [problem.partition(" ")[0].rstrip(":") for problem in found] == [
        "prot",
        "hots",
        "LAMELLA_TOKEN_SECRET_FILE",
        "LAMELLA_WAREHOSUE",
        "LAMELLA_CATALOG",
        "LAMELLA_STORE_OPTIONS",
    ]
    assert "hush" not in " ".join(found)
    monkeypatch.undo()
    monkeypatch.setenv("LAMELLA_PORT", "hush")
    monkeypatch.setenv("LAMELLA_WORKERS", "hush")
    found = problems()
    assert [problem.partition(":")[0] for problem in found] == [
        "LAMELLA_WAREHOUSE",
        "LAMELLA_PORT",
        "LAMELLA_WORKERS",
    ]
    assert "hush" not in " ".join(found)


def test_a_setting_that_is_missing_is_reported_with_every_way_to_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is, the option where the command has one, the variable, a file, and the configuration file."""
    monkeypatch.delenv("LAMELLA_WAREHOUSE", raising=False)
    (found,) = problems({"warehouse": None, "catalog": None})
    for words in ("give --warehouse", "set LAMELLA_WAREHOUSE,", "LAMELLA_WAREHOUSE_FILE", "--config or LAMELLA_CONFIG"):
        assert words in found
    assert "Folder of all tables" in found
    (found,) = problems()
    assert "--" not in found
    assert "set LAMELLA_WAREHOUSE," in found
    assert "the configuration file that LAMELLA_CONFIG names" in found


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("port", "http", "must be a whole number"),
        ("port", "1.5", "must be a whole number"),
        ("port", "70000", "must be at most 65535"),
        ("workers", "0", "must be at least 1"),
        ("auth", "perhaps", "must be true or false"),
        ("log_format", "xml", "must be 'json' or 'text'"),
        ("warehouse", "", "must not be empty"),
    ],
)
def test_a_bad_value_is_reported_where_it_stands(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[str, str], str], name: str, value: str, said: str
) -> None:
    """As an option, a variable or a line of the configuration file, in plain words."""
    if name != "warehouse":
        monkeypatch.setenv("LAMELLA_WAREHOUSE", "/w")
    config = write("lamella.toml", f'{name} = "{value}"')
    assert problems(config=config) == [f"{name} in {config}: {said}"]
    assert problems({name: value}) == [f"--{name.replace('_', '-')}: {said}"]
    monkeypatch.setenv(f"LAMELLA_{name.upper()}", value)
    assert problems() == [f"LAMELLA_{name.upper()}: {said}"]


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A service does not start on its defaults because its configuration was not mounted."""
    assert problems(config=str(tmp_path / "none.toml")) == [f"{tmp_path}/none.toml: No such file or directory"]


def test_variables_of_others_are_no_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that our clients read are known; what Kubernetes sets for a Service of our name is told, and no more."""
    for name in ("URL", "TOKEN", "TOKEN_FILE", "CONFIG"):
        monkeypatch.setenv(f"LAMELLA_{name}", "")
    assert load_settings({"warehouse": "/w"}).warnings == ()
    monkeypatch.setenv("LAMELLA_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("LAMELLA_PORT_8181_TCP_ADDR", "10.0.0.1")
    assert len(load_settings({"warehouse": "/w"}).warnings) == 2
    monkeypatch.setenv("LAMELLA_PORT", "tcp://10.0.0.1:8181")
    (problem,) = problems({"warehouse": "/w"})
    assert "enableServiceLinks" in problem


def test_a_file_whose_secrets_others_may_read_is_reported(write: Callable[[str, str], str]) -> None:
    """A configuration file with a password in it is the owner's alone, or there is a warning."""
    path = write("lamella.toml", 'warehouse = "/w"\ntoken_secret = "sixteen characters"')
    assert load_settings(config=path).warnings == ()
    Path(path).chmod(0o644)
    (warning,) = load_settings(config=path).warnings
    assert "token_secret" in warning
    assert "sixteen" not in warning


def test_what_is_in_force_is_shown_without_secrets(
    write: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every setting with its value and origin; passwords nowhere."""
    monkeypatch.setenv("LAMELLA_CATALOG", "postgresql+psycopg://u:hush@h/d")
    monkeypatch.setenv("LAMELLA_STORE_OPTIONS", '{"s3": {"secret": "hush"}}')
    found = load_settings({"port": 99}, config=write("lamella.toml", 'warehouse = "s3://k:hush@b/w"'))
    shown = {each.name: each for each in effective_settings(found)}
    assert list(shown) == list(Settings.model_fields)
    assert (shown["port"].value, shown["port"].origin) == ("99", "option")
    assert shown["catalog"].origin == "environment LAMELLA_CATALOG"
    assert shown["warehouse"].origin.startswith("file ")
    assert (shown["host"].value, shown["host"].is_default) == ("127.0.0.1", True)
    assert "hush" not in str(shown)


def checked(connect: bool = False, **given: Any) -> ConfigReport:
    """The report on settings."""
    return check_configuration(load_settings({"warehouse": "/tmp/w", **given}), connect=connect)  # noqa: S108


def messages(report: ConfigReport, severity: str) -> dict[str, str]:
    """What was found of that severity, by what it is about."""
    return {finding.about: finding.message for finding in report.findings if finding.severity == severity}


@pytest.mark.parametrize(
    ("given", "about", "message"),
    [
        ({"host": "192.0.2.1"}, "access", "refusing to listen"),
        ({"warehouse": "s3://b/w"}, "catalog", "needs a catalog of its own"),
        ({"catalog": "mysql://h/d"}, "catalog", "mysql is not supported for the catalog"),
        ({"warehouse": "bad:place"}, "warehouse", ""),
        ({"warehouse": "/dev/null/w"}, "warehouse", "cannot be written to"),
        ({"cache_dir": "/dev/null/x"}, "cache_dir", "cannot be written to"),
        ({"allowed_locations": {"db": ["data"]}}, "allowed_locations", "LAMELLA_ALLOWED_LOCATIONS"),
        ({"auth": True, "oidc_issuer": "https://i", "oidc_algorithms": ("none",)}, "access", "none are not taken"),
        ({"tls_cert_file": "/no/such", "tls_key_file": "/dev/null"}, "tls_cert_file", "cannot be read"),
    ],
)
def test_what_a_start_would_refuse_is_said_beforehand(given: dict[str, Any], about: str, message: str) -> None:
    """Each by the setting that it is about; the service would not start."""
    report = checked(**given)
    assert not report.is_usable
    assert message in messages(report, "error")[about]


def test_a_certificate_that_cannot_be_served_with_is_said_beforehand(tmp_path: Path) -> None:
    """Files that are there and can be read, and hold something else."""
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    report = checked(tls_cert_file=str(text), tls_key_file=str(text))
    assert not report.is_usable
    assert "cannot be used" in messages(report, "error")["tls_cert_file"]


def test_a_library_that_is_missing_is_reported_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the setting that needs it; the others are not asked for."""
    monkeypatch.setattr("lamella.service.config.check.find_spec", lambda _: None)
    given: dict[str, Any] = {"warehouse": "s3://b/w", "catalog": "postgresql://h/d", "traces": True}
    errors = messages(checked(**given), "error")
    assert {about: text.partition(";")[2] for about, text in errors.items()} == {
        "warehouse": " run: pip install 'lamella[s3]'",
        "catalog": " run: pip install 'lamella[postgres]'",
        "traces": " run: pip install 'lamella[telemetry]'",
    }
    assert checked().is_usable


def test_a_check_makes_nothing(tmp_path: Path) -> None:
    """A catalog and a warehouse that are not there are not there afterwards, and that is no error."""
    report = checked(connect=True, warehouse=str(tmp_path / "w"))
    assert report.is_usable
    assert "set up" in messages(report, "info")["catalog"]
    assert list(tmp_path.iterdir()) == []


def test_a_check_that_connects_tells_what_is_there(tmp_path: Path) -> None:
    """The catalog's revision and that the warehouse answers; a file that is no database is an error."""
    settings = {"warehouse": str(tmp_path / "w"), "catalog": str(tmp_path / "c.db")}
    open_catalog(str(tmp_path / "c.db")).close()
    (tmp_path / "w").mkdir()
    found = messages(checked(connect=True, **settings), "info")
    assert "schema revision 0" in found["catalog"]
    assert "no service was ready" in found["warehouse"]
    FsspecStore().put(f"file://{tmp_path}/w/_lamella_v1.json", b"{}")
    assert messages(checked(connect=True, **settings), "info")["warehouse"] == "it answers"
    (tmp_path / "c.db").write_bytes(b"no database at all" * 100)
    report = checked(connect=True, **settings)
    assert "not a SQLite database" in messages(report, "error")["catalog"]
    assert not report.is_usable


def test_a_check_tells_of_a_schema_that_is_not_this_releases(tmp_path: Path) -> None:
    """An older one is migrated at the start or not, as is set; a newer one is an error."""
    path = tmp_path / "c.db"
    open_catalog(str(path)).close()

    def report_at(revision: str, **given: Any) -> ConfigReport:
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        connection.close()
        return checked(connect=True, catalog=str(path), **given)

    assert "migrated at the start" in messages(report_at("0001"), "info")["catalog"]
    assert "lamella catalog migrate" in messages(report_at("0001", auto_migrate=False), "error")["catalog"]
    assert "does not know schema revision" in messages(report_at("9999"), "error")["catalog"]


@pytest.mark.postgres
def test_a_check_tells_of_a_database_that_does_not_answer(postgres_database: str) -> None:
    """With the reason, without the password; one that answers is new."""
    assert "postgresql, empty" in messages(checked(connect=True, catalog=postgres_database), "info")["catalog"]
    wrong = sa.make_url(postgres_database).set(database="nobody_made_this", password="hush")
    address = wrong.render_as_string(hide_password=False)
    report = checked(connect=True, catalog=address)
    assert "nobody_made_this" in messages(report, "error")["catalog"]
    assert "hush" not in str(report)


def test_settings_are_values(tmp_path: Path) -> None:
    """Loading the same twice gives equal configurations."""
    one, other = (load_settings({"warehouse": str(tmp_path)}) for _ in range(2))
    assert isinstance(one, Configuration)
    assert one == other
