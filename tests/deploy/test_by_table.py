"""Replicas behind a real nginx with deploy/nginx/upstream-by-table.conf: each table is at one of them."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pyarrow.parquet as pq
import pytest

from fixtures_server import ServerProcess, StartServer
from lamella.client.http import Lamella, RetryPolicy
from spark.lakes import numbers
from support.proxied import proxied

pytestmark = [pytest.mark.soak, pytest.mark.postgres]

TABLES = [f"db{number % 3}.t{number}" for number in range(24)]
#: For so long nginx leaves out a replica that refused it (fail_timeout, counted in whole seconds).
AWAY_S = 3.1


@pytest.fixture(params=[2, 3])
def replicas(
    request: pytest.FixtureRequest, start_server: StartServer, tmp_path: Path, postgres_database: str
) -> list[ServerProcess]:
    """Services over one catalog, with tables of some blocks, and nothing in memory."""
    settings = {"warehouse": tmp_path / "warehouse", "catalog": postgres_database, "drain_s": 0}
    first = start_server(**settings)
    paths = []
    for number, block in enumerate(numbers(3)):
        paths.append(str(tmp_path / f"{number}.parquet"))
        pq.write_table(block, paths[-1])
    with Lamella(first.url) as lake:
        for namespace in sorted({name.partition(".")[0] for name in TABLES}):
            lake.create_namespace(namespace)
        for name in TABLES:
            lake.create_table(name, schema_from=paths[0])
            lake.table(name).register(paths)
    first.stop()
    first.restart()
    return [first, *(start_server(**settings) for _ in range(request.param - 1))]


def port_of(replica: ServerProcess) -> int:
    """Where a replica listens."""
    return int(replica.url.rpartition(":")[2])


class Behind:
    """nginx before replicas; tells which of them gave answers."""

    def __init__(self, url: str, log: Path) -> None:
        self.lake = Lamella(url, policy=RetryPolicy(attempts=1))
        self.url = url
        self._log = log
        self._lines = 0

    def answered(self) -> dict[str, set[int]]:
        """By path, the ports that have answered since the last time."""
        lines = [line for line in self._log.read_text("utf-8").splitlines() if line.startswith("{")]
        new, self._lines = lines[self._lines :], len(lines)
        found: dict[str, set[int]] = {}
        for entry in map(json.loads, new):
            replica = entry["replica"].split(", ")[-1]  # those before it could not be reached
            found.setdefault(entry["path"], set()).add(int(replica.rpartition(":")[2]))
        return found

    def ask_all(self) -> dict[str, set[int]]:
        """By table, the ports of the replicas that were asked about it, in several ways."""
        self.answered()
        for name in TABLES:
            table = self.lake.table(name)
            for filter in ("a < 150", "b = 1", f"s = 'v{len(name):06}'"):
                table.prune(filter)
            table.info()
        found: dict[str, set[int]] = {}
        for path, ports in self.answered().items():
            _, _, _, namespace, _, table_name, *_ = path.split("/")
            found.setdefault(f"{namespace}.{table_name}", set()).update(ports)
        return found


@pytest.fixture
def behind(replicas: list[ServerProcess], tmp_path: Path) -> Iterator[Behind]:
    """nginx before the replicas."""
    folder = tmp_path / "nginx"
    with proxied(folder, *map(port_of, replicas), by_table=True) as url:
        made = Behind(url, folder / "nginx.log")
        yield made
        made.lake.close()


def sidecar_bytes(replicas: list[ServerProcess]) -> list[int]:
    """What each replica has of sidecars in memory."""
    found = []
    for replica in replicas:
        text = httpx2.get(f"{replica.url}/metrics", timeout=60).text
        sizes = re.findall(r'^lamella_memory_cache_size_bytes\{kind="sidecar"\} (\S+)$', text, re.MULTILINE)
        found.append(sum(int(float(size)) for size in sizes))
    return found


def test_each_table_is_at_one_replica_and_in_memory_once(
    replicas: list[ServerProcess], behind: Behind, tmp_path: Path
) -> None:
    """However often and in whatever way it is asked about; in turn, all replicas would have all tables."""
    found = behind.ask_all()
    assert sorted(found) == sorted(TABLES)
    assert {len(ports) for ports in found.values()} == {1}
    assert set.union(*found.values()) == set(map(port_of, replicas))
    assert behind.ask_all() == found
    time.sleep(0.5)  # the figures are updated four times a second
    once = sidecar_bytes(replicas)
    for replica in replicas:
        replica.stop()
        replica.restart()
    with proxied(tmp_path / "turns", *map(port_of, replicas)) as url, Lamella(url) as lake:
        draw = random.Random(3)
        for name in draw.sample(TABLES * 12 * len(replicas), 12 * len(replicas) * len(TABLES)):
            lake.table(name).prune("a < 150")
    time.sleep(0.5)
    everywhere = sidecar_bytes(replicas)
    assert min(once) > 0
    assert everywhere == [sum(once)] * len(replicas)


def test_only_the_tables_of_a_replica_that_goes_move(replicas: list[ServerProcess], behind: Behind) -> None:
    """To the others, and back when it is there again; no question fails."""
    before = behind.ask_all()
    gone = port_of(replicas[-1])
    replicas[-1].stop()
    meanwhile = behind.ask_all()
    assert gone not in set.union(*meanwhile.values())
    assert {name for name in TABLES if meanwhile[name] != before[name]} == {
        name for name in TABLES if before[name] == {gone}
    }
    assert {len(ports) for ports in meanwhile.values()} == {1}
    replicas[-1].restart()
    time.sleep(AWAY_S)
    assert behind.ask_all() == before


def test_commits_through_any_replica_are_seen_by_all(
    replicas: list[ServerProcess], behind: Behind, tmp_path: Path
) -> None:
    """Which replica has a table in memory decides nothing: each of them commits, and the next answer has it."""
    behind.ask_all()
    for number in range(2 * len(replicas)):
        path = str(tmp_path / f"more{number}.parquet")
        pq.write_table(numbers(1)[0], path)
        with Lamella(replicas[number % len(replicas)].url) as direct:
            direct.table(TABLES[number]).register([path])
            assert f"file://{path}" in behind.lake.table(TABLES[number]).prune("a = 7").locations
            behind.lake.table(TABLES[number]).tag(f"t{number}")
            assert f"t{number}" in {tag.name for tag in direct.table(TABLES[number]).tags()}


def encoded(name: str) -> str:
    """The namespace of a table, each letter percent-encoded."""
    return "".join(f"%{ord(letter):02x}" for letter in name.partition(".")[0])


def test_all_ways_to_a_table_lead_to_its_replica_and_others_to_any(
    replicas: list[ServerProcess], behind: Behind
) -> None:
    """The native API, Iceberg's, Delta Sharing's and the dashboard; requests without a table are spread."""
    home = behind.ask_all()
    paths = {
        name: [
            "/v1/namespaces/{0}/tables/{1}",
            "/v1/namespaces/{0}/tables/{1}/schema",
            "/iceberg/v1/namespaces/{0}/tables/{1}",
            "/delta-sharing/shares/lamella/schemas/{0}/tables/{1}/version",
            "/ui/tables/{0}/{1}",
            f"/v1/namespaces/{encoded(name)}/tables/{{1}}",
        ]
        for name in TABLES
    }
    with httpx2.Client(base_url=behind.url, timeout=60) as http:
        for name, templates in paths.items():
            namespace, _, table = name.partition(".")
            behind.answered()
            for template in templates:
                http.get(template.format(namespace, table), params={"x": "/v1/namespaces/other/tables/other"})
            assert set.union(*behind.answered().values()) == home[name], name
        for _ in range(60):
            assert http.get("/v1/config").status_code == 200
    assert behind.answered() == {"/v1/config": set(map(port_of, replicas))}
