"""How a rank reaches the others of its stage, and those before and after it."""

from octavo.worker.collective import Alone, Collective
from octavo.worker.links import Links
from octavo.worker.place import Place
from octavo.worker.wiring import Wiring


def collective_of(wiring: Wiring, place: Place) -> Collective:
    """Waits until every rank of the stage is there."""
    if place.layout.tensor == 1:
        return Alone()
    raise NotImplementedError


def links_of(wiring: Wiring, place: Place) -> Links | None:
    """None in a group of one stage."""
    if place.layout.pipeline == 1:
        return None
    raise NotImplementedError
