"""Generates the page about the Python client from signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from reference.prose import markdown

_HEAD = """# Python reference

<!-- written by make reference -->

What users import, from the code's own signatures and docstrings. `AsyncLamella` and its tables have the same methods,
awaited. Answers are the types of the [HTTP interface](reference-http-values.md), by the same names, in
`lamella.snapshot.wire`; errors are classes of `lamella.snapshot.errors`, [one for each code](errors.md). Arguments
called `idempotency_key` make a change [safe to repeat](errors.md#idempotency-keys); clients choose one themselves.

In examples, `lake` is a `Lamella`, and `table` is `lake.table("shop.orders")`, which has 15 orders in 4 blocks, with
the columns id, day, country, customer, price, amount and note. `...` stands for text that is not always the same.
"""
#: Modules and the names of each on the page.
PARTS = (
    ("lamella.client", ("Lamella", "AsyncLamella", "col", "call")),
    ("lamella.client.filters.columns", ("Condition", "Term")),
    (
        "lamella.client.http",
        (
            "Table",
            "AsyncTable",
            "AggregateResult",
            "PruneResult",
            "RetryPolicy",
            "SnapshotLease",
            "Jobs",
        ),
    ),
    ("lamella.client.scan", ("Scan", "RowChanges", "AsyncScan", "Fragment")),
    ("lamella.client.join", ("join_keys",)),
    ("lamella.client.jobs.delete", ("DeleteResult",)),
    ("lamella.client.write.upsert", ("UpsertResult",)),
    (
        "lamella.client.spark",
        (
            "attach",
            "Attached",
            "read",
            "write",
            "WriteResult",
            "delete",
            "update",
            "merge",
            "Merge",
            "MergeResult",
            "append_batches",
            "write_stream",
            "build_index",
            "BuildResult",
            "BuildProgress",
        ),
    ),
)
#: Classes that mirror others: their methods are listed without text.
_TWINS = {"AsyncLamella": "Lamella", "AsyncTable": "Table"}


def page() -> str:
    """Return the whole page."""
    return _HEAD + "".join(
        f"\n## {module}\n" + "".join("\n".join(_part(name, getattr(import_module(module), name))) for name in names)
        for module, names in PARTS
    )


def _part(name: str, value: Any) -> Iterator[str]:
    yield f"\n### {name}\n"
    if not inspect.isclass(value):
        yield f"`{name}{_signature(value)}`\n\n{markdown(value.__doc__ or '')}\n"
        return
    yield f"`class {name}{_signature(value.__init__, bound=True)}`\n\n{markdown(value.__doc__ or '')}\n"
    if name in _TWINS:
        own = ", ".join(f"`{each}`" for each, _ in members(value))
        yield f"Methods, as of [{_TWINS[name]}](#{_TWINS[name].lower()}): {own}.\n"
        return
    for each, member in members(value):
        if isinstance(member, property):
            yield f"#### {name}.{each}\n\n`{each}: {_annotation(inspect.signature(member.fget).return_annotation)}`\n"  # type: ignore[arg-type]
            yield markdown(member.fget.__doc__ or "") + "\n"
        else:
            yield f"#### {name}.{each}\n\n`{each}{_signature(member, bound=True)}`\n"
            yield markdown(member.__doc__ or "") + "\n"


def members(kind: type) -> list[tuple[str, Any]]:
    """Return public methods and properties with a docstring, including inherited ones, by name."""
    found = []
    for name in sorted(dir(kind)):
        member = inspect.getattr_static(kind, name)
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        documented = function.fget if isinstance(function, property) else function
        if not name.startswith("_") and callable(documented) and getattr(documented, "__doc__", None):
            found.append((name, function))
    return found


def _signature(function: Any, *, bound: bool = False) -> str:
    """Return a signature as text that does not depend on the version of Python."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1 if bound else 0 :]
    shown: list[str] = []
    kind_before = None
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and kind_before not in (each.KEYWORD_ONLY, each.VAR_POSITIONAL):
            shown.append("*")
        kind_before = each.kind
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        text = stars + each.name
        if each.annotation is not each.empty:
            text += f": {_annotation(each.annotation)}"
        if each.default is not each.empty:
            text += f" = {_default(each.default)}"
        shown.append(text)
    result = signature.return_annotation
    arrow = "" if result is signature.empty or _annotation(result) == "None" else f" -> {_annotation(result)}"
    return f"({', '.join(shown)}){arrow}"


def _annotation(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _default(value: object) -> str:
    return getattr(value, "__qualname__", None) or repr(value)
