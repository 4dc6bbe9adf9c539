"""The Helm chart, as real Helm renders it: valid for Kubernetes, safe unless told otherwise, and all described."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from lamella.client.cli.app import cli
from lamella.service.config.settings import Settings
from stack.tools import HELM, built

#: Helm is built from its source: minutes of processor time on a machine that does not have it.
pytestmark = pytest.mark.soak

ROOT = Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "deploy" / "helm" / "lamella"
VALUES = Path(__file__).parent / "values"
CASES = ("small", "full", "bare")
#: The oldest that the chart allows and the newest that is known here.
VERSIONS = ("1.27", kubernetes_validate.latest_version())
#: Kinds of others' operators, of which no schema is at hand.
FOREIGN = {"ServiceMonitor", "PrometheusRule"}
#: How long the end of a service may take after its requests had their time.
CLOSING_S = 15


@pytest.fixture(scope="module")
def helm() -> str:
    """Helm, built from its source when it is not here (minutes, once on a machine)."""
    program = built(HELM)
    if program is None:
        pytest.fail("Helm is missing, and Go, which would build it")
    return program


def run(helm: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What a command of Helm's says."""
    return subprocess.run([helm, *words], check=False, capture_output=True, text=True)


def render(helm: str, case: str, *words: str) -> list[dict[str, Any]]:
    """All that an upgrade to the chart with the values of a case sends to Kubernetes."""
    command = ("template", "my", str(CHART), "--is-upgrade", "--kube-version", "1.30.0", "-f", f"{VALUES / case}.yaml")
    done = run(helm, *command, *words)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def kind(documents: list[dict[str, Any]], name: str, suffix: str = "") -> dict[str, Any]:
    """The one document of a kind whose name ends so."""
    found = [d for d in documents if d["kind"] == name and d["metadata"]["name"].endswith(suffix)]
    assert len(found) >= 1, f"no {name} {suffix}"
    return min(found, key=lambda each: len(each["metadata"]["name"]))


