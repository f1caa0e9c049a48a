"""From the user's keys to the configuration of a run; start with :mod:`recbole_hyper.config.resolve`."""

from recbole_hyper.config.binding import Config
from recbole_hyper.errors import ConfigError

__all__ = ["Config", "ConfigError"]
