"""Imports that wait until somebody uses them.

Libraries import parts that this or that caller may need: gRPC its asynchronous half and with it
asyncio, the HTTP server all of OpenSSL, protobuf the Python version of what its extension module
does. In a daemon on a small board that is a fifth of the resident memory, never used. Here such a
module is found as ever and run at the first access to something in it, so everything still works:
a server that is told to speak TLS loads OpenSSL.

Only what is imported whole (``import ssl``) can wait; ``from ssl import …`` is an access.
"""

import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import MappingProxyType, ModuleType
from typing import Protocol

#: Names that one module reads of another while it is imported, with what it gets for them.
Glances = Mapping[str, Mapping[str, object]]

#: What our libraries import and no daemon uses, by module: who reads which names in it for defaults
#: and annotations. Costs, with what each module imports in turn, are resident memory of Python 3.13
#: on amd64.
UNUSED: Mapping[str, Glances] = MappingProxyType(
    {
        # 2.1 MiB: gRPC's extension module and its asynchronous half.
        "asyncio": {},
        "grpc.aio": {},
        # 1.3 MiB: messages in pure Python, for interpreters without protobuf's extension module.
        "google.protobuf.internal.python_message": {},
        # 0.4 MiB of names of characters, for the text of HTTP errors.
        "html": {},
        # 3.6 MiB of OpenSSL. prometheus-client has a server of its own with such parameters.
        "ssl": {
            "prometheus_client.exposition": {
                "PROTOCOL_TLS_CLIENT": 16,
                "PROTOCOL_TLS_SERVER": 17,
                "SSLContext": object,
                "TLSVersion": object,
            },
        },
    }
)


class _RealLoader(Protocol):
    def create_module(self, spec: ModuleSpec) -> ModuleType | None: ...

    def exec_module(self, module: ModuleType) -> None: ...


def install(modules: Mapping[str, Glances] = UNUSED) -> None:
    """Let ``modules`` wait from now on; those already imported stay as they are.

    Hash functions are Python's own from now on: OpenSSL's cost 1.8 MiB for a file name in a cache.
    """
    sys.modules.setdefault("_hashlib", None)  # type: ignore[arg-type]
    sys.meta_path.insert(0, _Finder(modules))


class _Finder:
    """The first in ``sys.meta_path``. Its base class in importlib.abc would cost 3 MiB itself."""

    def __init__(self, modules: Mapping[str, Glances]) -> None:
        self._modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._modules:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._modules[fullname])  # type: ignore[assignment]
        return spec


class _Loader:
    def __init__(self, loader: _RealLoader, glances: Glances) -> None:
        self._loader = loader
        self.glances = glances
        self._lock = threading.RLock()
        self._running = False

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = _Waiting

    def run(self, module: ModuleType) -> None:
        """Run the module's code, once; another thread waits until that has happened."""
        with self._lock:
            if self._running or not isinstance(module, _Waiting):
                return
            self._running = True
            try:
                self._loader.exec_module(module)
            finally:
                self._running = False
            # Who looks for the loader later (resources, tracebacks) wants the real one.
            module.__loader__ = self._loader  # type: ignore[assignment]
            if module.__spec__ is not None:
                module.__spec__.loader = self._loader  # type: ignore[assignment]
            module.__class__ = ModuleType  # type: ignore[assignment]


class _Waiting(ModuleType):
    """A module whose code has not run."""

    def __getattr__(self, name: str) -> object:
        """Run the code for a name that is not there yet, unless importing itself asks for it."""
        loader = self.__dict__["__loader__"]
        if isinstance(loader, _Loader):
            if name.startswith("__") and name != "__all__":
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
            reader = sys._getframe(1)  # noqa: SLF001
            glanced = loader.glances.get(reader.f_globals.get("__name__", ""), {})
            if name in glanced and reader.f_code.co_name == "<module>":
                return glanced[name]
            loader.run(self)
        return object.__getattribute__(self, name)