def pods(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The pods of deployments and jobs."""
    for document in documents:
        if document["kind"] in ("Deployment", "Job"):
            yield document["spec"]["template"]["spec"]


def variables(document: dict[str, Any]) -> dict[str, str]:
    """The variables of the one container of a Deployment or Job, but those with values from elsewhere."""
    (container,) = document["spec"]["template"]["spec"]["containers"]
    names = [each["name"] for each in container["env"]]
    assert len(set(names)) == len(names)
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


@pytest.mark.parametrize("case", CASES)
def test_the_chart_passes_helms_own_checks(helm: str, case: str) -> None:
    """No warning with values that ask for little, for everything, and for nothing."""
    done = run(helm, "lint", "--strict", str(CHART), "-f", f"{VALUES / case}.yaml")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_what_is_rendered_is_valid(helm: str, case: str, version: str) -> None:
    """Each document has only what the schema of Kubernetes allows, in the oldest supported release and the newest."""
    documents = render(helm, case)
    checked = [document for document in documents if document["kind"] not in FOREIGN]
    assert len(checked) > 1
    for document in checked:
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_locked_in(helm: str, case: str) -> None:
    """No root, nothing to write to but what is mounted, no capability, no token of Kubernetes."""
    found = list(pods(render(helm, case)))
    assert found
    for pod in found:
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "privileged": False,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]  # noqa: S108  # the container's
            assert container["resources"]["limits"]["memory"]


def test_no_secret_stands_in_a_variable(helm: str) -> None:
    """What is secret is in the Secret and nowhere else; pods name the files that they see it in."""
    values = yaml.safe_load((VALUES / "small.yaml").read_text("utf-8"))
    secrets = [line.strip() for text in values["secrets"].values() for line in text.splitlines() if len(line) > 9]
    assert len(secrets) >= 5
    documents = render(helm, "small")
    elsewhere = yaml.safe_dump_all([document for document in documents if document["kind"] != "Secret"], width=10**9)
    assert [secret for secret in secrets if secret in elsewhere] == []
    assert set(kind(documents, "Secret")["stringData"].values()) == set(values["secrets"].values())
    for pod in pods(documents):
        (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "secrets"]
        named = [each["value"] for each in pod["containers"][0]["env"] if each["name"].endswith("_FILE")]
        assert named
        assert {str(Path(each).parent) for each in named} == {mount["mountPath"]}


@pytest.mark.parametrize("case", CASES)
def test_variables_are_settings_that_there_are(helm: str, case: str) -> None:
    """The service would refuse a mistyped one; here it is found before it is installed."""
    known = {f"LAMELLA_{name.upper()}" for name in Settings.model_fields}
    for document in render(helm, case):
        if document["kind"] in ("Deployment", "Job") and not document["metadata"]["name"].endswith("-worker"):
            (container,) = document["spec"]["template"]["spec"]["containers"]
            names = {each["name"] for each in container["env"] if each["name"].startswith("LAMELLA_")}
            assert {name.removesuffix("_FILE") if name not in known else name for name in names} <= known


@pytest.mark.parametrize("case", CASES)
def test_the_service_has_time_to_drain(helm: str, case: str) -> None:
    """Kubernetes kills it later than it would end by itself; meanwhile its Deployment keeps all replicas."""
    deployment = kind(render(helm, case), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    env = variables(deployment)
    needed_s = float(env["LAMELLA_DRAIN_S"]) + float(env["LAMELLA_SHUTDOWN_GRACE_S"]) + CLOSING_S
    assert pod["terminationGracePeriodSeconds"] > needed_s
    probe = pod["containers"][0]["readinessProbe"]
    assert float(env["LAMELLA_DRAIN_S"]) > probe["periodSeconds"] * probe["failureThreshold"]
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_probes_ask_what_the_service_has(helm: str) -> None:
    """Startup, live and ready by their own paths, on the port that the service listens on."""
    (container,) = kind(render(helm, "small"), "Deployment")["spec"]["template"]["spec"]["containers"]
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/health/startup", "liveness": "/health/live", "readiness": "/health/ready"}
    assert {container[f"{name}Probe"]["httpGet"]["port"] for name in paths} == {"http"}
    assert container["ports"] == [{"name": "http", "containerPort": 8181}]


@pytest.mark.parametrize("case", CASES)
def test_pods_run_commands_that_lamella_has(helm: str, case: str) -> None:
    """The words of each container begin with a command, and its options are options of that command."""
    for pod in pods(render(helm, case)):
        words = list(pod["containers"][0]["args"])
        command: Any = cli
        while words and words[0] in getattr(command, "commands", ()):
            command = command.commands[words.pop(0)]
        assert command is not cli
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word.partition("=")[0] for word in words} <= options


def test_the_worker_hands_jobs_back_before_it_is_killed(helm: str) -> None:
    """Its pod has ten seconds more than its programs, to tell the service; values that say otherwise are refused."""
    pod = kind(render(helm, "full"), "Deployment", "-worker")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 120
    assert "--grace-s=60" in pod["containers"][0]["args"]
    words = ("template", "my", str(CHART), "--kube-version", "1.30.0", "-f", str(VALUES / "full.yaml"))
    assert run(helm, *words, "--set", "worker.terminationGracePeriodSeconds=70").returncode == 0
    done = run(helm, *words, "--set", "worker.terminationGracePeriodSeconds=69")
    assert done.returncode != 0
    assert "handed back" in done.stderr


def test_numbers_of_a_values_file_are_numbers_that_the_service_reads(helm: str, tmp_path: Path) -> None:
    """Helm holds them as floats; the service gets them with all their digits, however large, and texts as they are."""
    settings = {
        "max_body_bytes": 134_217_728,
        "cache_bytes": 12_345_678_901,
        "job_retry_s": 2.5,
        "drain_s": 12,
        "record_prunes": "off",
        "public_url": 'https://lake.example.com/"x"',
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"settings": settings}), "utf-8")
    env = variables(kind(render(helm, "small", "-f", str(tmp_path / "values.yaml")), "Deployment"))
    given = {name: env[f"LAMELLA_{name.upper()}"] for name in settings}
    assert given == {name: str(value) for name, value in settings.items()}
    with_set = render(helm, "small", "--set", "settings.max_body_bytes=134217728")
    assert variables(kind(with_set, "Deployment"))["LAMELLA_MAX_BODY_BYTES"] == "134217728"


@pytest.mark.parametrize(("size", "volume_bytes"), [("20Gi", 20 << 30), ("1500M", 1_500_000_000), ("0.5Ti", 1 << 39)])
def test_the_cache_stays_within_its_volume(helm: str, size: str, volume_bytes: int) -> None:
    """The service takes less than the volume has, or Kubernetes would evict the pod; a setting may say how much."""
    deployment = kind(render(helm, "small", "--set", f"cacheSize={size}"), "Deployment")
    (volume,) = [each for each in deployment["spec"]["template"]["spec"]["volumes"] if each["name"] == "cache"]
    assert volume["emptyDir"]["sizeLimit"] == size
    assert 0.85 * volume_bytes < int(variables(deployment)["LAMELLA_CACHE_DIR_BYTES"]) < 0.95 * volume_bytes
    said = render(helm, "small", "--set", f"cacheSize={size}", "--set", "settings.cache_dir_bytes=1000000")
    assert variables(kind(said, "Deployment"))["LAMELLA_CACHE_DIR_BYTES"] == "1000000"


def test_two_replicas_stay_apart_and_one_stays_up(helm: str) -> None:
    """Spread over zones and nodes, and at most one of them is evicted at a time."""
    documents = render(helm, "small")
    deployment = kind(documents, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["replicas"] == 2
    spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    budget = kind(documents, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    for selector in (budget["selector"], *(each["labelSelector"] for each in spread), deployment["spec"]["selector"]):
        assert selector["matchLabels"].items() <= labels.items()
    assert kind(documents, "Service")["spec"]["selector"].items() <= labels.items()
    workers = kind(documents, "Deployment", "-worker")["spec"]["template"]
    assert not kind(documents, "Service")["spec"]["selector"].items() <= workers["metadata"]["labels"].items()
    spread = workers["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    for each in spread:
        assert each["labelSelector"]["matchLabels"].items() <= workers["metadata"]["labels"].items()
        assert not each["labelSelector"]["matchLabels"].items() <= labels.items()


def test_an_autoscaled_deployment_says_no_number_itself(helm: str) -> None:
    """Or each upgrade would take the replicas away that the autoscaler added."""
    documents = render(helm, "full")
    assert "replicas" not in kind(documents, "Deployment")["spec"]
    scaler = kind(documents, "HorizontalPodAutoscaler")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 10)
    assert scaler["scaleTargetRef"]["name"] == kind(documents, "Deployment")["metadata"]["name"]


def test_migrations_run_before_an_upgrade(helm: str) -> None:
    """As a hook with the new release's image; it is tried again, and not for ever."""
    job = kind(render(helm, "full"), "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["catalog", "migrate"]
    assert job["spec"]["activeDeadlineSeconds"] == 600


@pytest.mark.parametrize("case", ["small", "full"])
def test_migrations_run_with_what_the_upgrade_brings(helm: str, case: str) -> None:
    """Whatever of the chart's the Job names is a hook before it: a new password, or a new account, is there."""
    documents = render(helm, case)
    job = kind(documents, "Job")
    pod = job["spec"]["template"]["spec"]
    (secret,) = [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each]
    hooks = {
        (each["kind"], each["metadata"]["name"]): each
        for each in documents
        if each["metadata"].get("annotations", {}).get("helm.sh/hook") == "pre-upgrade" and each != job
    }
    wanted = {("ServiceAccount", pod["serviceAccountName"])}
    if case == "small":
        wanted.add(("Secret", secret))
        assert hooks["Secret", secret]["stringData"] == kind(documents, "Secret")["stringData"]
        assert kind(documents, "Secret")["metadata"]["name"] != secret
    else:
        assert secret == "lamella-secrets"
    assert hooks.keys() == wanted
    for hook in hooks.values():
        assert int(hook["metadata"]["annotations"]["helm.sh/hook-weight"]) < 0
    own = render(helm, "small", "--set", "serviceAccount.create=false", "--set", "serviceAccount.name=mine")
    assert kind(own, "Job")["spec"]["template"]["spec"]["serviceAccountName"] == "mine"


def test_the_rules_for_alerts_are_those_of_the_repository(helm: str) -> None:
    """What the chart installs is what deploy/prometheus has."""
    rule = kind(render(helm, "full"), "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8"))
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    monitor = kind(render(helm, "full"), "ServiceMonitor")["spec"]
    service = kind(render(helm, "full"), "Service")["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= service.items()


def test_what_is_scraped_has_the_name_that_the_rules_ask_for(helm: str) -> None:
    """By itself the operator gives the Service's name, and the alerts would see nobody."""
    documents = render(helm, "full")
    (endpoint,) = kind(documents, "ServiceMonitor")["spec"]["endpoints"]
    (job,) = [each["replacement"] for each in endpoint["relabelings"] if each["targetLabel"] == "job"]
    rules = kind(documents, "PrometheusRule")["spec"]["groups"]
    requested = {
        name for group in rules for rule in group["rules"] for name in re.findall(r'job="([^"]+)"', rule["expr"])
    }
    assert requested == {job}
    assert job != kind(documents, "Service")["metadata"]["name"]


def test_metrics_that_are_not_public_are_scraped_with_a_key(helm: str) -> None:
    """The monitor names the Secret that has it."""
    closed = ("--set", "settings.public_metrics=false")
    key = "metrics.serviceMonitor.authorization.credentials"
    named = render(helm, "full", *closed, "--set", f"{key}.name=metrics", "--set", f"{key}.key=token")
    (endpoint,) = kind(named, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "metrics", "key": "token"}}


def test_pods_may_ask_for_the_rights_of_their_account(helm: str) -> None:
    """Clouds hand out keys for the store at link-local addresses, without TLS; nothing else is asked on that port."""
    rules = kind(render(helm, "small"), "NetworkPolicy")["spec"]["egress"]
    (rule,) = [rule for rule in rules if {"protocol": "TCP", "port": 80} in rule["ports"]]
    assert rule["to"] == [{"ipBlock": {"cidr": "169.254.0.0/16"}}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "settings.warehouse"),
        (("--set", "settings.warehouse=s3://b"), "secrets.catalog"),
        (("-f", str(VALUES / "small.yaml"), "--set", "secrets.rootKeySha256="), "secrets.rootKeySha256"),
        (("-f", str(VALUES / "small.yaml"), "--set", "secrets.workerToken="), "secrets.workerToken"),
        (("-f", str(VALUES / "small.yaml"), "--set", "settings.catalog=x"), "settings.catalog"),
        (("-f", str(VALUES / "small.yaml"), "--set", "replicas=3"), "replicas"),
        (("-f", str(VALUES / "small.yaml"), "--set", "image.digest=latest"), "digest"),
        (("-f", str(VALUES / "small.yaml"), "--set", "secrets.catalog=mysql://x"), "catalog"),
        (("-f", str(VALUES / "small.yaml"), "--set", "secrets.extraKeys.token_secret=x"), "secrets.extraKeys"),
        (("-f", str(VALUES / "full.yaml"), "--set", "settings.cache_dir=/x"), "settings.cache_dir"),
        (("-f", str(VALUES / "full.yaml"), "--set", "settings.cache_dir_bytes=21474836480"), "smaller than cacheSize"),
        (("-f", str(VALUES / "full.yaml"), "--set", "settings.public_metrics=false"), "serviceMonitor.authorization"),
    ],
)
def test_values_that_cannot_work_are_refused(helm: str, words: tuple[str, ...], message: str) -> None:
    """Before anything is installed, and by the name of the value."""
    done = run(helm, "template", "my", str(CHART), "--kube-version", "1.30.0", *words)
    assert done.returncode != 0
    assert message in done.stderr


def leaves(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The paths of all values that are no group of others."""
    for name, value in values.items():
        if isinstance(value, dict) and value and above + name not in ("resources", "worker.resources"):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield above + name


def test_every_value_is_described(helm: str) -> None:
    """The table of the chart's README has each value of values.yaml, and no other."""
    assert helm
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    rows = re.findall(r"^\| `([^`]+)` \|", (CHART / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(leaves(values))
    assert len(set(rows)) == len(rows)
