"""What else the tables hold while a statement is planned."""

from __future__ import annotations

import pytest

from bench.backgrounds import ALL, NAMES, NOTHING

FINISHED = "finished"
IN_LANES = "delayed in lanes, a ticket each"
_EVERY_RUN = (NOTHING, FINISHED, IN_LANES, ALL)
"""One of each sort, and all together. The others, each alone, take ten minutes of a core: `make soak` has them."""

BACKGROUNDS = [pytest.param(name, marks=() if name in _EVERY_RUN else pytest.mark.soak) for name in NAMES]
