"""Both builds of the SQL parser serve: the one in Python, and the compiled one that another package may install."""

from __future__ import annotations

import importlib
import pkgutil

from lamella.snapshot import expression


def test_no_class_of_ours_inherits_from_the_parser() -> None:
    """Classes of the compiled build cannot be inherited from; instances would fail on every filter."""
    heirs = []
    for module in pkgutil.iter_modules(expression.__path__, expression.__name__ + "."):
        for found in vars(importlib.import_module(module.name)).values():
            if isinstance(found, type) and found.__module__ == module.name:
                heirs += [found for base in found.__mro__[1:] if base.__module__.split(".")[0] == "sqlglot"]
    assert heirs == []
