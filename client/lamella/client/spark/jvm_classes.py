"""Java classes of our own in Spark's JVM, compiled there from their sources: so no jar is needed.

What takes a call of the JVM for each step from Python takes one call of such a class, and what Spark asks again and
again need not be asked of Python. The compiler is Janino, with which Spark compiles the code of queries. It knows no
lambdas, and of generics only their names: the sources use raw types. They name only what every supported version of
Spark has.
"""

from __future__ import annotations

from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Final

_PACKAGE: Final = "lamella"


class JvmClasses:
    """An object of each class in one JVM, compiled when it is first used.

    Raises:
        Py4JError: this version of Spark lacks the compiler, or what a class uses.
    """

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway

    @cached_property
    def files(self) -> Any:
        """Lists of files."""
        return _instance(self._gateway, self._files)

    @cached_property
    def scans(self) -> Any:
        """Parquet scans of given files."""
        return _instance(self._gateway, self._compiled("Scans", self._files.getClassLoader()))

    @cached_property
    def proxies(self) -> Any:
        """Objects that stand for proxies."""
        return _instance(self._gateway, self._compiled("Proxies"))

    @cached_property
    def expressions(self) -> Any:
        """Expressions as text."""
        return _instance(self._gateway, self._expressions)

    @cached_property
    def keys(self) -> Any:
        """The constants of an IN, of which join keys are one."""
        return _instance(self._gateway, self._keys)

    @cached_property
    def requests(self) -> Any:
        """What Spark asks a catalog for."""
        return _instance(self._gateway, self._compiled("Requests", self._threads.getClassLoader()))

    @cached_property
    def sessions(self) -> Any:
        """Sessions that Spark makes."""
        return _instance(self._gateway, self._compiled("Sessions"))

    @cached_property
    def subqueries(self) -> Any:
        """Conditions with subqueries in the plan of a running query."""
        return _instance(self._gateway, self._compiled("Subqueries", self._keys.getClassLoader()))

    @cached_property
    def threads(self) -> Any:
        """Threads that call Python, and their connections."""
        return _instance(self._gateway, self._threads)

    @cached_property
    def _expressions(self) -> Any:
        return self._compiled("Expressions")

    @cached_property
    def _files(self) -> Any:
        return self._compiled("Files")

    @cached_property
    def _keys(self) -> Any:
        return self._compiled("Keys", self._expressions.getClassLoader())

    @cached_property
    def _threads(self) -> Any:
        return self._compiled("Threads")

    def _compiled(self, name: str, parent: Any = None) -> Any:
        """Return a ``java.lang.Class``; ``parent``: the loader of classes that it uses, if they are our own."""
        jvm = self._gateway.jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(parent or jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(f"{name}.java", files(__package__).joinpath("java", f"{name}.java").read_text("utf-8"))
        return compiler.getClassLoader().loadClass(f"{_PACKAGE}.{name}")


def _instance(gateway: Any, java_class: Any) -> Any:
    none = gateway.new_array(gateway.jvm.java.lang.Class, 0)
    return java_class.getDeclaredConstructor(none).newInstance(gateway.new_array(gateway.jvm.java.lang.Object, 0))


@cache
def jvm_classes(gateway: Any) -> JvmClasses:
    """Return the classes in the JVM of a py4j gateway; there is one object per gateway."""
    return JvmClasses(gateway)
