"""From the user's keys to the configuration of a run; :mod:`recbole_hyper.config.binding` is the way on one page."""

from recbole_hyper.config.binding import Config
from recbole_hyper.errors import ConfigError

__all__ = ["Config", "ConfigError"]
