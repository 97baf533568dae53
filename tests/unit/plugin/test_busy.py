"""Full load that nobody accounts for: only what is known counts, and only after a minute."""

from hypothesis import given
from hypothesis import strategies as st

from plugin.busy import EVIDENT_SECONDS, FULL_RATIO, Unaccounted, observe

FULL = 1.0


def test_a_minute_of_full_load_without_a_holder_is_evidence() -> None:
    """One look proves nothing, as the driver's load is that of one second."""
    seen = observe(Unaccounted(), busiest_ratio=FULL, held=False, now=10.0)
    assert not seen.evident(10.0)
    seen = observe(seen, busiest_ratio=0.99, held=False, now=69.9)
    assert not seen.evident(69.9)
    seen = observe(seen, busiest_ratio=FULL, held=False, now=70.0)
    assert seen.evident(70.0)


def test_a_holder_or_an_idle_second_ends_it() -> None:
    """What comes afterwards starts anew."""
    long = Unaccounted(since=0.0, known=True)
    assert observe(long, busiest_ratio=FULL, held=True, now=90.0) == Unaccounted(known=True)
    assert observe(long, busiest_ratio=0.98, held=False, now=90.0) == Unaccounted(known=True)


def test_what_is_not_known_is_said_to_be_not_known() -> None:
    """A driver without a load says nothing; a kubelet that does not answer ends the evidence."""
    assert observe(Unaccounted(), busiest_ratio=None, held=False, now=1.0) == Unaccounted()
    long = Unaccounted(since=0.0, known=True)
    unread = observe(long, busiest_ratio=None, held=False, now=90.0)
    assert unread.evident(90.0)
    assert not unread.known
    assert observe(long, busiest_ratio=FULL, held=None, now=90.0) == Unaccounted()


@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 30.0),
            st.none() | st.floats(0.0, 1.0),
            st.sampled_from([True, False, None]),
        ),
        max_size=30,
    )
)
def test_evidence_is_a_minute_without_a_contradiction(
    looks: list[tuple[float, float | None, bool | None]],
) -> None:
    """Whatever is seen: evidence means that nothing within the last minute spoke against it."""
    now, seen, spoken_against = 0.0, Unaccounted(), 0.0
    for after, ratio, held in looks:
        now += after
        seen = observe(seen, busiest_ratio=ratio, held=held, now=now)
        if held is not False or (ratio is not None and ratio < FULL_RATIO):
            spoken_against = now
        if seen.evident(now):
            assert now - spoken_against >= EVIDENT_SECONDS
