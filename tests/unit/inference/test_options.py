"""Workers follow the platform's advice, and no backend takes another's place."""

import pytest

from inference import service
from inference.backends import BackendError


@pytest.mark.parametrize(
    ("hint", "workers", "expected"),
    [
        ("0,1,2", 0, (0, 1, 2)),
        ("2", 0, (2,)),
        ("", 0, (None,)),
        ("0,1,2", 2, (0, 1)),
        ("1", 3, (1, 1, 1)),
        ("", 2, (None, None)),
        ("x,1,99", 0, (1,)),
    ],
)
def test_one_worker_per_advised_core(
    hint: str, workers: int, expected: tuple[int | None, ...]
) -> None:
    """A number of workers takes the cores in turn; what is no core is left out."""
    assert service.cores(hint, workers) == expected


def test_nothing_pretends_unless_it_is_asked_to() -> None:
    """Without a model or a runtime the service does not start, and says what to do."""
    options = service.options()
    with pytest.raises(BackendError, match="--backend simulated"):
        service.choose(options.parse([]))
    given = options.parse(["--model", "/none.rknn", "--library", "/none/librknnrt.so"])
    with pytest.raises(BackendError, match=r"/none/librknnrt\.so"):
        service.choose(given)
    given = options.parse(["--model", "/none.rknn", "--backend", "toolkit-lite2"])
    with pytest.raises(BackendError, match="rknn-toolkit-lite2"):
        service.choose(given)
