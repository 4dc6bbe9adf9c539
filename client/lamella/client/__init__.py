"""What users import: the HTTP client, the Spark integration and the command line.

``from lamella.client import Lamella``. The names are loaded when they are first used, so that importing a sibling
(``lamella.client.spark`` on an executor, say) costs nothing here.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lamella.client.http import AsyncLamella, Lamella

__all__ = ["AsyncLamella", "Lamella"]


def __getattr__(name: str) -> object:
    if name in __all__:
        import lamella.client.http as http

        return getattr(http, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
