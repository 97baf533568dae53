"""What runs a model: the contract of all backends, and the one that only pretends.

A backend is chosen when the service starts, once, and said in the log and in ``npu_model_info``:
none falls back to another one, because a service that silently computes on the CPU is slow and
holds an NPU for nothing.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


class BackendError(RuntimeError):
    """The backend cannot be used, or a run failed; the message says why and what to do."""


class InputError(ValueError):
    """The request does not fit the model; the message says what would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An output: 32-bit floats of the machine's byte order, as the model shapes them."""

    name: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator of the model as the runtime ran it: where, and for how long (0: not told)."""

    kind: str
    target: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a backend tells about itself and its model; empty where it does not."""

    runtime: str
    version: str = ""
    quantization: str = ""
    operators: Sequence[Operator] = field(default_factory=tuple)


class Session(Protocol):
    """A loaded model for one thread."""

    def run(self, body: bytes) -> Sequence[Tensor]:
        """Run once; ``body`` is the inputs' bytes one after the other.

        Raises InputError for a body that does not fit, BackendError where the run failed.
        """
        ...

    def close(self) -> None:
        """Give back what the session holds; it is not used afterwards."""
        ...


class Backend(Protocol):
    """Loads a model for as many threads as there are workers."""

    def describe(self) -> Description:
        """Load the model once to learn about it, where the runtime tells; raises BackendError."""
        ...

    def open(self, core: int | None) -> Session:
        """Load the model for a worker on a core, None: any; raises BackendError."""
        ...


class Simulated:
    """Takes the time that a model would take on a core, and answers what it was given.

    ``seconds`` is the mean of a run; runs differ by up to a tenth. The default, 35 ms, is of the
    order that a small object detector with 8-bit weights needs on one core of a current board.
    """

    def __init__(self, seconds: float = 0.035, *, seed: int | None = None) -> None:
        self._seconds = seconds
        self._random = random.Random(seed)  # noqa: S311 - no secret

    def describe(self) -> Description:
        """Say that nothing is computed."""
        return Description(runtime="simulated")

    def open(self, core: int | None) -> Session:
        """Return a session that only waits."""
        del core
        return _Waiting(self._seconds, self._random)


class _Waiting:
    def __init__(self, seconds: float, numbers: random.Random) -> None:
        self._seconds = seconds
        self._random = numbers

    def run(self, body: bytes) -> Sequence[Tensor]:
        time.sleep(self._seconds * self._random.uniform(0.9, 1.1))
        whole = body[: len(body) // 4 * 4]
        return (Tensor(name="echo", shape=(len(whole) // 4,), data=whole),)

    def close(self) -> None:
        """Nothing is held."""
