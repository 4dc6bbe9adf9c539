"""What stands for an image on this machine: the program behind its entrypoint, and what it does before that.

The images of this repository are ``deploy/Dockerfile``, whose ENTRYPOINT and HEALTHCHECK are read from there.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from stack.compose import Health, Service, seconds
from stack.mapping import HostMapping
from stack.tools import ROOT, TOOLS, VERSITYGW, MissingTool, built, debian, printed, say, spark_jars

#: PostgreSQL refuses to run as root; it then runs as the first of these users that exists.
_USERS: Final = ("postgres", "nobody")
#: Not available as a program from a package registry.
NOT_RUN: Final = frozenset({"grafana/grafana"})


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a service. ``user``: another user than the current one."""

    command: list[str]
    environment: dict[str, str]
    health: Health | None
    user: str | None = None
    #: Temporary files to delete with the data.
    leftovers: tuple[Path, ...] = ()


class Kitchen:
    """``with_moto``: use a Python S3 server instead of the image's, which is then not built."""

    def __init__(self, *, with_moto: bool) -> None:
        self._with_moto = with_moto

    def recipe(self, service: Service, mapping: HostMapping) -> Recipe:
        """Return how to run a service; raises MissingTool, ValueError."""
        mapping.make()
        words = [*(service.entrypoint or ()), *service.command]
        environment = {
            "PATH": os.pathsep.join([sysconfig.get_path("scripts"), str(TOOLS), os.defpath, "/usr/sbin"]),
            "HOME": str(mapping.temporary),
            "TMPDIR": str(mapping.temporary),
            "LANG": "C.UTF-8",
            **mapping.variables(service.environment),
        }
        found = Recipe(command=mapping.words(words), environment=environment, health=self._health(service, mapping))
        match service.image.partition(":")[0]:
            case "lamella" | "lamella-spark" as image:
                return self._ours(image, service, mapping, found)
            case "nginx":
                return self._nginx(service, mapping, found)
            case "postgres":
                return self._postgres(mapping, found)
            case "versity/versitygw":
                return self._store(mapping, found)
            case "prom/prometheus":
                return _with_path(found, debian("prometheus", "prometheus"))
            case other:
                raise ValueError(f"{service.name}: nothing here stands for the image {other}")

    def _health(self, service: Service, mapping: HostMapping) -> Health | None:
        health = image_health(str(service.target)) if service.inherits_health and service.target else service.health
        return None if health is None else msgspec.structs.replace(health, command=tuple(mapping.words(health.command)))

    def _ours(self, image: str, service: Service, mapping: HostMapping, found: Recipe) -> Recipe:
        entrypoint = () if service.entrypoint is not None else image_entrypoint(str(service.target))
        more = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        if image == "lamella-spark":
            home = Path(sysconfig.get_path("purelib")) / "pyspark"
            more |= {"SPARK_HOME": str(home), "JAVA_HOME": str(printed("java_home.py"))}
            mapping.add("/opt/spark-s3", spark_jars())
            mapping.add("/opt/entrypoint.sh", ROOT / "deploy" / "spark" / "entrypoint.sh")
            mapping.add("/opt/spark-jobs", ROOT / "deploy" / "spark")
            more["SPARK_CONF_DIR"] = str(mapping.temporary / "conf")
            mapping.copy(
                ROOT / "deploy" / "spark" / "spark-defaults.conf", mapping.temporary / "conf" / "spark-defaults.conf"
            )
            more["PYSPARK_PYTHON"] = sys.executable
            # In a container its name resolves to its address; on this machine Spark would resolve the host's name.
            more["SPARK_LOCAL_IP"] = mapping.text("0.0.0.0")  # noqa: S104  # stands for its own address
        return msgspec.structs.replace(
            found, command=[*mapping.words(entrypoint), *found.command], environment=found.environment | more
        )

    def _nginx(self, service: Service, mapping: HostMapping, found: Recipe) -> Recipe:
        program = debian("nginx", "nginx-light")
        # A container has one address, which nginx uses to connect; here it must be configured.
        (folder,) = [mapping.mounts[mount.target] for mount in service.mounts if mount.kind == "bind"]
        conf = folder / "nginx.conf"
        text = conf.read_text("utf-8")
        conf.write_text(text.replace("http {\n", f"http {{\n    proxy_bind {mapping.text(str(service.address))};\n", 1))
        if os.geteuid() == 0:
            # As root nginx gives its folders and workers to another user; in a container it never runs as root.
            conf.write_text("user root;\n" + conf.read_text("utf-8"), "utf-8")
        return _with_path(found, program)

    def _store(self, mapping: HostMapping, found: Recipe) -> Recipe:
        program = None if self._with_moto else built(VERSITYGW)
        if program is not None:
            return _with_path(found, program)
        if not self._with_moto:
            say("*** versitygw could not be built (it needs Go): moto, which keeps objects in memory, stands in for it")
        own = mapping.text("0.0.0.0")  # noqa: S104  # stands for its own address
        check = f"import socket; socket.create_connection(('{own}', 9000), 4)"
        return msgspec.structs.replace(
            found,
            command=[sys.executable, "-m", "moto.server", "-H", own, "-p", "9000"],
            health=Health(command=(sys.executable, "-c", check), interval_s=0.2, timeout_s=5, retries=100),
        )

    def _postgres(self, mapping: HostMapping, found: Recipe) -> Recipe:
        """As in the image's entrypoint: create a database cluster if there is none, and a database in it."""
        programs = printed("postgres_bin.py", "--install")
        user = next((name for name in _USERS if _exists(name)), None) if os.geteuid() == 0 else None
        given = found.environment
        data, leftovers = _open_to(user, mapping.mounts["/var/lib/postgresql/data"])
        environment = {**given, "PGDATA": str(data), "TMPDIR": str(data.parent), "HOME": str(data.parent)}
        if not (data / "PG_VERSION").exists():
            password = data.parent / "password"
            password.write_text(Path(given["POSTGRES_PASSWORD_FILE"]).read_text("utf-8"), "utf-8")
            if user is not None:
                shutil.chown(password, user)
            options = ["-U", given["POSTGRES_USER"], "--pwfile", str(password), "--auth-host=scram-sha-256"]
            _run([str(programs / "initdb"), *options, "--auth-local=trust", "-E", "UTF8"], environment, user)
            password.unlink()
            with (data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
                rules.write("host all all all scram-sha-256\n")
            single = [str(programs / "postgres"), "--single", "postgres"]
            _run(single, environment, user, f'CREATE DATABASE "{given["POSTGRES_DB"]}"\n')
        environment["PATH"] = os.pathsep.join([str(programs), environment["PATH"]])
        # The image's socket folder is not writable here; all connections use addresses.
        command = [str(programs / "postgres"), *found.command[1:], "-c", "unix_socket_directories="]
        return msgspec.structs.replace(found, command=command, environment=environment, user=user, leftovers=leftovers)


def _with_path(found: Recipe, program: str) -> Recipe:
    """Return the command with the program's folder first in PATH."""
    path = os.pathsep.join([str(Path(program).parent), found.environment["PATH"]])
    command = found.command
    if not command or command[0].startswith("-"):
        command = [program, *command]
    return msgspec.structs.replace(found, command=command, environment={**found.environment, "PATH": path})


def _open_to(user: str | None, data: Path) -> tuple[Path, tuple[Path, ...]]:
    """Return a folder that a user can enter and own; a link to one elsewhere if the path is closed to the user."""
    if user is None:
        return data, ()
    leftovers = () if not data.is_symlink() else (data.resolve().parent,)
    if not leftovers and not all(parent.stat().st_mode & stat.S_IXOTH for parent in data.resolve().parents):
        other = Path(tempfile.mkdtemp(prefix="lamella-stack-"))
        other.chmod(0o711)
        data.rmdir()
        (other / "data").mkdir(mode=0o711)
        data.symlink_to(other / "data")
        leftovers = (other,)
    folder = data.resolve() / "pgdata"
    folder.mkdir(exist_ok=True)
    for each in (folder, folder.parent):
        shutil.chown(each, user)
    folder.chmod(0o700)
    return folder, leftovers


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _run(command: list[str], environment: dict[str, str], user: str | None, given: str = "") -> None:
    done = subprocess.run(
        command, check=False, env=environment, user=user, cwd="/", input=given, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise MissingTool(f"{command[0]} failed:\n{done.stdout}{done.stderr}")


def _stage(target: str) -> str:
    """Return the lines of one stage of the Dockerfile, after those of the stages it is based on."""
    text = (ROOT / "deploy" / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    stages = re.split(r"(?m)^(?=FROM )", text)
    for stage in stages:
        found = re.match(r"FROM (\S+) AS (\S+)\n", stage)
        if found and found[2] == target:
            return (_stage(found[1]) if any(f" AS {found[1]}\n" in each for each in stages) else "") + stage
    raise ValueError(f"the Dockerfile has no stage {target}")


def image_entrypoint(target: str) -> tuple[str, ...]:
    """Return the ENTRYPOINT of one of Lamella's images."""
    found = re.findall(r"(?m)^ENTRYPOINT (\[.*\])$", _stage(target))
    return tuple(json.loads(found[-1])) if found else ()


def image_health(target: str) -> Health | None:
    """Return the HEALTHCHECK of one of Lamella's images."""
    found = re.findall(r"(?m)^HEALTHCHECK (.*?)\s+CMD (\[.*\])$", _stage(target))
    if not found:
        return None
    options = dict(re.findall(r"--([a-z-]+)=(\S+)", found[-1][0]))
    return Health(
        command=tuple(json.loads(found[-1][1])),
        interval_s=seconds(options.get("interval", "30s")),
        timeout_s=seconds(options.get("timeout", "30s")),
        retries=int(options.get("retries", "3")),
    )
