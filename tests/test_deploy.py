"""The files in which the service is deployed hold together. None of these tests runs a container engine."""

import re
from pathlib import Path
from typing import Any

import yaml

from lamella.client.cli.worker import worker

ROOT = Path(__file__).resolve().parent.parent
SERVE_OPTIONS = {"--warehouse", "--catalog", "--host", "--port", "--workers"}


def compose_services() -> dict[str, dict[str, Any]]:
    """The services of docker-compose.yml by name."""
    services: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    return services


def test_compose_services_name_only_services_and_files_that_exist() -> None:
    """What a service waits for is a service of the file, and what it is built from is in the repository."""
    services = compose_services()
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        assert ("image" in service) != ("build" in service)
        if "build" in service:
            assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_compose_publishes_ports_on_the_loopback_address_only() -> None:
    """Trying Lamella out opens nothing to the network."""
    ports = [port for service in compose_services().values() for port in service.get("ports", ())]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_compose_starts_the_service_with_the_options_that_serve_has() -> None:
    """The command of the service is `lamella serve` with each of its options given once."""
    command = compose_services()["lamella"]["command"]
    assert command[0] == "serve"
    assert sorted(part for part in command if part.startswith("--")) == sorted(SERVE_OPTIONS)


def test_compose_starts_a_worker_that_can_hand_its_jobs_back() -> None:
    """It has options that the worker has, knows the service, and is given more time to stop than its programs."""
    service = compose_services()["worker"]
    options = {option: parameter.default for parameter in worker.params for option in parameter.opts}
    assert service["command"][0] == worker.name == "worker"
    assert {part for part in service["command"] if part.startswith("--")} <= set(options)
    assert service["environment"]["LAMELLA_URL"] == "http://lamella:8181"
    grace_s = options["--grace-s"]
    assert isinstance(grace_s, float)
    assert float(service["stop_grace_period"].removesuffix("s")) > grace_s


def test_the_dockerfile_copies_only_what_exists_and_what_is_sent_to_the_builder() -> None:
    """Each COPY source is in the repository, and the ignore file beside the Dockerfile lets it through."""
    text = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    sources = {source for copy in copies for source in copy.split()}
    ignore = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert sources == {line[1:] for line in ignore if line.startswith("!")}
    assert {source for source in sources if not (ROOT / source).exists()} == set()


def test_the_image_does_not_run_as_root() -> None:
    """The last user set in the Dockerfile is not root."""
    users = re.findall(r"^USER (\S+)$", (ROOT / "deploy" / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert users
    assert users[-1] not in {"root", "0"}
