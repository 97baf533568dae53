"""Rockchip's Python package ``rknn-toolkit-lite2``, for images that have it.

It loads ``/usr/lib/librknnrt.so``, a path built into it, and tells the chip by the device tree,
which container runtimes mask; docs/workloads.md says what it needs.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol

from inference.backends import BackendError, Description, InputError, Session, Tensor

MODULE = "rknnlite.api"


class ToolkitLite:
    """A model file on the package."""

    def __init__(self, model: Path) -> None:
        self._model = model
        try:
            self._api = importlib.import_module(MODULE)
            self._numpy = importlib.import_module("numpy")
        except ImportError as error:
            raise BackendError(f"this image has no rknn-toolkit-lite2: {error}") from error

    def describe(self) -> Description:
        """Tell the name; the package says nothing of operators."""
        return Description(runtime="toolkit-lite2")

    def open(self, core: int | None) -> Session:
        """Load the model on a core; chips with one core take no mask."""
        lite: _RknnLite = self._api.RKNNLite()
        if lite.load_rknn(str(self._model)) != 0:
            raise BackendError(f"{self._model}: not a model that the package can load")
        given = {} if core is None else {"core_mask": 1 << core}
        if lite.init_runtime(**given) != 0 and (not given or lite.init_runtime() != 0):
            raise BackendError("the runtime cannot be started; its own lines say why")
        return _Lite(lite, self._numpy)


class _Array(Protocol):
    shape: tuple[int, ...]

    def astype(self, kind: str) -> "_Array": ...
    def tobytes(self) -> bytes: ...


class _RknnLite(Protocol):
    def load_rknn(self, path: str) -> int: ...
    def init_runtime(self, **options: int) -> int: ...
    def inference(self, *, inputs: Sequence[object]) -> Sequence[_Array] | None: ...
    def release(self) -> None: ...


class _Lite:
    def __init__(self, lite: _RknnLite, numpy: ModuleType) -> None:
        self._lite = lite
        self._numpy = numpy

    def run(self, body: bytes) -> Sequence[Tensor]:
        """Run on one square picture of three channels, which is what the body must be."""
        side = round((len(body) / 3) ** 0.5)
        if not body or side * side * 3 != len(body):
            raise InputError(f"{len(body)} bytes are no square picture of 3 channels, 8 bits each")
        picture = self._numpy.frombuffer(body, dtype="uint8").reshape(1, side, side, 3)
        outputs = self._lite.inference(inputs=[picture])
        if outputs is None:
            raise BackendError("the run failed; the package's own lines say why")
        return tuple(
            Tensor(
                name=f"output{index}",
                shape=tuple(int(one) for one in output.shape),
                data=output.astype("float32").tobytes(),
            )
            for index, output in enumerate(outputs)
        )

    def close(self) -> None:
        self._lite.release()
