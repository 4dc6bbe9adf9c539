"""Check the packages of the images and tests for known vulnerabilities (`make audit`).

pip-audit asks PyPI's JSON API. Where that is not to be had, as behind a mirror that has packages only, nothing was
checked, and this says so by its exit status; `--advisories FOLDER` reads a copy of the PyPA advisory database instead
(github.com/pypa/advisory-database). Exit status: 0 nothing known, 1 weaknesses, 3 nothing could be checked.
"""

import argparse
import json
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from licences import pins

ROOT = Path(__file__).resolve().parent.parent
LOCK: Final = "requirements.lock"
NOT_CHECKED: Final = 3
#: Vulnerabilities that do not affect Lamella, with the reason; review them when one of these packages changes.
ACCEPTED: Final[dict[str, str]] = {}


def main() -> int:
    """Check the locks; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--advisories", type=Path, help="a copy of the PyPA advisory database")
    parser.add_argument("--unless-unreachable", action="store_true", help="exit status 0 when nothing could be checked")
    given = parser.parse_args()
    locked = dict(pins(LOCK))
    if given.advisories is not None:
        found = list(offline(given.advisories, locked))
        print(f"audit: {len(locked)} packages against the advisories in {given.advisories}", file=sys.stderr)
        return print_findings(found)
    # One package shows whether the API is available; querying all would show no more.
    name = "requests"
    if unanswered(pip_audit({name: locked[name]})):
        print(
            "audit: *** NOT CHECKED: PyPI's JSON API, where advisories are, cannot be reached from here",
            file=sys.stderr,
        )
        return 0 if given.unless_unreachable else NOT_CHECKED
    report = pip_audit(locked)
    for left in unanswered(report):
        print(f"audit: *** not checked: {left}", file=sys.stderr)
    status = print_findings([(each["name"], weakness["id"]) for each in report for weakness in each.get("vulns", ())])
    return status or (NOT_CHECKED if unanswered(report) else 0)


def pip_audit(locked: dict[str, str]) -> list[dict[str, Any]]:
    """Return pip-audit's report for each package."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as listing:
        listing.write("".join(f"{name}=={version}\n" for name, version in locked.items()))
        listing.flush()
        program = Path(sysconfig.get_path("scripts")) / "pip-audit"
        words: list[str | Path] = [program, "-r", listing.name, "--no-deps", "--disable-pip", "--format", "json"]
        done = subprocess.run([*words, "--progress-spinner", "off"], check=False, capture_output=True, text=True)
    if not done.stdout.strip():
        return [{"name": name, "skip_reason": done.stderr.strip()[-200:]} for name in locked]
    report: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    return report


def unanswered(report: list[dict[str, Any]]) -> list[str]:
    """Return the packages without any information. pip-audit itself treats them as safe."""
    return [each["name"] for each in report if "skip_reason" in each]


def offline(folder: Path, locked: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield packages with advisories for their version; raises FileNotFoundError when there are no advisories."""
    vulnerabilities = folder / "vulns"
    if not vulnerabilities.is_dir():
        raise FileNotFoundError(f"{vulnerabilities} is not there: {folder} is no copy of the advisory database")
    for name, version in sorted(locked.items()):
        for path in sorted((vulnerabilities / canonicalize_name(name)).glob("*.yaml")):
            advisory = yaml.safe_load(path.read_text("utf-8"))
            if "withdrawn" not in advisory and any(affects(each, version) for each in advisory["affected"]):
                yield name, advisory["id"]


def affects(affected: dict[str, Any], version: str) -> bool:
    """Whether an advisory's entry includes a version, explicitly or by a range (OSV's rules)."""
    if version in affected.get("versions", ()):
        return True
    for found in affected.get("ranges", ()):
        if found["type"] != "ECOSYSTEM":
            continue
        is_in = False
        for event in found["events"]:
            (kind, text), *_ = event.items()
            if kind == "introduced" and (text == "0" or _at_least(version, text)):
                is_in = True
            elif (kind == "fixed" and _at_least(version, text)) or (
                kind == "last_affected" and _at_least(version, text) and version != text
            ):
                is_in = False
        if is_in:
            return True
    return False


def _at_least(version: str, other: str) -> bool:
    try:
        return Version(version) >= Version(other)
    except InvalidVersion:
        return False


def print_findings(found: list[tuple[str, str]]) -> int:
    """Print the findings; returns the exit status."""
    for name, weakness in found:
        reason = ACCEPTED.get(weakness)
        print(f"audit: {name}: {weakness}" + (f" (accepted: {reason})" if reason else ""), file=sys.stderr)
    return 1 if any(weakness not in ACCEPTED for _, weakness in found) else 0


if __name__ == "__main__":
    sys.exit(main())
