"""docker-compose.yml as values: what of it a process needs, with variables and anchors put in.

Only what our own file uses is understood; anything else is an error, so that nothing there goes untried unseen.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

#: Features of containers that processes do not have: isolation, published ports, image builds.
_OF_CONTAINERS: Final = frozenset(
    {"build", "cap_drop", "init", "networks", "ports", "read_only", "security_opt", "shm_size", "tmpfs", "user"}
)
_KNOWN: Final = _OF_CONTAINERS | {
    *("command", "depends_on", "entrypoint", "environment", "healthcheck", "image", "profiles", "restart"),
    *("secrets", "stop_grace_period", "stop_signal", "volumes"),
}
_VARIABLE: Final = re.compile(r"\$(?:(\$)|\{([A-Z_]+)(?::-([^}]*))?\})")
_DURATION: Final = re.compile(r"(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?")

Condition = Literal["service_started", "service_healthy", "service_completed_successfully"]


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """``source``: a path of the repository, or the name of a volume; ``target``: the path in the container."""

    source: str
    target: str
    kind: Literal["volume", "bind", "secret", "tmpfs"]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """A command whose exit status says whether a service is healthy."""

    command: tuple[str, ...]
    interval_s: float
    timeout_s: float
    retries: int


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One service. ``command`` and ``entrypoint``: as given; None: the image's own."""

    name: str
    image: str
    target: str | None
    entrypoint: tuple[str, ...] | None
    command: tuple[str, ...]
    environment: dict[str, str]
    mounts: tuple[Mount, ...]
    depends_on: dict[str, Condition]
    health: Health | None
    inherits_health: bool
    profiles: tuple[str, ...]
    is_one_shot: bool
    stop_signal: str
    stop_grace_s: float
    address: str | None

    @property
    def restarts(self) -> bool:
        """Whether the engine restarts it when it ends by itself."""
        return not self.is_one_shot


class Compose(msgspec.Struct, frozen=True, kw_only=True):
    """The compose file. ``secrets``: the files of the repository with the secrets; ``subnet``: of the network."""

    services: dict[str, Service]
    secrets: dict[str, str]
    subnet: str


def read_compose(path: Path, variables: Mapping[str, str] | None = None) -> Compose:
    """Read the file; raises ValueError for unsupported content."""
    given = dict(os.environ if variables is None else variables)
    text = yaml.safe_load(path.read_text("utf-8"))
    document = _interpolated(text, given)
    secrets = {name: str(each["file"]) for name, each in document["secrets"].items()}
    (config,) = document["networks"]["default"]["ipam"]["config"]
    services = {name: _service(name, body, secrets) for name, body in document["services"].items()}
    return Compose(services=services, secrets=secrets, subnet=str(config["subnet"]))


def _service(name: str, body: dict[str, Any], secrets: Mapping[str, str]) -> Service:
    unknown = body.keys() - _KNOWN
    if unknown:
        raise ValueError(f"{name}: {', '.join(sorted(unknown))}: not understood here")
    mounts = [_volume(name, each) for each in body.get("volumes", ())]
    given = body.get("secrets", ())
    mounts += [Mount(source=secrets[each], target=f"/run/secrets/{each}", kind="secret") for each in given]
    given = body.get("tmpfs", ())
    mounts += [Mount(source=each, target=each.partition(":")[0], kind="tmpfs") for each in given]
    restart = body.get("restart", "no")
    check = body.get("healthcheck")
    networks = body.get("networks") or {}
    depends = body.get("depends_on", {})
    entrypoint = body.get("entrypoint")
    return Service(
        name=name,
        image=body["image"],
        target=body["build"]["target"] if "build" in body else None,
        entrypoint=None if entrypoint is None else _words(entrypoint),
        command=_words(body.get("command", ())),
        environment={key: str(value) for key, value in (body.get("environment") or {}).items()},
        mounts=tuple(mounts),
        depends_on={key: value["condition"] for key, value in depends.items()},
        health=None if check is None or check.get("disable") else _health(check),
        inherits_health=check is None,
        profiles=tuple(body.get("profiles", ())),
        is_one_shot=not restart.startswith(("unless-stopped", "always")),
        stop_signal=body.get("stop_signal", "SIGTERM"),
        stop_grace_s=seconds(body.get("stop_grace_period", "10s")),
        address=(networks.get("default") or {}).get("ipv4_address"),
    )


def _volume(name: str, text: str) -> Mount:
    source, target, *mode = text.split(":")
    if mode not in ([], ["ro"]):
        raise ValueError(f"{name}: {text}: not understood here")
    return Mount(source=source, target=target, kind="bind" if source.startswith(".") else "volume")


def _health(check: dict[str, Any]) -> Health:
    kind, *words = check["test"]
    if kind not in ("CMD", "CMD-SHELL"):
        raise ValueError(f"health check {kind}: not understood here")
    return Health(
        command=tuple(words) if kind == "CMD" else ("/bin/sh", "-c", *words),
        interval_s=seconds(check.get("interval", "30s")),
        timeout_s=seconds(check.get("timeout", "30s")),
        retries=int(check.get("retries", 3)),
    )


def _words(given: Any) -> tuple[str, ...]:
    return tuple(shlex.split(given)) if isinstance(given, str) else tuple(str(word) for word in given)


def seconds(text: str) -> float:
    """Return a duration of the file, such as ``1m30s``, in seconds."""
    found = _DURATION.fullmatch(text)
    if not found or not text:
        raise ValueError(f"{text!r} is no duration that is understood here")
    minutes, whole, thousandths = (int(part or 0) for part in found.groups())
    return minutes * 60 + whole + thousandths / 1000


def _interpolated(node: Any, variables: Mapping[str, str]) -> Any:
    """Substitute variables in values, after anchors, as compose does."""
    if isinstance(node, dict):
        return {key: _interpolated(value, variables) for key, value in node.items()}
    if isinstance(node, list):
        return [_interpolated(each, variables) for each in node]
    if not isinstance(node, str):
        return node

    def put(found: re.Match[str]) -> str:
        dollar, name, default = found.groups()
        if dollar:
            return "$"
        value = variables.get(name) or default
        if value is None:
            raise ValueError(f"{name} is not set, and {found[0]} has no default")
        return value

    return _VARIABLE.sub(put, node)
