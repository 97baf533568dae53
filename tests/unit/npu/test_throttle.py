"""Throttle evidence: what the kernel does to the clock, and what is only configuration."""

from npu.throttle import Throttle, observe


def look(
    throttle: Throttle,
    now: float,
    *,
    clock_hertz: float | None = None,
    busy_ratio: float | None = None,
    mitigating: bool | None = None,
    below_warm: bool = False,
) -> Throttle:
    return observe(
        throttle,
        clock_hertz=clock_hertz,
        busy_ratio=busy_ratio,
        mitigating=mitigating,
        below_warm=below_warm,
        now=now,
    )


def test_a_clock_that_falls_under_load_is_evidence() -> None:
    """1 GHz while cool and 800 MHz when warm and busy is throttling."""
    throttle = look(Throttle(), 0, clock_hertz=1e9, busy_ratio=0.9, below_warm=True)
    throttle = look(throttle, 10, clock_hertz=8e8, busy_ratio=0.9)

    assert throttle.seconds(70) == 60


def test_a_clock_that_was_always_low_is_configuration() -> None:
    """A cap set by an administrator is no heat."""
    throttle = look(Throttle(), 0, clock_hertz=6e8, busy_ratio=0.9, below_warm=True)
    throttle = look(throttle, 10, clock_hertz=6e8, busy_ratio=0.9)

    assert throttle.seconds(100) == 0


def test_a_low_clock_without_load_is_no_evidence() -> None:
    """An idle NPU may run slowly."""
    throttle = look(Throttle(), 0, clock_hertz=1e9, busy_ratio=0.0, below_warm=True)
    throttle = look(throttle, 10, clock_hertz=3e8, busy_ratio=0.1)

    assert throttle.seconds(100) == 0


def test_a_cooling_device_in_force_is_evidence() -> None:
    """Mitigation counts without any clock, from warm on."""
    throttle = look(Throttle(), 0, mitigating=True, below_warm=True)

    assert throttle.seconds(100) == 0
    assert look(throttle, 10, mitigating=True).seconds(100) == 90


def test_one_look_that_fails_neither_starts_nor_ends_evidence() -> None:
    """Unknown changes nothing; a clear "no" ends it."""
    throttle = look(Throttle(), 0, mitigating=True)

    assert look(throttle, 5).seconds(60) == 60
    assert look(throttle, 5, mitigating=False).seconds(60) == 0
