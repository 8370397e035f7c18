"""Version of the library, in one place."""

__version__ = "0.1.0"
