"""Maps names, addresses and paths of containers to those of this machine.

Every service gets a loopback address of its own, so ports stay what they are in docker-compose.yml. Paths that are
mounted become folders below one folder; mounted files are copied there, with the same replacements made in them.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from stack.compose import Compose, Mount, Service

_FIRST_HOST: Final = 11
_TEXTS: Final = frozenset({".conf", ".yml", ".yaml", ".json", ".properties"})


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """``by_name``: the address at which others reach a service; ``own``: where it listens, which differs behind a
    proxy."""

    by_name: dict[str, str]
    own: dict[str, str]
    prefix: str


def addresses(compose: Compose, folder: Path, *, cabled: Iterable[str] = ()) -> Addresses:
    """Return addresses derived from the folder, so that a restarted stack has the same ones."""
    digest = hashlib.sha256(str(folder.resolve()).encode()).digest()
    second, third = 16 + digest[0] % 96, digest[1] & 0xFE
    prefix, behind = f"127.{second}.{third}.", f"127.{second}.{third + 1}."
    fixed = _prefix(compose.subnet)
    hosts: dict[str, str] = {}
    for number, service in enumerate(compose.services.values(), _FIRST_HOST):
        host = str(number) if service.address is None else service.address.removeprefix(fixed)
        hosts[service.name] = host
    between = set(cabled)
    return Addresses(
        by_name={name: prefix + host for name, host in hosts.items()},
        own={name: (behind if name in between else prefix) + host for name, host in hosts.items()},
        prefix=prefix,
    )


def _prefix(subnet: str) -> str:
    address, _, bits = subnet.partition("/")
    if bits != "24":
        raise ValueError(f"{subnet}: only networks of 24 bits are understood here")
    return address.rpartition(".")[0] + "."


class HostMapping:
    """The mapping of one service: :meth:`text` applies it to the service's command, variables and files."""

    def __init__(self, compose: Compose, service: Service, found: Addresses, folder: Path, root: Path) -> None:
        self._service = service
        self._folder = folder
        self._root = root
        self._addresses = found
        self._fixed = _prefix(compose.subnet)
        self.mounts = {mount.target: self._source(mount) for mount in service.mounts}
        names = sorted(compose.services, key=len, reverse=True)
        self._name = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, names))})(?=:\d)")
        targets = sorted(self.mounts, key=len, reverse=True)
        self._target = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, targets))})(?![\w-])") if targets else None

    def _source(self, mount: Mount) -> Path:
        match mount.kind:
            case "bind":
                return self._folder / "files" / self._service.name / mount.target.strip("/").replace("/", "-")
            case "secret":
                return self._folder / "secrets" / Path(mount.source).name
            case "volume":
                return self._folder / "data" / mount.source
            case "tmpfs":
                return self._folder / "tmp" / self._service.name / mount.target.strip("/").replace("/", "-")

    @property
    def temporary(self) -> Path:
        """The service's /tmp."""
        return self.mounts.get("/tmp", self._folder / "tmp" / self._service.name)  # noqa: S108  # the container's

    def make(self) -> None:
        """Create folders and copies of mounted files."""
        self.temporary.mkdir(parents=True, exist_ok=True)
        for mount in self._service.mounts:
            host_path = self.mounts[mount.target]
            if mount.kind in ("volume", "tmpfs"):
                host_path.mkdir(parents=True, exist_ok=True)
            elif mount.kind == "bind":
                self.copy(self._root / mount.source, host_path)

    def add(self, target: str, source: Path) -> None:
        """Map a path inside the image to a local one."""
        self.mounts[target] = source
        targets = sorted(self.mounts, key=len, reverse=True)
        self._target = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, targets))})(?![\w-])")

    def copy(self, source: Path, host_path: Path) -> None:
        """Copy a file or folder, with the mapping applied to text files."""
        if source.is_dir():
            shutil.rmtree(host_path, ignore_errors=True)
            host_path.mkdir(parents=True)
            for each in source.iterdir():
                self.copy(each, host_path / each.name)
        elif source.suffix in _TEXTS:
            host_path.parent.mkdir(parents=True, exist_ok=True)
            host_path.write_text(self.text(source.read_text("utf-8")), "utf-8")
        else:
            shutil.copy(source, host_path)

    def text(self, text: str) -> str:
        """Return a text with addresses and paths of this machine."""
        if self._target is not None:
            text = self._target.sub(lambda found: str(self.mounts[found[1]]), text)
        text = self._name.sub(lambda found: self._address(found[1]), text)
        own = self._addresses.own[self._service.name]
        text = text.replace("0.0.0.0", own).replace("127.0.0.1", own).replace("localhost", own)  # noqa: S104
        return text.replace(self._fixed, self._addresses.prefix)

    def words(self, words: Iterable[str]) -> list[str]:
        """Return the words of a command, mapped. The word after ``--host`` may be a name without a port."""
        found: list[str] = []
        for word in words:
            is_host = bool(found) and found[-1] == "--host" and word in self._addresses.by_name
            found.append(self._address(word) if is_host else self.text(word))
        return found

    def variables(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of an environment, mapped."""
        return {name: self.text(value) for name, value in variables.items()}

    def _address(self, name: str) -> str:
        return self._addresses.own[name] if name == self._service.name else self._addresses.by_name[name]
