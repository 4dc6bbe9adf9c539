"""What to say when an extra is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

#: Which extra brings a module that another command's own extra does not.
_EXTRAS = {"psycopg": "postgres", "s3fs": "s3", "pyspark": "spark", "py4j": "spark", "httpx2": "aio"}


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Turn a missing third-party module into one sentence that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        top = (error.name or "").partition(".")[0]
        if top in ("", "lamella"):
            raise
        name = _EXTRAS.get(top, extra)
        raise click.ClickException(f"{top} is not installed; pip install 'lamella[{name}]' brings it") from error
