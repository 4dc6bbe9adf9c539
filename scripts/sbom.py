"""Write what each image is made of as CycloneDX (`make sbom`): build/sbom-service.json and build/sbom-spark.json.

Packages, versions and hashes are those of the locks, licences those of the packages' metadata. The documents are
checked against the schema of CycloneDX, and the same locks give the same documents.
"""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Final

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from licences import LOCKS, licence_of, pins

ROOT = Path(__file__).resolve().parent.parent
VERSION: Final = SchemaVersion.V1_6


def main(arguments: list[str]) -> int:
    """Write the documents into a folder, build/ unless another is given; returns the exit status."""
    folder = Path(arguments[0]) if arguments else ROOT / "build"
    folder.mkdir(parents=True, exist_ok=True)
    for image, lock in LOCKS.items():
        text = json.dumps(document(lock), indent=1)
        wrong = JsonStrictValidator(VERSION).validate_str(text)
        if wrong is not None:
            print(f"sbom: error: {lock}: {wrong}", file=sys.stderr)
            return 1
        target = folder / f"sbom-{image}.json"
        target.write_text(text + "\n", "utf-8")
        print(f"sbom: wrote {target}", file=sys.stderr)
    return 0


def document(lock: str) -> dict[str, Any]:
    """Return the document of a lock, with only what is installed on the image's platform."""
    program = Path(sysconfig.get_path("scripts")) / "cyclonedx-py"
    words: list[str | Path] = [
        program,
        "requirements",
        ROOT / lock,
        "--pyproject",
        ROOT / "pyproject.toml",
        "--output-reproducible",
    ]
    options = ["--spec-version", "1.6", "--output-format", "JSON", "--mc-type", "application", "--no-validate"]
    done = subprocess.run([*words, *options], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    installed = dict(pins(lock))
    components = [each for each in found["components"] if installed.get(each["name"]) == each["version"]]
    refs = {each["bom-ref"] for each in components} | {found["metadata"]["component"]["bom-ref"]}
    for component in components:
        del component["description"]  # the lines of the lock again
        licence = licence_of(component["name"])
        if licence is not None:
            component["licenses"] = [{"expression": licence, "acknowledgement": "declared"}]
    found["components"] = components
    found["dependencies"] = [each for each in found["dependencies"] if each["ref"] in refs]
    for each in found["dependencies"]:
        if "dependsOn" in each:
            each["dependsOn"] = [ref for ref in each["dependsOn"] if ref in refs]
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
