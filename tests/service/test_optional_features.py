"""Each optional feature is one folder and one registration: without both, the service starts and prunes as before."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from fixtures_server import ServerProcess
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from support.app_client import AppClient
from support.service_api import Api, parquet_bytes

ROOT = Path(__file__).resolve().parents[2]
ROOTS: Final = ("snapshot", "service", "client")
EXTENSIONS: Final = "service/lamella/service/extensions.py"
COMMANDS: Final = "client/lamella/client/cli/app.py"
TABLE: Final = "/v1/namespaces/db/tables/t"


class Removed(msgspec.Struct, frozen=True):
    """A feature: its folders, the file and lines that register it, a path that it serves, and its tag in OpenAPI."""

    folders: tuple[str, ...]
    registry: str
    lines: str
    path: str | None
    tag: str | None


def of_the_service(name: str, path: str, tag: str | None) -> Removed:
    """One that the service registers."""
    lines = rf"from lamella\.service\.{name} import register as {name}|        {name},"
    return Removed((f"service/lamella/service/{name}",), EXTENSIONS, lines, path, tag)


FEATURES: Final = {
    "advice": of_the_service("advice", f"{TABLE}/recorded", "Advice"),
    "dashboard": of_the_service("dashboard", "/ui", None),
    "iceberg": of_the_service("iceberg", "/iceberg/v1/namespaces", "Iceberg"),
    "sharing": of_the_service("sharing", "/delta-sharing/shares", "Delta Sharing"),
    "backup": Removed(
        ("service/lamella/service/backup", "client/lamella/client/backup"),
        COMMANDS,
        r'    "catalog": "backup\.commands:add_backup_commands",',
        None,
        None,
    ),
}


class CopiedService(ServerProcess):
    """A service that runs the packages of a folder, and not those of this checkout."""

    def __init__(self, packages: Path, folder: Path) -> None:
        self._packages = packages
        super().__init__({"LAMELLA_WAREHOUSE": str(folder / "warehouse")}, folder)

    def _start(self) -> None:
        given = {**self.environment, "LAMELLA_DRAIN_S": "0", "LAMELLA_PORT": str(self.port)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lamella.service"],
                env=environment(self._packages, given),
                stdout=log,
                stderr=log,
                cwd=self._packages,
            )


def environment(packages: Path, settings: dict[str, str]) -> dict[str, str]:
    """The variables of a process in which `lamella` is what lies in a folder."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAMELLA_")}
    return {**inherited, **settings, "PYTHONPATH": os.pathsep.join(str(packages / root) for root in ROOTS)}


def copy_without(removed: Removed, packages: Path) -> None:
    """The three packages, but for a feature's folders and the lines that register it."""
    packages.mkdir()
    changed = {path.partition("/")[0] for path in (*removed.folders, removed.registry)}
    for root in ROOTS:
        if root in changed:
            shutil.copytree(ROOT / root, packages / root)
        else:
            (packages / root).symlink_to(ROOT / root)
    for folder in removed.folders:
        shutil.rmtree(packages / folder)
    registry = packages / removed.registry
    text, count = re.subn(rf"^(?:{removed.lines})\n", "", registry.read_text("utf-8"), flags=re.MULTILINE)
    assert count == removed.lines.count("|") + 1
    registry.write_text(text, "utf-8")


def operations_by_tag(document: dict[str, Any]) -> set[tuple[str, str]]:
    """Tag and id of each operation that a document describes."""
    return {(each["tags"][0], each["operationId"]) for path in document["paths"].values() for each in path.values()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppClient]:
    """The service with every feature, and a table."""
    folder = tmp_path_factory.mktemp("whole")
    with AppClient(create_app(Settings(warehouse=str(folder / "warehouse"), log_requests=False))) as app:
        app.post("/v1/namespaces", json={"name": "db"})
        columns = [{"name": "a", "type": "int64"}]
        assert app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": columns}).status_code == 201
        yield app


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.few(2)
def test_a_feature_can_be_removed(name: str, whole: AppClient, tmp_path: Path) -> None:
    """What it served is not found and not described; registering and pruning go on, and so do the other features."""
    removed, packages = FEATURES[name], tmp_path / "packages"
    copy_without(removed, packages)
    described = operations_by_tag(whole.get("/openapi.json").json())
    its_own = {each for each in described if each[0] == removed.tag}
    assert (removed.tag is None) == (not its_own)
    service = CopiedService(packages, tmp_path)
    api = Api(service.url)
    try:
        service.wait_ready()
        api.call("POST", "/v1/namespaces", {"name": "db"}, expect=201)
        api.call(
            "POST", "/v1/namespaces/db/tables", {"name": "t", "schema": [{"name": "a", "type": "int64"}]}, expect=201
        )
        file = tmp_path / "warehouse" / "x.parquet"
        file.write_bytes(parquet_bytes({"a": [1, 2, 3]}))
        api.call("POST", f"{TABLE}/register", {"paths": [str(file)]})
        assert len(api.call("POST", f"{TABLE}/prune", {"filter": "a = 2"})["blocks"]) == 1
        assert api.call("POST", f"{TABLE}/prune", {"filter": "a = 7"})["blocks"] == []
        assert operations_by_tag(api.call("GET", "/openapi.json")) == described - its_own
        for other, feature in FEATURES.items():
            if feature.path is not None:
                assert whole.get(feature.path).status_code == 200
                answer = api.send("GET", feature.path)
                assert answer.status_code == (404 if other == name else 200), feature.path
                assert other != name or answer.json()["code"] == "not_found"
        if name != "dashboard":
            for page in ("", "/indexes", "/lab?filter=a+%3D+2&ask=1", "/lab/compare?with=snapshot&filter=a+%3D+2"):
                assert api.send("GET", f"/ui/tables/db/t{page}").status_code == 200, page
            wanted = "/ui/tables/db/t/indexes/new?kind=bloom&name=i&expression=a&preview=1"
            for served in (api.http, whole):
                preview, compare = served.get(wanted).text, served.get("/ui/tables/db/t/lab/compare").text
                has_advice = served is whole or name != "advice"
                assert ("gives no advice" in preview) is not has_advice
                assert ("if it had" in compare) is has_advice
    finally:
        api.close()
        service.stop()


def test_the_command_line_is_there_without_backup(tmp_path: Path) -> None:
    """Its other commands work, and those of backup are unknown."""
    packages = tmp_path / "packages"
    copy_without(FEATURES["backup"], packages)
    program = "import sys; from lamella.client.cli.app import cli; cli(sys.argv[1:])"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env=environment(packages, {"LAMELLA_WAREHOUSE": str(tmp_path / "warehouse")}),
            cwd=packages,
            check=False,
            capture_output=True,
            text=True,
        )

    assert run("catalog", "migrate").returncode == 0
    unknown = run("catalog", "export", "-")
    assert unknown.returncode == 2
    assert "no such command 'export'" in unknown.stderr
