"""The option by which a command is told how to reach storage itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec


class _Options(click.ParamType[dict[str, dict[str, Any]]]):
    """fsspec options by scheme, as JSON."""

    name = "JSON"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, dict[str, Any]]:
        """The decoded text; fails with the place where it cannot be read."""
        try:
            return msgspec.json.decode(value, type=dict[str, dict[str, Any]])
        except msgspec.DecodeError as error:
            self.fail(f"not JSON by scheme: {error}", param, ctx)


def store_options(function: Callable[..., None]) -> Callable[..., None]:
    """The option ``--storage-options``."""
    return click.option(
        "--storage-options",
        envvar="LAMELLA_STORE_OPTIONS",
        metavar="JSON",
        type=_Options(),
        default="{}",
        help='fsspec options by scheme, {"s3": {"endpoint_url": ...}}.',
    )(function)
