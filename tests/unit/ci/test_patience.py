"""Time limits stretch by one factor."""

import pytest

from ci.patience import VARIABLE, PatienceError, patient


def test_ordinary_machines_wait_as_long_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable the factor is 1."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert patient(60) == 60


def test_slow_machines_wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The factor need not be whole."""
    monkeypatch.setenv(VARIABLE, "2.5")
    assert patient(60) == 150


@pytest.mark.parametrize("text", ["", "0.5", "-1", "nan", "inf", "much"])
def test_nonsense_names_the_variable(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A factor below 1 or no number at all is refused."""
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(PatienceError, match=VARIABLE):
        patient(60)
