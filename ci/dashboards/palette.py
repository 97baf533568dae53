"""Colours, thresholds and value mappings: what a colour means, everywhere the same.

The colours are those of Okabe and Ito, told apart with every common kind of colour blindness. A
colour never stands alone: a text, a value or a legend always says the same.
"""

from collections.abc import Iterable

from ci.chart import Json

BLUE = "#0072B2"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
ORANGE = "#E69F00"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#999999"

COLOURS = frozenset({BLUE, SKY, GREEN, YELLOW, ORANGE, VERMILION, PURPLE, GREY})

#: The values of ``node:npu_heat_state:level``, with what they mean.
HEAT_LEVELS = (
    (0, "unknown", GREY),
    (1, "cool", BLUE),
    (2, "warm", SKY),
    (3, "recovering", YELLOW),
    (4, "hot", ORANGE),
    (5, "critical", VERMILION),
    (6, "emergency", PURPLE),
)


def mapping(values: Iterable[tuple[int, str, str]]) -> list[Json]:
    """Return a mapping of numbers to a text and a colour."""
    options = {
        str(value): {"text": text, "color": colour, "index": index}
        for index, (value, text, colour) in enumerate(values)
    }
    return [{"type": "value", "options": options}]


def heat() -> list[Json]:
    """Return the names of the heat levels."""
    return mapping(HEAT_LEVELS)


def yes_no(*, yes: str = "yes", no: str = "no", bad: bool = True) -> list[Json]:
    """Return names for 1 and 0; ``bad`` says which of them deserves attention."""
    loud, quiet = VERMILION, BLUE
    return mapping([(0, no, quiet if bad else loud), (1, yes, loud if bad else quiet)])


def steps(*limits: tuple[float, str], base: str = BLUE) -> Json:
    """Return thresholds: ``base`` up to the first limit, then the colour of each limit passed."""
    listed: list[Json] = [{"value": None, "color": base}]
    listed += [{"value": value, "color": colour} for value, colour in limits]
    return {"mode": "absolute", "steps": listed}
