"""What we are made of: licences, the bill of materials, and known weaknesses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import audit
import licences
from licences import LOCKS, PAGE, NotAllowed, Package, check, packages, page, pins
from sbom import document, main


def test_every_licence_of_the_images_is_known_allowed_and_listed() -> None:
    """docs/licences.md is what `make licences` writes; a new dependency with another licence stops here."""
    found = packages()
    assert len(found) > 70
    assert page(found) == PAGE.read_text("utf-8")


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("Apache-2.0 AND MIT", True),
        ("MIT OR GPL-3.0-only", True),
        ("GPL-3.0-only", False),
        ("MIT AND AGPL-3.0-only", False),
        ("LicenseRef-Proprietary", False),
        (None, False),
    ],
)
def test_a_licence_counts_with_all_that_it_asks_for(licence: str | None, allowed: bool) -> None:
    """Of licences to choose from one must be allowed, of those that hold together all."""
    package = Package("p", "1", licence, ("service",))
    if allowed:
        check(package)
    else:
        with pytest.raises(NotAllowed, match="p 1"):
            check(package)


def test_a_package_that_says_nothing_has_no_known_licence() -> None:
    """Nothing is taken for granted."""
    assert licences.licence_of("no-such-package-is-installed") is None


@pytest.mark.soak
def test_the_bill_of_materials_is_valid_complete_and_the_same_every_time(tmp_path: Path) -> None:
    """By the schema of CycloneDX: every locked package with its version, its hashes and its licence, and no other."""
    assert main([str(tmp_path)]) == 0
    assert len(list(tmp_path.iterdir())) == len(LOCKS)
    for image, lock in LOCKS.items():
        found = json.loads((tmp_path / f"sbom-{image}.json").read_text("utf-8"))
        assert found == document(lock)
        components = {each["name"]: each for each in found["components"]}
        assert {name: each["version"] for name, each in components.items()} == dict(pins(lock))
        for each in components.values():
            assert each["licenses"][0]["expression"]
            assert each["externalReferences"][0]["hashes"]
        assert found["metadata"]["component"]["name"] == "lamella"
    unknown = '{"bomFormat": "CycloneDX", "specVersion": "1.6", "x": 1}'
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(unknown) is not None


def advisory(folder: Path, name: str, affected: dict[str, Any], **more: Any) -> None:
    """An advisory in a copy of the database."""
    advisories = folder / "vulns" / name
    advisories.mkdir(parents=True, exist_ok=True)
    number = f"PYSEC-2026-{len(list(advisories.iterdir()))}"
    (advisories / f"{number}.yaml").write_text(yaml.safe_dump({"id": number, "affected": [affected], **more}), "utf-8")


def ranges(*events: tuple[str, str]) -> dict[str, Any]:
    """What an advisory says of versions."""
    return {"ranges": [{"type": "ECOSYSTEM", "events": [dict([event]) for event in events]}]}


@pytest.mark.parametrize(
    ("affected", "version", "expected"),
    [
        (ranges(("introduced", "0"), ("fixed", "2.0")), "1.9", True),
        (ranges(("introduced", "0"), ("fixed", "2.0")), "2.0", False),
        (ranges(("introduced", "1.10"), ("fixed", "2.0")), "1.9", False),
        (ranges(("introduced", "1.0"), ("last_affected", "1.5")), "1.5", True),
        (ranges(("introduced", "1.0"), ("last_affected", "1.5")), "1.5.1", False),
        (ranges(("introduced", "1.0"), ("fixed", "1.2"), ("introduced", "1.4")), "1.3", False),
        (ranges(("introduced", "1.0"), ("fixed", "1.2"), ("introduced", "1.4")), "1.4", True),
        ({"versions": ["1.0", "1.1"]}, "1.1", True),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, "1.1", False),
    ],
)
def test_an_advisory_names_the_versions_that_its_ranges_hold(
    tmp_path: Path, affected: dict[str, Any], version: str, expected: bool
) -> None:
    """As versions are ordered, not as texts; between the one that brought a weakness and the one that mended it."""
    advisory(tmp_path, "some-package", affected)
    found = list(audit.offline(tmp_path, {"Some.Package": version}))
    assert found == ([("Some.Package", "PYSEC-2026-0")] if expected else [])


def test_withdrawn_advisories_do_not_count_and_a_wrong_folder_is_an_error(tmp_path: Path) -> None:
    """No advisories is not the same as no weaknesses."""
    with pytest.raises(FileNotFoundError):
        list(audit.offline(tmp_path, {"p": "1"}))
    advisory(tmp_path, "p", ranges(("introduced", "0")), withdrawn="2026-01-01T00:00:00Z")
    assert list(audit.offline(tmp_path, {"p": "1"})) == []


def test_the_audit_fails_on_what_is_known_of_a_locked_package(tmp_path: Path) -> None:
    """Through the command, with an advisory of a version that is locked and one of a version that is not."""
    advisory(tmp_path, "requests", ranges(("introduced", "0"), ("fixed", "1.0")))
    command = [sys.executable, audit.__file__, "--advisories", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    advisory(tmp_path, "requests", ranges(("introduced", "0")))
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "requests: PYSEC-2026-1" in done.stderr


def test_what_could_not_be_checked_is_reported() -> None:
    """pip-audit takes a package for sound that its source of advisories does not answer for; we do not."""
    report: list[dict[str, Any]] = [
        {"name": "a", "version": "1", "vulns": []},
        {"name": "b", "skip_reason": "not found"},
    ]
    assert audit.unanswered(report) == ["b"]
