"""The errors that condvne raises: each message is one sentence that says what is wrong, where, and what to do."""

from __future__ import annotations


class CondvneError(Exception):
    """Base of every error that condvne raises on purpose."""


class InputError(CondvneError, ValueError):
    """Features, weights, kernels or arguments that cannot be scored."""


class DataError(CondvneError, ValueError):
    """A file or record that cannot be used; the message names the file and the line or the record's id."""


class ConfigError(CondvneError, ValueError):
    """A configuration that cannot be used; the message names the key."""


class RunError(CondvneError, RuntimeError):
    """A run that cannot go on (folder of another configuration, full disk, no memory); what is finished stays."""
