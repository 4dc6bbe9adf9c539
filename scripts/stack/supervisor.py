"""A whole stack: starts its services in dependency order and stops them in the reverse order."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from signal import SIGKILL
from types import TracebackType
from typing import Any, Final

import make_secrets
import reaper
from stack.cable import FaultProxy
from stack.compose import Compose, Service, read_compose
from stack.mapping import HostMapping, addresses
from stack.process import FOLDER, DidNotStart, Member, members_of, send
from stack.recipes import NOT_RUN, Kitchen
from stack.tools import ROOT, say

START_S: Final = 180.0
STATE: Final = "state.json"
#: Services that trials disconnect, and the port of each.
CABLED: Final = {"catalog": 5432, "store": 9000, "lamella-1": 8181, "lamella-2": 8181, "proxy": 8080}


class Stack:
    """The services of docker-compose.yml without profiles, and those with these. A context manager.

    ``cabled``: a cable lies before each service of :data:`CABLED`. ``keep``: data stays in the folder at the end.
    """

    def __init__(
        self,
        folder: Path,
        *,
        profiles: Collection[str] = (),
        with_moto: bool = False,
        cabled: bool = False,
        keep: bool = False,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder.resolve()
        self.compose: Compose = read_compose(ROOT / "docker-compose.yml")
        self.addresses = addresses(self.compose, self.folder, cabled=CABLED if cabled else ())
        self.members: dict[str, Member] = {}
        self.cables: dict[str, FaultProxy] = {}
        self._profiles = set(profiles)
        self._kitchen = Kitchen(with_moto=with_moto)
        self._keep = keep
        self._settings = settings or {}

    @property
    def url(self) -> str:
        """The URL of the service, through nginx."""
        return f"http://{self.addresses.by_name['proxy']}:8080"

    def replica_url(self, number: int) -> str:
        """Return the URL of one replica, without nginx and the fault proxy."""
        return f"http://{self.addresses.own[f'lamella-{number}']}:8181"

    @property
    def key(self) -> str:
        """An API key with all permissions."""
        return (self.folder / "secrets" / "root_key").read_text("utf-8")

    def __enter__(self) -> Stack:
        left = members_of(self.folder)
        for pid in left:
            # Processes of a killed stack would keep ports and data.
            say(f"ending process {pid}, which an earlier stack left in {self.folder}")
            send(pid, SIGKILL)
        self._reaper = reaper.start(FOLDER, self.folder)
        if not self._keep:
            for path in self._data():
                reaper.send_line(self._reaper, f"remove {path}")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log").mkdir(exist_ok=True)
        make_secrets.make(self.folder / "secrets")
        (self.folder / "secrets").chmod(0o711)
        mappings = {service.name: self._mapping(service) for service in self._wanted()}
        # Secrets contain names of containers, too.
        url = self.folder / "secrets" / "catalog_url"
        url.chmod(0o600)
        template = make_secrets.CATALOG.format(
            password=(self.folder / "secrets" / "catalog_password").read_text("utf-8")
        )
        url.write_text(mappings["migrate"].text(template), "utf-8")
        try:
            for service in self._ordered():
                self._start(service, mappings[service.name])
            for member in self.members.values():
                if not member.service.is_one_shot:
                    member.wait_well(START_S)
        except BaseException:
            self.close()
            raise
        self.write_state()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything, dependents first; delete the data unless it is to be kept."""
        for member in reversed(self.members.values()):
            member.end()
        for cable in self.cables.values():
            cable.close()
        leftovers = [path for member in self.members.values() for path in member.recipe.leftovers]
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        (self.folder / STATE).unlink(missing_ok=True)
        if not self._keep:
            for path in (*leftovers, *self._data()):
                shutil.rmtree(path, ignore_errors=True)
        reaper.dismiss(self._reaper)

    def _data(self) -> list[Path]:
        return [self.folder / name for name in ("data", "files", "secrets")]

    def _wanted(self) -> Iterator[Service]:
        for service in self.compose.services.values():
            if service.image.partition(":")[0] in NOT_RUN:
                if self._profiles.intersection(service.profiles):
                    say(f"{service.name} is not run: {service.image} is not to be had as a program")
            elif not service.profiles or self._profiles.intersection(service.profiles):
                yield service

    def _mapping(self, service: Service) -> HostMapping:
        return HostMapping(self.compose, service, self.addresses, self.folder, ROOT)

    def _ordered(self) -> Iterator[Service]:
        """Yield the services in dependency order."""
        left = {service.name: service for service in self._wanted()}
        done: set[str] = set()
        while left:
            ready = [service for service in left.values() if set(service.depends_on) <= done]
            if not ready:
                raise ValueError(f"these wait for each other, or for one that is not run: {', '.join(left)}")
            for service in ready:
                yield service
                done.add(service.name)
                del left[service.name]

    def _start(self, service: Service, mapping: HostMapping) -> None:
        for name, condition in service.depends_on.items():
            if condition == "service_completed_successfully":
                self.members[name].wait_done(START_S)
            elif condition == "service_healthy":
                self.members[name].wait_well(START_S)
        recipe = self._kitchen.recipe(service, mapping)
        recipe.environment[FOLDER] = str(self.folder)
        if service.name.startswith("lamella-"):
            recipe.environment.update(self._settings)
        own, outside = self.addresses.own[service.name], self.addresses.by_name[service.name]
        if own != outside:
            port = CABLED[service.name]
            self.cables[service.name] = FaultProxy((outside, port), (own, port))
        member = Member(service, recipe, self.folder / "log" / f"{service.name}.log")
        self.members[service.name] = member
        member.start()

    def inside(self, name: str, words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Return a command as it would run in a service's container: its words and environment on this machine."""
        service = self.compose.services[name]
        mapping = self._mapping(service)
        recipe = self._kitchen.recipe(service, mapping)
        return mapping.words(words), recipe.environment

    def state(self) -> dict[str, Any]:
        """Describe what runs where, for programs."""
        return {
            "url": self.url,
            "key_file": str(self.folder / "secrets" / "root_key"),
            "folder": str(self.folder),
            "pid": os.getpid(),
            "services": {
                name: {
                    "address": self.addresses.by_name[name],
                    "own_address": self.addresses.own[name],
                    "pid": member.pid,
                    "starts": member.starts,
                    "log": str(member.log),
                }
                for name, member in self.members.items()
            },
        }

    def write_state(self) -> None:
        """Write the description to ``state.json``."""
        draft = self.folder / f"{STATE}.{os.getpid()}"
        draft.write_text(json.dumps(self.state(), indent=1), "utf-8")
        draft.replace(self.folder / STATE)

    def wait_well(self, name: str, timeout_s: float = START_S) -> float:
        """Return the seconds until a service is healthy, checked again."""
        began = time.monotonic()
        member = self.members[name]
        while not member.check():
            if time.monotonic() - began > timeout_s:
                raise DidNotStart(f"{name} did not become well again:\n{member.tail()}")
            time.sleep(0.05)
        return time.monotonic() - began
