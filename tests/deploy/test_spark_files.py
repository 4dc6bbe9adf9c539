"""What Spark's image starts with, and the templates of a job on Kubernetes: they name the same things."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from stack.recipes import image_entrypoint
from stack.tools import ROOT

SPARK = ROOT / "deploy" / "spark"
KUBERNETES = SPARK / "kubernetes"
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")


def fake(folder: Path, name: str) -> Path:
    """A program that prints its words, one a line."""
    program = folder / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', "utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def entrypoint(folder: Path, *words: str, **variables: str) -> list[str]:
    """What the image's entrypoint starts, with programs that print their words in the place of Spark and Java."""
    fake(folder, "spark/bin/spark-submit")
    fake(folder, "java/bin/java")
    given = {
        "PATH": os.defpath,
        "SPARK_HOME": str(folder / "spark"),
        "JAVA_HOME": str(folder / "java"),
        "SPARK_CONF_DIR": "/opt/spark-conf",
        **variables,
    }
    command: list[str | Path] = [SPARK / "entrypoint.sh", *words]
    done = subprocess.run(command, env=given, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_a_driver_is_started_in_its_pod(tmp_path: Path) -> None:
    """In client mode, at the pod's own address, with the jars of the image and the words that Spark gave."""
    words = ["--properties-file", "/opt/spark.properties", "--class", "C", "local:///a b.py", "SELECT 1"]
    found = entrypoint(tmp_path, "driver", *words, SPARK_DRIVER_BIND_ADDRESS="10.0.0.7")
    assert "spark.driver.bindAddress=10.0.0.7" in found
    assert found[found.index("spark.jars=/opt/spark-s3/*.jar") - 1] == "--conf"
    assert found[-len(words) - 2 :] == ["--deploy-mode", "client", *words]


def test_an_executor_is_started_with_all_that_its_driver_says(tmp_path: Path) -> None:
    """Options of Java in their order, also with spaces in them, and what the driver must know it by."""
    found = entrypoint(
        tmp_path,
        "executor",
        SPARK_JAVA_OPT_0="-Dx=a b",
        SPARK_JAVA_OPT_1="-Dy=1",
        SPARK_EXECUTOR_MEMORY="512m",
        SPARK_DRIVER_URL="spark://CoarseGrainedScheduler@driver:7078",
        SPARK_EXECUTOR_ID="3",
        SPARK_EXECUTOR_CORES="2",
        SPARK_APPLICATION_ID="spark-1",
        SPARK_EXECUTOR_POD_IP="10.0.0.8",
        SPARK_RESOURCE_PROFILE_ID="0",
        SPARK_EXECUTOR_POD_NAME="exec-3",
    )
    assert found[:4] == ["-Dx=a b", "-Dy=1", "-Xms512m", "-Xmx512m"]
    assert found[4:6] == ["-cp", f"/opt/spark-conf:{tmp_path}/spark/jars/*"]
    options = dict(zip(found[7::2], found[8::2], strict=True))
    assert options == {
        "--driver-url": "spark://CoarseGrainedScheduler@driver:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.8",
        "--resourceProfileId": "0",
        "--podName": "exec-3",
    }


def test_an_executor_without_a_driver_is_not_started(tmp_path: Path) -> None:
    """A variable that is missing ends it; nothing is made up."""
    with pytest.raises(subprocess.CalledProcessError):
        entrypoint(tmp_path, "executor", SPARK_EXECUTOR_MEMORY="1g")


def test_other_commands_are_run_as_they_are(tmp_path: Path) -> None:
    """So the same image is a master, a worker, or whatever it is told to be."""
    assert entrypoint(tmp_path, "printf", "%s", "a b") == ["a b"]


def test_the_image_has_what_the_templates_name() -> None:
    """The entrypoint, the job's program and the folder of jars are copied to where they are looked for."""
    assert image_entrypoint("spark") == ("/opt/entrypoint.sh",)
    for line in (
        "COPY deploy/spark/entrypoint.sh /opt/entrypoint.sh",
        "COPY deploy/spark/sql.py /opt/spark-jobs/sql.py",
        "COPY --from=jars /jars /opt/spark-s3",
    ):
        assert line in DOCKERFILE
    for path in ("submit.sh", "spark-application.yaml"):
        text = (KUBERNETES / path).read_text("utf-8")
        assert "local:///opt/spark-jobs/sql.py" in text
        # spark-submit would look for them where it runs, and find none
        assert "/opt/spark-s3" not in text
    assert "/opt/spark-s3/*.jar" in (SPARK / "spark-defaults.conf").read_text("utf-8")


def submitted(**variables: str) -> tuple[dict[str, str], list[str]]:
    """The settings and the other words that submit.sh gives to spark-submit."""
    with tempfile.TemporaryDirectory() as folder:
        given = {"PATH": os.defpath, "SUBMIT": str(fake(Path(folder), "spark-submit")), **variables}
        command: list[str | Path] = [KUBERNETES / "submit.sh", "SELECT 1"]
        done = subprocess.run(command, env=given, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        return {}, [done.stderr]
    words = done.stdout.splitlines()
    settings = {}
    rest = []
    while words:
        word = words.pop(0)
        if word == "--conf":
            name, _, value = words.pop(0).partition("=")
            settings[name] = value
        else:
            rest.append(word)
    return settings, rest


def test_both_templates_of_a_job_say_the_same() -> None:
    """By spark-submit and by the operator: the same image, secrets, variables and settings."""
    settings, rest = submitted(API="https://api:6443", IMAGE="registry.example.com/lamella-spark:0.1.0")
    assert rest[:2] == ["--master", "k8s://https://api:6443"]
    assert rest[-2:] == ["local:///opt/spark-jobs/sql.py", "SELECT 1"]
    application: dict[str, Any] = yaml.safe_load((KUBERNETES / "spark-application.yaml").read_text("utf-8"))
    spec = application["spec"]
    assert spec["image"] == settings["spark.kubernetes.container.image"]
    assert spec["sparkConf"].items() <= settings.items()
    variables = {each["name"]: each["value"] for each in spec["driver"]["env"]}
    assert variables == {
        name.removeprefix("spark.kubernetes.driverEnv."): value
        for name, value in settings.items()
        if name.startswith("spark.kubernetes.driverEnv.")
    }
    for part in ("driver", "executor"):
        (secret,) = spec[part]["secrets"]
        assert settings[f"spark.kubernetes.{part}.secrets.{secret['name']}"] == secret["path"]
    account = "spark.kubernetes.authenticate.driver.serviceAccountName"
    assert spec["driver"]["serviceAccount"] == settings[account]
    (version,) = re.findall(r"(?m)^pyspark==(\S+)", (ROOT / "requirements-spark.lock").read_text("utf-8"))
    assert spec["sparkVersion"] == version


def test_a_job_says_what_it_lacks() -> None:
    """Without an image or an API server nothing is sent."""
    for variables in ({"API": "https://api:6443"}, {"IMAGE": "i"}):
        settings, (message,) = submitted(**variables)
        assert settings == {}
        assert ("IMAGE" if "API" in variables else "API") in message


def test_a_driver_may_do_what_it_needs_and_nothing_outside_of_its_namespace() -> None:
    """Valid for Kubernetes; a Role, not a ClusterRole, for the account that both templates name."""
    documents = list(yaml.safe_load_all((KUBERNETES / "rbac.yaml").read_text("utf-8")))
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    assert [document["kind"] for document in documents] == ["ServiceAccount", "Role", "RoleBinding"]
    assert "secrets" not in documents[1]["rules"][0]["resources"]
