"""The backend that pretends, and the Python package as far as it can be had without a board."""

import sys
import types
from pathlib import Path

import pytest

from inference.backends import BackendError, InputError, Simulated
from inference.toolkit_lite import ToolkitLite


def test_the_simulated_backend_answers_what_it_got() -> None:
    """Whole floats of the body, after about the time that was said."""
    backend = Simulated(0.001, seed=1)
    session = backend.open(2)
    (output,) = session.run(b"abcdefghij")
    assert (output.shape, output.data) == ((2,), b"abcdefgh")
    assert backend.describe().runtime == "simulated"
    session.close()


class Array:
    """As much of an array as the backend uses."""

    def __init__(self, data: bytes, shape: tuple[int, ...]) -> None:
        self.data = data
        self.shape = shape

    def reshape(self, *shape: int) -> "Array":
        """Return it with another shape."""
        return Array(self.data, shape)

    def astype(self, kind: str) -> "Array":
        """Return it as floats."""
        assert kind == "float32"
        return self

    def tobytes(self) -> bytes:
        """Return its content."""
        return self.data


class Lite:
    """A package that knows one core and one model."""

    masks: "list[int | None]" = []  # noqa: RUF012 - reset by the fixture

    def load_rknn(self, path: str) -> int:
        """Load a file of that name only."""
        return 0 if path.endswith("good.rknn") else -1

    def init_runtime(self, core_mask: int | None = None) -> int:
        """Refuse masks, as on chips with one core."""
        self.masks.append(core_mask)
        return -1 if core_mask is not None else 0

    def inference(self, *, inputs: list[Array]) -> list[Array] | None:
        """Give back what came, nothing for pictures that are black."""
        (picture,) = inputs
        return None if not any(picture.data) else [Array(picture.data, picture.shape)]

    def release(self) -> None:
        """Hold nothing."""


@pytest.fixture
def lite(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image with the package."""
    api = types.ModuleType("rknnlite.api")
    vars(api)["RKNNLite"] = Lite
    numpy = types.ModuleType("numpy")
    vars(numpy)["frombuffer"] = lambda data, dtype: Array(data, (len(data),))
    monkeypatch.setattr(Lite, "masks", [])
    for name, module in (("rknnlite", types.ModuleType("rknnlite")), (api.__name__, api)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "numpy", numpy)


@pytest.mark.usefixtures("lite")
def test_the_package_runs_square_pictures() -> None:
    """A core that the chip does not know is left out; outputs are floats with shapes."""
    session = ToolkitLite(Path("/models/good.rknn")).open(1)
    assert Lite.masks == [2, None]
    (output,) = session.run(bytes(range(1, 13)))
    assert (output.name, output.shape) == ("output0", (1, 2, 2, 3))
    with pytest.raises(InputError, match="no square picture"):
        session.run(b"12345")
    with pytest.raises(BackendError, match="run failed"):
        session.run(bytes(12))
    session.close()


@pytest.mark.usefixtures("lite")
def test_a_model_the_package_refuses() -> None:
    """The file is named."""
    backend = ToolkitLite(Path("/models/bad.rknn"))
    assert backend.describe().runtime == "toolkit-lite2"
    with pytest.raises(BackendError, match=r"/models/bad\.rknn"):
        backend.open(None)
