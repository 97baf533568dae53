"""A publication hands over the newest value."""

import threading

from plugin.publication import Publication


def test_value_is_read_without_waiting() -> None:
    """The newest value, always there."""
    publication = Publication(1)

    publication.publish(2)

    assert publication.value == 2


def test_waiting_ends_with_the_wanted_value() -> None:
    """Values in between may be skipped, the wanted one is not."""
    publication = Publication(0)
    seen: list[int] = []
    waiting = threading.Thread(
        target=lambda: seen.append(publication.wait_for(lambda value: value >= 2))
    )
    waiting.start()

    publication.publish(1)
    publication.publish(2)
    waiting.join(timeout=10)

    assert seen == [2]


def test_wake_lets_the_waiting_look_again() -> None:
    """A condition outside the value is seen after a wake."""
    publication = Publication(0)
    ended = threading.Event()
    seen: list[int] = []
    waiting = threading.Thread(
        target=lambda: seen.append(publication.wait_for(lambda _value: ended.is_set()))
    )
    waiting.start()

    ended.set()
    publication.wake()
    waiting.join(timeout=10)

    assert seen == [0]
