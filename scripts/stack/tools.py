"""The programs of the images, found on this machine or installed: nginx, versitygw, Prometheus and so on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
#: Programs built for this repository.
TOOLS: Final = ROOT / "build" / "tools"
VERSITYGW: Final = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
HELM: Final = "helm.sh/helm/v3/cmd/helm@v3.22.0"
_BUILD_S: Final = 1_800


class MissingTool(Exception):
    """A program is missing and cannot be installed; the message says how to install it."""


def say(message: str) -> None:
    """Print a message to standard error."""
    print(f"stack: {message}", file=sys.stderr, flush=True)


def debian(program: str, package: str) -> str:
    """Return a program on PATH or from Debian's package, which is installed (as root) without starting anything."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin:/sbin")
    if found is not None:
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"installing the Debian package {package}")
        # A package that starts its server would occupy ports of this machine.
        policy = Path("/usr/sbin/policy-rc.d")
        is_ours = not policy.exists()
        if is_ours:
            policy.write_text("#!/bin/sh\nexit 101\n", "utf-8")
            policy.chmod(0o755)
        try:
            for words in (["update"], ["install", "-y", "--no-install-recommends", package]):
                environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
                subprocess.run(["apt-get", "-q", *words], check=False, env=environment, stdout=sys.stderr)
        finally:
            if is_ours:
                policy.unlink()
        found = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    if found is None:
        raise MissingTool(f"{program} is missing: install the Debian package {package} (apt-get install {package})")
    return found


def built(package: str, *, build: bool = True) -> str | None:
    """A program written in Go: on PATH, in build/tools or where Go puts programs; else built there, if it may be.

    None: it is not here and could not be built.
    """
    name = re.sub(r"@.*", "", package).rpartition("/")[2]
    go = shutil.which("go")
    folders = [str(TOOLS), os.environ.get("PATH", "")]
    if go is not None:
        command = [go, "env", "GOPATH"]
        folders.append(f"{subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()}/bin")
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is not None or go is None or not build:
        return found
    say(f"building {package} (minutes, once)")
    done = subprocess.run([go, "install", package], timeout=_BUILD_S, check=False, stdout=sys.stderr)
    return shutil.which(name, path=folders[-1]) if done.returncode == 0 else None


def printed(script: str, *arguments: str) -> Path:
    """Return the path that one of the finders in scripts/ prints."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, *arguments], check=False, stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        raise MissingTool(f"{script} found nothing; see above")
    return Path(done.stdout.strip())


def spark_jars() -> Path:
    """Return the folder of the jars with which Spark reads S3, filled once by Maven."""
    return jars(ROOT / "deploy" / "spark" / "pom.xml", ROOT / "build" / "spark-s3", "hadoop-aws-*.jar")


def jars(pom: Path, folder: Path, known_by: str) -> Path:
    """Return the folder with the artifacts of a ``pom.xml``; Maven fills it once, unless the named file exists."""
    if not any(folder.glob(known_by)):
        maven = shutil.which("mvn")
        if maven is None:
            raise MissingTool(f"mvn is missing: install Maven (apt-get install maven), which fetches the jars of {pom}")
        say(f"fetching the jars of {pom.relative_to(ROOT)} (tens of MB, once)")
        words = [
            *("--batch-mode", "--quiet", "-Dstyle.color=never", "-f", str(pom)),
            *("dependency:copy-dependencies", f"-DoutputDirectory={folder}"),
        ]
        subprocess.run([maven, *words], check=True, stdout=sys.stderr)
    return folder
