"""Build hooks: the page of the package, its addresses, and the wheel's `lamella/__init__.py`.

**The page.** README.md links to other files of the repository. On the page of a package index these links would lead
nowhere, so they are made absolute, with the addresses of `[tool.lamella.home]` in pyproject.toml and the tag of the
version. While there is no home, a link is only its text, and pictures are left out.

**The file.** On disk `lamella` is a namespace package spread over three roots, so a file there would hide two of them.
In a wheel all three are merged, and Spark's `--py-files` reads it by zipimport, which does not see namespace packages
in a zip file that has no entries for directories. An editable install ("editable" below) must stay without the file.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_CODE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


class WheelInitHook(BuildHookInterface):  # type: ignore[type-arg]  # the parameter is hatchling's own builder config
    """Adds `deploy/wheel_init.py` to a standard wheel as `lamella/__init__.py`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a build; `version` is "standard" for a wheel, "editable" for a link."""
        if version == "standard":
            build_data["force_include"]["deploy/wheel_init.py"] = "lamella/__init__.py"


class PageHook(MetadataHookInterface):
    """Sets `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling with the `[project]` table."""
        settings = tomllib.loads((Path(self.root) / "pyproject.toml").read_text("utf-8"))
        home = settings["tool"]["lamella"]["home"]
        text = (Path(self.root) / "README.md").read_text("utf-8")
        page = package_page(text, home, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": page}
        metadata["urls"] = project_urls(home, metadata["version"])


def project_urls(home: Mapping[str, str], version: str) -> dict[str, str]:
    """Return `project.urls`; empty while there is no home."""
    if not home["url"]:
        return {}
    return {
        "Homepage": home["url"],
        "Documentation": address(home, "page", version, "docs/index.md"),
        "Source": home["url"],
        "Changelog": address(home, "page", version, "CHANGELOG.md"),
        "Issues": address(home, "issues", version),
    }


def package_page(text: str, home: Mapping[str, str], version: str) -> str:
    """Return README.md for the page of a package: no relative link or picture is left outside of code."""

    def picture(found: re.Match[str]) -> str:
        words, target = found.groups()
        if is_absolute(target):
            return found.group()
        return f"![{words}]({address(home, 'picture', version, target)})" if home["url"] else ""

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        if is_absolute(target) or target.startswith("#"):
            return found.group()
        return f"[{words}]({address(home, 'page', version, target)})" if home["url"] else words

    # Every second part is a block of code. Readers of the package page have no checkout to install from.
    parts = _CODE.split(text)
    parts[::2] = [_LINK.sub(link, _PICTURE.sub(picture, part)) for part in parts[::2]]
    parts[1::2] = [part.replace("pip install '.[", "pip install 'lamella[") for part in parts[1::2]]
    return re.sub(r"\n{3,}", "\n\n", "".join(parts))


def address(home: Mapping[str, str], kind: str, version: str, path: str = "") -> str:
    """Return an address by its form in `[tool.lamella.home]`."""
    return home[kind].format(url=home["url"].rstrip("/"), version=version, path=path)


def is_absolute(target: str) -> bool:
    """Whether a link names its scheme."""
    return re.match(r"[a-z][a-z0-9+.-]*:", target) is not None
