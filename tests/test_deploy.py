"""The files in which the service is deployed hold together. None of these tests runs a container engine."""

import json
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from importlib.resources import files
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from lamella.client.cli.app import cli
from lamella.client.cli.jobs import worker
from lamella.service.config.settings import Settings
from lamella.service.process.lifecycle import CLOSING_S
from lamella.snapshot.tokens import is_key, key_sha256
from make_secrets import make
from stack.compose import Compose, Service, read_compose, seconds
from stack.recipes import image_entrypoint, image_health

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {"service": "requirements-service.lock", "spark": "requirements-spark.lock"}


def compose() -> Compose:
    """docker-compose.yml as `make stack` reads it."""
    return read_compose(ROOT / "docker-compose.yml", {})


def compose_services() -> dict[str, dict[str, Any]]:
    """The services of docker-compose.yml by name, as they stand there."""
    services: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    return services


def ours() -> Iterator[Service]:
    """The services that run the image of the service."""
    return (service for service in compose().services.values() if service.target == "service")


def test_the_compose_file_has_only_what_the_specification_allows() -> None:
    """By the JSON schema of the Compose specification, which the package check-jsonschema carries."""
    schema = json.loads((files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json").read_text())
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    jsonschema.validate(document, schema)
    document["services"]["proxy"]["restrat"] = "always"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)


def test_compose_services_name_only_services_secrets_and_files_that_exist() -> None:
    """What a service waits for and what it is given is in the file; what it is built from is in the repository."""
    found = compose()
    bodies = compose_services()
    made = {path.name for path in (ROOT / "deploy").iterdir()}
    for service in found.services.values():
        assert set(service.depends_on) <= set(found.services)
        if service.target is not None:
            build = bodies[service.name]["build"]
            assert (ROOT / build["context"] / build["dockerfile"]).is_file()
        for mount in service.mounts:
            if mount.kind == "bind":
                assert (ROOT / mount.source).is_dir(), f"{mount.source} is not among {sorted(made)}"


def test_https_takes_no_port_from_the_worker_and_the_health_check() -> None:
    """What docs/deploy.md adds to the compose file is valid, names what is there, and publishes HTTPS."""
    text, _ = re.findall(r"(?s)```yaml\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text("utf-8"))
    added = yaml.safe_load(text)
    schema = json.loads((files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json").read_text())
    jsonschema.validate(added, schema)
    proxy = added["services"]["proxy"]
    (source, target, _), (mount,) = proxy["volumes"][0].split(":"), compose().services["proxy"].mounts[:1]
    assert (ROOT / source).is_file()
    assert (ROOT / mount.source / Path(target).relative_to(mount.target)).is_file()
    conf = (ROOT / source).read_text("utf-8")
    assert {f"/run/secrets/{name}" for name in added["secrets"]} == set(re.findall(r"/run/secrets/\w+", conf))
    servers = {re.findall(r"listen 0\.0\.0\.0:(\d+)", each)[0]: each for each in conf.split("server {")[1:]}
    published = {port.split(":")[1] for port in proxy["ports"]}
    assert published == {"8443", "8081"}
    assert "return 308 https://" in servers["8081"]
    assert servers.keys() - published == {"8080"}
    assert "include /etc/lamella/locations.conf;" in servers["8080"]


def test_the_file_for_one_replica_for_each_table_is_mounted_over_one_that_is_included() -> None:
    """What docs/deploy.md adds to the compose file is valid, and mounts a file over one that nginx includes."""
    _, text = re.findall(r"(?s)```yaml\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text("utf-8"))
    added = yaml.safe_load(text)
    schema = json.loads((files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json").read_text())
    jsonschema.validate(added, schema)
    source, target, _ = added["services"]["proxy"]["volumes"][0].split(":")
    assert (ROOT / source).is_file()
    assert f"include {target};" in (ROOT / "deploy" / "nginx" / "nginx.conf").read_text("utf-8")


def test_addresses_that_are_fixed_are_given_to_nobody_else() -> None:
    """nginx and those it asks have one each, outside of what the engine hands out; only nginx's is trusted."""
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    (net,) = document["networks"]["default"]["ipam"]["config"]
    subnet, handed_out = ip_network(net["subnet"]), ip_network(net["ip_range"])
    services = compose().services
    fixed = {name: ip_address(service.address) for name, service in services.items() if service.address is not None}
    assert len(set(fixed.values())) == len(fixed)
    for address in (*fixed.values(), ip_address(net["gateway"])):
        assert address in subnet
        assert address not in handed_out
    assert ip_address(net["gateway"]) not in fixed.values()
    files = ("upstream.conf", "upstream-by-table.conf")
    upstreams, by_table = (
        re.findall(r"(?m)^ +server ([a-z0-9-]+):\d+", (ROOT / "deploy" / "nginx" / name).read_text("utf-8"))
        for name in files
    )
    assert {"proxy", *upstreams} == set(fixed)
    assert by_table == upstreams
    assert len(list(handed_out.hosts())) > len(services)
    for name in upstreams:
        assert services[name].environment["LAMELLA_TRUSTED_PROXIES"] == services["proxy"].address


def test_spark_can_load_libraries_that_it_unpacks_and_nobody_else_can() -> None:
    """Engines mount tmpfs so that nothing in it is executed; snappy-java and zstd-jni unpack theirs into /tmp."""
    for service in compose().services.values():
        options = [mount.source for mount in service.mounts if mount.kind == "tmpfs"]
        with_exec = [each for each in options if "exec" in each.partition(":")[2].split(",")]
        assert with_exec == (options if service.target == "spark" else [])
        assert options or service.target is None


def test_every_secret_of_the_compose_file_is_made_once(tmp_path: Path) -> None:
    """`make secrets` writes just the files that it mounts, and a second run changes none."""
    folder = tmp_path / "secrets"
    assert sorted(make(folder)) == sorted(Path(path).name for path in compose().secrets.values())
    texts = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    assert make(folder) == []
    assert {path.name: path.read_text("utf-8") for path in folder.iterdir()} == texts
    assert is_key(texts["root_key"])
    assert texts["root_key_sha256"] == key_sha256(texts["root_key"])
    assert texts["catalog_password"] in texts["catalog_url"]
    assert texts["store_password"] in texts["store_credentials"]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_no_secret_stands_in_the_compose_file() -> None:
    """Passwords and keys come as files; git knows none of them."""
    for service in compose_services().values():
        for name in service.get("environment") or {}:
            assert not re.search(r"(PASSWORD|SECRET|TOKEN)(?!.*FILE)", name), name
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert "/deploy/secrets/" in ignored


def test_compose_publishes_ports_on_the_loopback_address_only() -> None:
    """Trying Lamella out opens nothing to the network."""
    ports = [port for service in compose_services().values() for port in service.get("ports", ())]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_every_container_is_locked_in() -> None:
    """Nothing to write to but what is mounted, no capability, and no way to get one."""
    for name, service in compose_services().items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_images_are_pinned() -> None:
    """By a version, never by what happens to be the latest one."""
    for service in compose().services.values():
        tag = service.image.partition(":")[2]
        assert re.search(r"\d", tag), service.image
        assert tag != "latest"


def test_compose_gives_variables_that_are_settings() -> None:
    """The service refuses a mistyped one; here it is found before."""
    known = {f"LAMELLA_{name.upper()}" for name in Settings.model_fields}
    known |= {f"{name}_FILE" for name in known} | {"LAMELLA_URL", "LAMELLA_TOKEN_FILE"}
    for service in ours():
        assert {name for name in service.environment if name.startswith("LAMELLA_")} <= known


def test_compose_runs_commands_that_lamella_has() -> None:
    """The words of each container are a command of `lamella`, and options of it."""
    assert image_entrypoint("service") == ("lamella",)
    commands = [list(service.command) for service in ours() if service.entrypoint is None]
    assert len(commands) == 4
    for words in commands:
        command: Any = cli
        while words and words[0] in getattr(command, "commands", ()):
            command = command.commands[words.pop(0)]
        assert command is not cli
        assert set(words) <= {option for parameter in command.params for option in parameter.opts}


def test_compose_gives_services_the_time_that_they_need_to_stop() -> None:
    """A replica may drain and finish what runs, a worker hand back what it has."""
    services = compose().services
    settings = {name: field.default for name, field in Settings.model_fields.items()}
    needed_s = float(settings["drain_s"]) + float(settings["shutdown_grace_s"]) + CLOSING_S
    for name in ("lamella-1", "lamella-2"):
        assert services[name].stop_grace_s > needed_s
    grace_s = {option: parameter.default for parameter in worker.params for option in parameter.opts}["--grace-s"]
    assert isinstance(grace_s, float)
    assert services["worker"].stop_grace_s > grace_s


def test_replicas_ask_for_keys_and_believe_only_the_proxy() -> None:
    """They differ in nothing; X-Forwarded-For is taken from the one address that nginx has."""
    services = compose().services
    first, second = services["lamella-1"], services["lamella-2"]
    assert (first.environment, first.command, first.health) == (second.environment, second.command, second.health)
    assert first.environment["LAMELLA_AUTH"] == "true"
    assert first.environment["LAMELLA_TRUSTED_PROXIES"] == services["proxy"].address
    assert "LAMELLA_INSECURE" not in first.environment


def test_nginx_takes_a_little_more_than_the_service_does() -> None:
    """So that the service says what is too large, in its own words."""
    text = (ROOT / "deploy" / "nginx" / "locations.conf").read_text("utf-8")
    found = re.search(r"^client_max_body_size (\d+)m;$", text, re.MULTILINE)
    assert found is not None
    max_bytes = Settings.model_fields["max_body_bytes"].default
    assert max_bytes < int(found[1]) << 20 <= max_bytes + (1 << 20)


def test_the_dockerfile_passes_its_linter() -> None:
    """hadolint, which also looks at the shell in it, finds nothing."""
    program = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run([program, ROOT / "deploy" / "Dockerfile"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dockerfile_copies_only_what_exists_and_what_is_sent_to_the_builder() -> None:
    """Each COPY source is in the repository, and the ignore file beside the Dockerfile lets it through."""
    text = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    sources = {source for copy in copies for source in copy.split()}
    ignore = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert sources == {line[1:] for line in ignore if line.startswith("!")}
    assert {source for source in sources if not (ROOT / source).exists()} == set()


@pytest.mark.parametrize("target", ["service", "spark"])
def test_an_image_does_not_run_as_root_and_has_no_build_tools(target: str) -> None:
    """Its last stage sets a user by number, installs no Python package, and copies an environment without pip."""
    text = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    (stage,) = [each for each in re.split(r"(?m)^(?=FROM )", text) if each.startswith(f"FROM base AS {target}\n")]
    assert re.findall(r"^USER (\S+)$", stage, re.MULTILINE) == ["10001"]
    assert "pip" not in stage
    assert f"COPY --from={target}-packages /opt/lamella /opt/lamella" in stage
    assert f"COPY {LOCKS[target]} ./" in text
    assert text.count("python -m venv --without-pip /opt/lamella") == len(LOCKS)


def test_the_base_image_is_pinned_by_its_digest() -> None:
    """The same Dockerfile builds on the same files next year."""
    text = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.12\.\d+-slim-bookworm@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    bases = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE))
    assert bases == {"${PYTHON_IMAGE}", "${MAVEN_IMAGE}", "base"}


def test_the_service_image_looks_after_its_health() -> None:
    """It asks the service whether it is alive, on the port that it exposes."""
    health = image_health("service")
    assert health is not None
    assert "http://127.0.0.1:8181/health/live" in " ".join(health.command)
    assert health.timeout_s < health.interval_s
    assert image_health("spark") is None


@pytest.mark.parametrize(("text", "expected"), [("45s", 45.0), ("1m30s", 90.0), ("2m", 120.0), ("250ms", 0.25)])
def test_durations_are_read_as_compose_writes_them(text: str, expected: float) -> None:
    """Minutes, seconds and milliseconds."""
    assert seconds(text) == expected
