"""What only networks need installed."""

from importlib import import_module

from gossamer.errors import ConfigurationError


def require_net(*modules: str) -> None:
    """Refuse to go on without these modules, or, where none is named, without any that only networks need."""
    for name in modules or ("blake3", "msgpack", "zenoh"):
        try:
            import_module(name)
        except ImportError:
            allowed, hint = "eclipse-zenoh, msgpack and blake3 installed", "pip install gossamer[net]"
            raise ConfigurationError("network", f"no {name}", allowed, hint) from None
