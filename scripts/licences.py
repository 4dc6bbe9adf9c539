"""List the licences of the packages in the images; refuse those that are not allowed (`make licences`).

Read from the metadata of what is installed here, for every package of requirements-service.lock and
requirements-spark.lock. With `--write` docs/licences.md is written anew; without it, it is compared.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, NamedTuple

from license_expression import ExpressionError, get_spdx_licensing
from packaging.markers import Marker

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "licences.md"
LOCKS: Final = {"service": "requirements-service.lock", "spark": "requirements-spark.lock"}

#: Licences allowed in an image. None of them places obligations on users of Lamella.
ALLOWED: Final = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "HPND", "ISC", "MIT", "MIT-0"),
        *("MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib"),
    }
)
#: Licences allowed for a stated reason.
WITH_REASON: Final[Mapping[str, str]] = {
    "LGPL-3.0-only": "used unmodified, as a library that users of the image can replace",
    "LGPL-3.0-or-later": "used unmodified, as a library that users of the image can replace",
}
#: The platform of the images, whatever this machine is.
IMAGE: Final = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.12.12",
    "python_version": "3.12",
    "sys_platform": "linux",
}

#: Non-SPDX names used in metadata, and their meaning according to the licence files.
_WORDS: Final[Mapping[str, str]] = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache software license 2.0": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "bsd-3-clause license": "BSD-3-Clause",
    "gnu lesser general public license v3 (lgplv3)": "LGPL-3.0-only",
    "http://www.apache.org/licenses/license-2.0": "Apache-2.0",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "new bsd": "BSD-3-Clause",
    "psf": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
    "the mit license (mit)": "MIT",
}
_LICENSING: Final = get_spdx_licensing()
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)(?: *; *(.+?))? *\\?$", re.MULTILINE)


class Package(NamedTuple):
    """A package in an image; ``licence``: an SPDX expression, None when unknown."""

    name: str
    version: str
    licence: str | None
    images: tuple[str, ...]


class NotAllowed(Exception):
    """A package's licence is unknown or not allowed."""


def main(arguments: list[str]) -> int:
    """Write the page, or compare it; returns the exit status."""
    try:
        text = page(packages())
    except NotAllowed as error:
        print(f"licences: error: {error}", file=sys.stderr)
        return 1
    if "--write" in arguments:
        PAGE.write_text(text, "utf-8")
    elif PAGE.read_text("utf-8") != text:
        print("licences: error: docs/licences.md is out of date: run `make licences`", file=sys.stderr)
        return 1
    return 0


def pins(lock: str) -> Iterator[tuple[str, str]]:
    """Yield names and versions in a lock for an image."""
    for name, version, marker in _PIN.findall((ROOT / lock).read_text("utf-8")):
        if not marker or Marker(marker).evaluate(IMAGE):
            yield name, version


def packages() -> list[Package]:
    """Return the packages of the images, by name."""
    found: dict[str, Package] = {}
    for image, lock in LOCKS.items():
        for name, version in pins(lock):
            images = (*found[name].images, image) if name in found else (image,)
            found[name] = Package(name, version, licence_of(name), images)
    return [found[name] for name in sorted(found)]


def licence_of(name: str) -> str | None:
    """Return the licence of an installed package as an SPDX expression; None when it is missing or unknown."""
    try:
        installed = distribution(name)
    except PackageNotFoundError:
        return None
    for text in _licence_texts(installed):
        expression = _WORDS.get(text.strip().lower(), text.strip())
        try:
            parsed = _LICENSING.parse(expression, validate=True)
        except ExpressionError:
            continue
        if parsed is not None:
            return str(parsed)
    return None


def _licence_texts(installed: Distribution) -> Iterator[str]:
    """Yield licence texts in metadata: PEP 639, the old field when it is short, classifiers."""
    metadata = installed.metadata
    yield from metadata.get_all("License-Expression") or ()
    yield from (text for text in metadata.get_all("License") or () if "\n" not in text)
    classifiers = metadata.get_all("Classifier") or ()
    named = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License :: ")]
    yield from (text for text in named if text != "OSI Approved")


def check(package: Package) -> None:
    """Raise NotAllowed unless one of a package's licence alternatives is allowed in full."""
    if package.licence is None:
        raise NotAllowed(f"{package.name} {package.version}: unknown licence; look at its files, and add to _WORDS")
    allowed = {_LICENSING.parse(key) for key in (*ALLOWED, *WITH_REASON)}
    expression = _LICENSING.parse(package.licence)
    bare = expression.subs({symbol: _LICENSING.TRUE for symbol in expression.symbols if symbol in allowed})
    if bare.simplify() != _LICENSING.TRUE:
        raise NotAllowed(f"{package.name} {package.version}: {package.licence} is not among the allowed licences")


def page(found: list[Package]) -> str:
    """Return docs/licences.md; raises NotAllowed."""
    lines = [
        "# Licences of what the images install",
        "",
        "Written by `make licences` from the metadata of the locked packages. A test compares it, and fails on a",
        "licence that is unknown or not allowed. Lamella itself is under Apache-2.0. Spark's image has OpenJDK too",
        "(GPL-2.0 with Classpath exception), and jars under Apache-2.0. `make sbom` writes the same as CycloneDX.",
        "",
        "| package | version | licence | in |",
        "|---|---|---|---|",
    ]
    for package in found:
        check(package)
        lines.append(f"| {package.name} | {package.version} | {package.licence} | {', '.join(package.images)} |")
    reasons = sorted({(key, why) for key, why in WITH_REASON.items() if any(key in str(p.licence) for p in found)})
    lines += ["", *(f"{key}: {why}." for key, why in reasons), ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
