"""Services, tables, files and clients for a kill test, and the rounds of it."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from kill.cleaner import Cleaner
from kill.finish import clean_up_all, verify_all
from kill.ledger import Ledger
from kill.load import ROWS, Client, LoadSwitch
from kill.walk import Walker
from lamella.service.catalog import SqlCatalog, open_catalog
from lamella.snapshot.ids import Ids
from lamella.snapshot.storage import FsspecStore
from support.nursery import Nursling
from support.service_api import parquet_bytes

NAMESPACE = "kill"
_FINISH_S = 300
#: The longest that a round waits for acknowledgements.
_ROUND_S = 30


@dataclass(frozen=True)
class Ground:
    """A catalog and a place for the warehouse and the data; ``options`` are the store's."""

    catalog_url: str
    root: str
    options: dict[str, Any]

    def settings(self) -> dict[str, Any]:
        """Of a service that stands on it."""
        return {
            "warehouse": f"{self.root}/warehouse",
            "catalog": self.catalog_url,
            "store_options": self.options,
            "catalog_timeout_s": 20.0,
            "retention_max_age_s": 0,
        }


class Arena:
    """``services`` serve the same tables to the same clients; see :func:`arena`."""

    def __init__(
        self,
        ground: Ground,
        folder: Path,
        *,
        services: int,
        clients: int,
        tables: int,
        seed: int,
        settings: Mapping[str, Any],
    ) -> None:
        self.ground = ground
        self.ledger = Ledger()
        self.switch = LoadSwitch()
        self.random = random.Random(seed)
        self.services = [Nursling({**ground.settings(), **settings}, folder) for _ in range(services)]
        self.kills = 0
        self._usual_s = 0.2
        self._store = FsspecStore(ground.options)
        for service in self.services:
            self._start(service)
        for service in self.services:
            service.wait_ready()
        self.catalog: SqlCatalog = open_catalog(ground.catalog_url, timeout_s=20.0, connections=4)
        self.walker = self._new_walker()
        self._paths = self._tables(tables)
        self._data = parquet_bytes({"a": list(range(ROWS))})
        self._numbers = itertools.count()
        self._ids = Ids()
        if ground.root.startswith("file://"):
            Path(f"{ground.root.removeprefix('file://')}/data").mkdir()
            for table_id in self._paths.values():
                Path(f"{ground.root.removeprefix('file://')}/warehouse/{table_id}/_b").mkdir()
        self.clients = [
            Client(
                number,
                seed=seed,
                urls=[service.url for service in self.services],
                tables=list(self._paths),
                fresh=self._fresh,
                ledger=self.ledger,
                switch=self.switch,
            )
            for number in range(clients)
        ]
        self.cleaners = [
            Cleaner(
                number,
                seed=seed,
                urls=[service.url for service in self.services],
                tables=list(self._paths),
                ledger=self.ledger,
                switch=self.switch,
                alone=services == 1,
            )
            for number in range(services)
        ]

    def _start(self, service: Nursling) -> None:
        """With a minimum age that makes clean-ups meet every commit, or with one that leaves most of them alone."""
        service.start(vacuum_min_age_s=self.random.choice((0, 1, 1)))

    def _new_walker(self) -> Walker:
        root = self.ground.root
        return Walker(self.catalog, self._store, f"{root}/warehouse", f"{root}/data")

    def _tables(self, count: int) -> dict[str, str]:
        """New tables: the path in the API, and the id."""
        found = {}
        with httpx2.Client(base_url=self.services[0].url, timeout=300) as http:
            assert http.post("/v1/namespaces", json={"name": NAMESPACE}).status_code == 201
            for number in range(count):
                body = {"name": f"t{number}", "schema": [{"name": "a", "type": "int64"}]}
                answer = http.post(f"/v1/namespaces/{NAMESPACE}/tables", json=body)
                assert answer.status_code == 201, answer.text
                path = f"/v1/namespaces/{NAMESPACE}/tables/t{number}"
                found[path] = answer.json()["table_id"]
                self.ledger.believed[path] = set()
        return found

    def _fresh(self, table: str | None) -> str:
        """A small file that no table has yet, in a table's own folder or beside all of them."""
        if table is None:
            location = f"{self.ground.root}/data/{next(self._numbers):06}.parquet"
        else:
            location = f"{self.ground.root}/warehouse/{self._paths[table]}/_b/{self._ids.new()}_v1.parquet"
        if location.startswith("file://"):
            # not through the store, which would sync it: half of what a round does otherwise
            Path(location.removeprefix("file://")).write_bytes(self._data)
        else:
            self._store.put(location, self._data)
        return location

    def start(self) -> None:
        """Let the clients go."""
        for thread in (*self.clients, *self.cleaners):
            thread.start()
        self.switch.open()

    def check(self) -> None:
        """Every table against what is known; nothing may have gone wrong for the clients."""
        for path, table_id in self._paths.items():
            self.walker.check(path, table_id, self.ledger)
        assert not self.ledger.wrong, self.ledger.wrong[:5]

    def run_for_a_while(self) -> None:
        """Some acknowledgements long, and then a random part of what one takes; as fast or slow as the machine is."""
        before = self.ledger.counts["acknowledged"]
        wanted = self.random.randint(0, 3 * len(self.clients))
        began = time.monotonic()
        while (done := self.ledger.counts["acknowledged"] - before) < wanted and time.monotonic() < began + _ROUND_S:
            time.sleep(0.002)
        if done:
            self._usual_s = (time.monotonic() - began) / done * len(self.clients)
        time.sleep(self.random.uniform(0, self._usual_s))

    def kill_round(self) -> None:
        """Run for a while, kill one service or all, check what is there, and start them again.

        Now and then a service is killed again while it starts.
        """
        self.run_for_a_while()
        every = self.random.random() < 0.3
        victims = self.services if every else [self.random.choice(self.services)]
        for victim in victims:
            victim.kill()
            self.kills += 1
        self.switch.close()
        self.check()
        for victim in victims:
            if self.random.random() < 0.05:
                self._start(victim)
                time.sleep(self.random.uniform(0, 0.5))
                victim.kill()
                self.kills += 1
            self._start(victim)
        for victim in victims:
            victim.wait_ready()
        self.switch.open()

    def rounds(self, kills: int) -> None:
        """Kill rounds until there were that many kills."""
        while self.kills < kills:
            self.kill_round()

    def finish(self) -> dict[str, int]:
        """Bring every open intent to its end, clean up for the last time, and check everything anew without any cache.

        Each table is then one snapshot and what it needs, and its verification finds nothing. Returns the figures.
        """
        for client in self.clients:
            client.finishing = True
        for cleaner in self.cleaners:
            cleaner.finishing = True
        self.switch.open()
        for thread in (*self.clients, *self.cleaners):
            thread.join(_FINISH_S)
        self.switch.close()
        assert not self.ledger.open, (f"{len(self.ledger.open)} outcomes were never known", self.ledger.wrong)
        self.check()
        urls = {f"{self.services[0].url}{path}": table_id for path, table_id in self._paths.items()}
        clean_up_all(urls, self.ledger)
        verified = verify_all(urls)
        self.walker = self._new_walker()
        self.check()
        for table_id in self._paths.values():
            left = self.walker.unreferred(table_id)
            assert not left, f"nothing refers to {sorted(left)[:5]}"
        return {"kills": self.kills, **self.ledger.figures(), **verified}

    def close(self) -> None:
        """End everything."""
        self.switch.end()
        for thread in (*self.clients, *self.cleaners):
            if thread.is_alive():
                thread.join(_FINISH_S)
        for service in self.services:
            service.kill()
        self.catalog.close()


@contextmanager
def arena(
    ground: Ground,
    folder: Path,
    *,
    services: int = 1,
    clients: int = 4,
    tables: int = 2,
    seed: int,
    **settings: Any,
) -> Iterator[Arena]:
    """Services that are ready, and clients that wait for :meth:`Arena.start`."""
    built = Arena(
        ground,
        folder,
        services=services,
        clients=clients,
        tables=tables,
        seed=seed,
        settings=settings,
    )
    try:
        yield built
    finally:
        built.close()


NewGround = Callable[[str], Ground]
_NUMBERS = itertools.count()


def fresh_bucket() -> str:
    """A bucket's name that no other test of this run has."""
    return f"kill-{next(_NUMBERS)}"
