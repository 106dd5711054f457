"""What all tests of the simulation share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The product's log, of thousands of schedules, says nothing that a failing one does not
    print."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
