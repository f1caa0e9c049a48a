"""Every registered geometry, and a dot product over a temperature."""

import pytest

from recbole_hyper import registry
from recbole_hyper.geometry.base import Geometry
from recbole_hyper.geometry.euclidean import Euclidean


@pytest.fixture(params=[*registry.names("geometry"), "temperature"])
def geometry(request: pytest.FixtureRequest) -> Geometry:
    known = request.param != "temperature"
    return registry.resolve("geometry", request.param)() if known else Euclidean(temperature=0.5)
