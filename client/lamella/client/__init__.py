"""Public names: the HTTP clients, and columns in filters. The Spark integration and the command line are subpackages.

``from lamella.client import Lamella``. Names are loaded on first use, so importing a subpackage (such as
``lamella.client.spark`` on an executor) does not load the HTTP client. ``__version__`` is that of the distribution.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from lamella.client.filters.columns import call, col
    from lamella.client.http import AsyncLamella, Lamella

__all__ = ["AsyncLamella", "Lamella", "call", "col"]


def __getattr__(name: str) -> object:
    if name in ("call", "col"):
        import lamella.client.filters.columns as columns

        return getattr(columns, name)
    if name in __all__:
        import lamella.client.http as http

        return getattr(http, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("lamella")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
