"""What a release changes in the sources: the version wherever it stands, and the changelog."""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

_IMAGES: Final = r"lamella(?:-spark)?:{v}\b"
_MODULE: Final = r"^  <version>{v}</version>$"
#: Every text that names the version, by file: each expression must be found, or the release stops.
POSITIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "pyproject.toml": (r'^version = "{v}"$',),
    "deploy/Dockerfile": (_IMAGES, r'image\.version="{v}"'),
    "deploy/helm/lamella/Chart.yaml": (r"^version: {v}$", r'^appVersion: "{v}"$'),
    "deploy/spark/kubernetes/spark-application.yaml": (_IMAGES,),
    "deploy/spark/kubernetes/submit.sh": (_IMAGES,),
    "deploy/spark/pom.xml": (_MODULE,),
    "docker-compose.yml": (_IMAGES,),
    "docs/operations.md": (r"by Lamella {v}$",),
    "docs/stability.md": (r"^The version is {v},",),
    "scripts/rck/pom.xml": (_MODULE,),
    "tests/deploy/test_spark_files.py": (_IMAGES,),
}
_UNRELEASED: Final = "## [Unreleased]"


class Refused(Exception):
    """The release cannot be made; the message says why."""


def project(root: Path) -> dict[str, str]:
    """Return ``version`` of pyproject.toml, and the lines of ``[tool.lamella.home]``."""
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    return {"version": settings["project"]["version"], **settings["tool"]["lamella"]["home"]}


def check_version(version: str, before: str) -> None:
    """Raise Refused unless ``version`` is of the form 1.2.3 or 1.2.3rc1, and newer than ``before``."""
    try:
        is_newer = Version(version) > Version(before)
    except InvalidVersion as error:
        raise Refused(f"{version}: not a version") from error
    if not re.fullmatch(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", version):
        raise Refused(f"{version}: a version has three numbers, such as 1.2.3 or 1.2.3rc1")
    if not is_newer:
        raise Refused(f"{version} is not newer than {before}")


def set_version(root: Path, before: str, version: str) -> None:
    """Write ``version`` over ``before`` in every position.

    Raises:
        Refused: an expression of POSITIONS is not found; nothing is written then.
    """
    texts = {}
    for path, forms in POSITIONS.items():
        text = (root / path).read_text("utf-8")
        for form in forms:
            found = re.compile(form.replace("{v}", re.escape(before)), re.MULTILINE)
            text, count = found.subn(lambda match: match.group().replace(before, version), text)
            if not count:
                raise Refused(f"{path} does not name the version {before} as {form}")
        texts[path] = text
    for path, text in texts.items():
        (root / path).write_text(text, "utf-8")


def changelog(text: str, version: str, day: dt.date, home: Mapping[str, str]) -> str:
    """Return the changelog with its unreleased part as the section of ``version``, and the links of both.

    Raises:
        Refused: there is no unreleased part, it is empty, or the version has a section.
    """
    if f"## [{version}]" in text:
        raise Refused(f"CHANGELOG.md has a section {version}")
    before, heading, after = text.partition(f"{_UNRELEASED}\n")
    section = re.split(r"^## \[|^\[[^\]]+\]: ", after, maxsplit=1, flags=re.MULTILINE)[0]
    if not heading or not re.search(r"^- ", section, re.MULTILINE):
        raise Refused(f"CHANGELOG.md has nothing below {_UNRELEASED}")
    made = f"{before}{_UNRELEASED}\n\n## [{version}] - {day.isoformat()}\n{after}"
    if not home["url"]:
        return made
    url = home["url"].rstrip("/")
    changes, tag = (home[form].format(url=url, version=version) for form in ("changes", "tag"))
    body, *links = re.split(r"^(?=\[[^\]]+\]: )", made, flags=re.MULTILINE)
    others = [line for line in links if not line.startswith("[Unreleased]: ")]
    return f"{body.rstrip()}\n\n[Unreleased]: {changes}\n[{version}]: {tag}\n" + "".join(others)
