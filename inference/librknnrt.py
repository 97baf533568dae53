"""Rockchip's runtime through its C interface (``rknn_api.h`` of librknnrt 1.5 and later).

No package is needed but the library, which the platform brings into the container where the image
has none, and no privilege: the runtime opens the device node that the container was given.
Structures are those of the 64-bit interface; new releases have only added to their ends, and every
query says how much room it offers.
"""

import ctypes
import ctypes.util
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from daemon.logs import fields
from inference import perfdetail
from inference.backends import BackendError, Description, InputError, Operator, Session, Tensor

log = logging.getLogger(__name__)

NAME = "librknnrt.so"
_FOLDERS = ("/usr/lib", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib", "/lib")
_MAX_DIMS, _MAX_NAME, _VERSION_CHARS = 16, 256, 256
_IN_OUT_NUM, _INPUT_ATTR, _OUTPUT_ATTR, _PERF_DETAIL, _SDK_VERSION = 0, 1, 2, 3, 5
_COLLECT_PERFORMANCE = 0x8
_AUTO, _UINT8, _FLOAT32, _NHWC = 0, 3, 0, 1
_TYPES = {0: "float32", 1: "float16", 2: "int8", 3: "uint8", 4: "int16", 10: "int4", 11: "bfloat16"}
_PERF_LIMIT_BYTES = 4 << 20
_ERRORS: Mapping[int, str] = {
    -1: "failed; most often the device node is not in the container or may not be opened",
    -2: "timed out",
    -3: "device unavailable",
    -4: "no memory for it on the NPU",
    -5: "parameter invalid",
    -6: "model invalid: is it a .rknn file for this board's chip?",
    -7: "context invalid",
    -8: "input invalid",
    -9: "output invalid",
    -10: "the device does not match",
    -11: "the model needs another runtime",
    -12: "optimisation levels do not match",
    -13: "the model is for another chip",
}


class _InOutNum(ctypes.Structure):
    _fields_ = (("n_input", ctypes.c_uint32), ("n_output", ctypes.c_uint32))


class _Attr(ctypes.Structure):
    _fields_ = (
        ("index", ctypes.c_uint32),
        ("n_dims", ctypes.c_uint32),
        ("dims", ctypes.c_uint32 * _MAX_DIMS),
        ("name", ctypes.c_char * _MAX_NAME),
        ("n_elems", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("fmt", ctypes.c_int),
        ("type", ctypes.c_int),
        ("qnt_type", ctypes.c_int),
        ("fl", ctypes.c_int8),
        ("zp", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("w_stride", ctypes.c_uint32),
        ("size_with_stride", ctypes.c_uint32),
        ("pass_through", ctypes.c_uint8),
        ("h_stride", ctypes.c_uint32),
    )


class _Input(ctypes.Structure):
    _fields_ = (
        ("index", ctypes.c_uint32),
        ("buf", ctypes.c_void_p),
        ("size", ctypes.c_uint32),
        ("pass_through", ctypes.c_uint8),
        ("type", ctypes.c_int),
        ("fmt", ctypes.c_int),
    )


class _Output(ctypes.Structure):
    _fields_ = (
        ("want_float", ctypes.c_uint8),
        ("is_prealloc", ctypes.c_uint8),
        ("index", ctypes.c_uint32),
        ("buf", ctypes.c_void_p),
        ("size", ctypes.c_uint32),
    )


class _Version(ctypes.Structure):
    _fields_ = (
        ("api", ctypes.c_char * _VERSION_CHARS),
        ("driver", ctypes.c_char * _VERSION_CHARS),
    )


class _PerfDetail(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_uint64))


def find(explicit: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the path of the library, or its bare name for the loader to find.

    Looked for where told, where the platform brings it, and in the usual folders.
    """
    if explicit:
        return explicit
    folders = (environment.get("NPU_LIBRARY_DIR", ""), *_FOLDERS)
    candidates = (Path(folder, NAME) for folder in folders if folder)
    return next((str(path) for path in candidates if path.is_file()), NAME)


class Librknnrt:
    """A model file on the runtime; sessions share its weights where the runtime can do that."""

    def __init__(self, library: str, model: Path) -> None:
        try:
            self._library = ctypes.CDLL(library)
            self._model = model.read_bytes()
        except OSError as error:
            raise BackendError(f"cannot load the runtime or the model: {error}") from error
        self._profiled: Description | None = None
        self._first: _Context | None = None

    def describe(self) -> Description:
        """Run the model once on zeros and tell where its operators ran.

        The runtime collects times only in a context that was opened for it, and is slower there;
        that context is closed again. Raises BackendError where the model cannot be opened at all.
        """
        if self._profiled is None:
            context = _Context.opened(self._library, self._model, flags=_COLLECT_PERFORMANCE)
            try:
                self._profiled = Description(
                    runtime="librknnrt",
                    version=context.version(),
                    quantization=context.quantization(),
                    operators=self._operators(context),
                )
            finally:
                context.close()
        return self._profiled

    def open(self, core: int | None) -> Session:
        """Return a context bound to a core; a chip with one core knows no masks and needs none."""
        if self._first is None:
            self._first = context = _Context.opened(self._library, self._model, flags=0)
        else:
            context = self._first.duplicate() or _Context.opened(
                self._library, self._model, flags=0
            )
        context.bind(core)
        return context

    def _operators(self, context: "_Context") -> Sequence[Operator]:
        try:
            context.run(bytes(context.input_bytes))
            return perfdetail.operators(context.performance())
        except BackendError as error:
            log.warning("the runtime does not tell where operators run", extra=fields(error=error))
            return ()


class _Context:
    def __init__(self, library: ctypes.CDLL, model: bytes, handle: ctypes.c_uint64) -> None:
        self._library = library
        self._model = model
        self._handle = handle
        self._lock = threading.Lock()
        number = _InOutNum()
        self._query(_IN_OUT_NUM, number)
        self._inputs = [self._attr(_INPUT_ATTR, index) for index in range(number.n_input)]
        self._outputs = [self._attr(_OUTPUT_ATTR, index) for index in range(number.n_output)]
        #: Every input is given as bytes, one per element; the runtime converts to what it needs.
        self._sizes = [int(attr.n_elems) for attr in self._inputs]

    @classmethod
    def opened(cls, library: ctypes.CDLL, model: bytes, *, flags: int) -> "_Context":
        handle = ctypes.c_uint64()
        status = library.rknn_init(
            ctypes.byref(handle), model, ctypes.c_uint32(len(model)), ctypes.c_uint32(flags), None
        )
        _check("rknn_init", status)
        return cls(library, model, handle)

    def duplicate(self) -> "_Context | None":
        """Return a context on the same weights, None where the runtime cannot share them."""
        if not hasattr(self._library, "rknn_dup_context"):
            return None
        handle = ctypes.c_uint64()
        status = self._library.rknn_dup_context(ctypes.byref(self._handle), ctypes.byref(handle))
        return _Context(self._library, self._model, handle) if status == 0 else None

    def bind(self, core: int | None) -> None:
        mask = _AUTO if core is None else 1 << core
        status = self._library.rknn_set_core_mask(self._handle, ctypes.c_int(mask))
        if status != 0:
            log.info("no core is chosen", extra=fields(core=core, status=status))

    @property
    def input_bytes(self) -> int:
        return sum(self._sizes)

    def run(self, body: bytes) -> Sequence[Tensor]:
        if len(body) != self.input_bytes:
            shapes = ", ".join(f"{_name(attr)} {list(_shape(attr))}" for attr in self._inputs)
            raise InputError(
                f"{len(body)} bytes, the model takes {self.input_bytes}: {shapes}, 8 bits each"
            )
        with self._lock:
            buffer = ctypes.create_string_buffer(body, len(body))
            _check("rknn_inputs_set", self._set_inputs(buffer))
            _check("rknn_run", self._library.rknn_run(self._handle, None))
            return self._take_outputs()

    def _set_inputs(self, buffer: "ctypes.Array[ctypes.c_char]") -> int:
        inputs = (_Input * len(self._sizes))()
        offset = 0
        for index, size in enumerate(self._sizes):
            inputs[index] = _Input(
                index=index,
                buf=ctypes.addressof(buffer) + offset,
                size=size,
                pass_through=0,
                type=_UINT8,
                fmt=_NHWC,
            )
            offset += size
        count = ctypes.c_uint32(len(self._sizes))
        return int(self._library.rknn_inputs_set(self._handle, count, inputs))

    def _take_outputs(self) -> Sequence[Tensor]:
        outputs = (_Output * len(self._outputs))()
        for index in range(len(self._outputs)):
            outputs[index] = _Output(want_float=1, is_prealloc=0, index=index)
        count = ctypes.c_uint32(len(self._outputs))
        status = self._library.rknn_outputs_get(self._handle, count, outputs, None)
        _check("rknn_outputs_get", status)
        try:
            return tuple(
                Tensor(
                    name=_name(attr), shape=_shape(attr), data=ctypes.string_at(one.buf, one.size)
                )
                for attr, one in zip(self._outputs, outputs, strict=True)
            )
        finally:
            self._library.rknn_outputs_release(self._handle, count, outputs)

    def performance(self) -> str:
        detail = _PerfDetail()
        self._query(_PERF_DETAIL, detail)
        if not detail.data:
            return ""
        length = min(int(detail.length), _PERF_LIMIT_BYTES)
        return ctypes.string_at(detail.data, length).decode(errors="replace")

    def version(self) -> str:
        version = _Version()
        self._query(_SDK_VERSION, version)
        return bytes(version.api).decode(errors="replace")

    def quantization(self) -> str:
        """Return the type of the first input as the model has it."""
        return _TYPES.get(int(self._inputs[0].type), "") if self._inputs else ""

    def close(self) -> None:
        with self._lock:
            self._library.rknn_destroy(self._handle)

    def _attr(self, command: int, index: int) -> _Attr:
        attr = _Attr(index=index)
        self._query(command, attr)
        return attr

    def _query(self, command: int, into: ctypes.Structure) -> None:
        size = ctypes.c_uint32(ctypes.sizeof(into))
        status = self._library.rknn_query(
            self._handle, ctypes.c_int(command), ctypes.byref(into), size
        )
        _check(f"rknn_query {command}", status)


def _name(attr: _Attr) -> str:
    return bytes(attr.name).decode(errors="replace")


def _shape(attr: _Attr) -> tuple[int, ...]:
    return tuple(attr.dims[: min(int(attr.n_dims), _MAX_DIMS)])


def _check(call: str, status: int) -> None:
    if status < 0:
        raise BackendError(f"{call}: {status} ({_ERRORS.get(status, 'unknown to this program')})")
