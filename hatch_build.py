"""Build hook: the wheel, and only the wheel, holds a `lamella/__init__.py`.

On disk `lamella` is a namespace package spread over three roots, so a file there would hide two of them. In a wheel
all three are merged, and Spark's `--py-files` reads it by zipimport, which does not see namespace packages in a zip
file that has no entries for directories. An editable install ("editable" below) must stay without the file.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelInitHook(BuildHookInterface):  # type: ignore[type-arg]  # the parameter is hatchling's own builder config
    """Adds `deploy/wheel_init.py` to a standard wheel as `lamella/__init__.py`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a build; `version` is "standard" for a wheel, "editable" for a link."""
        if version == "standard":
            build_data["force_include"]["deploy/wheel_init.py"] = "lamella/__init__.py"
