"""Where the server is and who calls: arguments, then the environment, then the profile file, then defaults.

| argument   | environment     | profile file |
|------------|-----------------|--------------|
| `address`  | `ORBIT_ADDRESS` | `address`    |
| `api_key`  | `ORBIT_API_KEY` | `api_key`    |
| `tls_ca`   | `ORBIT_TLS_CA`  | `tls_ca`     |
| `tls_cert` | `ORBIT_TLS_CERT`| `tls_cert`   |
| `tls_key`  | `ORBIT_TLS_KEY` | `tls_key`    |
| `profile`  | `ORBIT_PROFILE` | -            |

The profile file is `~/.config/orbit/config.toml` (`ORBIT_CONFIG` names another) with one table `[profile.NAME]` for
each profile; without a name it is the profile `default`, which need not be there. `ORBIT_SERVER`, which the command
line reads, counts where `ORBIT_ADDRESS` is not set.
"""

import ipaddress
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_ADDRESS = "http://localhost:7070"
DEFAULT_PROFILE = "default"
DEFAULT_FILE = "~/.config/orbit/config.toml"

# Setting -> variables, the first one that is set and not empty wins.
_VARIABLES = {
    "address": ("ORBIT_ADDRESS", "ORBIT_SERVER"),
    "api_key": ("ORBIT_API_KEY",),
    "tls_ca": ("ORBIT_TLS_CA",),
    "tls_cert": ("ORBIT_TLS_CERT",),
    "tls_key": ("ORBIT_TLS_KEY",),
}


class ConfigError(ValueError):
    """The settings cannot be used: an address that is none, a profile that is not there, a key without TLS."""


@dataclass(frozen=True)
class Config:
    """How to reach a server. `Config.load` reads it from the environment; every argument of `Client` and `Worker` that
    has the name of a field wins over it."""

    address: str = DEFAULT_ADDRESS
    """`http://HOST:PORT`, `https://HOST:PORT`, or `HOST:PORT`, which is `http`, or `https` if a TLS file is given."""
    api_key: str | None = field(default=None, repr=False)
    """Sent with each call as a bearer token; never in clear text to a host that is not this machine."""
    tls_ca: str | None = None
    """Path of a PEM file: who may sign the server's certificate. Default: what the system trusts."""
    tls_cert: str | None = None
    """Path of a PEM file with the caller's own certificate."""
    tls_key: str | None = None
    """Path of a PEM file with that certificate's key."""

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("tls_cert and tls_key come together")
        if not self.secure and (self.tls_ca or self.tls_cert):
            raise ConfigError(f"{self.address} is plain HTTP, so the TLS files would not be used; write https://")
        if self.api_key is not None and not self.secure and not is_loopback(self.host):
            raise ConfigError(f"the API key would go to {self.address} in clear text; use an https:// address")

    @classmethod
    def load(
        cls,
        *,
        address: str | None = None,
        api_key: str | None = None,
        tls_ca: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        profile: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> "Config":
        """Reads the settings. Raises `ConfigError` if they cannot be used together, or name a profile that is not
        there.

        `environment` is `os.environ` unless given.
        """
        environment = os.environ if environment is None else environment
        found: dict[str, Any] = dict(_profile(environment, profile))
        for setting, variables in _VARIABLES.items():
            found.update((setting, environment[name]) for name in reversed(variables) if environment.get(name))
        given = {"address": address, "api_key": api_key, "tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key}
        found.update({setting: value for setting, value in given.items() if value is not None})
        return cls(**found)

    @property
    def secure(self) -> bool:
        """Whether the connection is encrypted."""
        return self._split[0]

    @property
    def target(self) -> str:
        """`HOST:PORT`, as gRPC wants it."""
        _, host, port = self._split
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def host(self) -> str:
        """The host alone."""
        return self._split[1]

    @property
    def _split(self) -> tuple[bool, str, int]:
        has_scheme = "://" in self.address
        parts = urlsplit(self.address if has_scheme else f"//{self.address}")
        try:
            port = parts.port
            fits = True
        except ValueError:
            port, fits = None, False
        if not fits or parts.scheme not in ("", "http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ConfigError(f"{self.address!r} is no address: http://HOST:PORT, https://HOST:PORT or HOST:PORT")
        secure = parts.scheme == "https" or (not has_scheme and bool(self.tls_ca or self.tls_cert))
        if port is None and not has_scheme:
            raise ConfigError(f"{self.address!r} has no port: HOST:PORT")
        return secure, parts.hostname, port or (443 if secure else 80)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, so that nobody can listen on the way."""
    if host.lower() == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _profile(environment: Mapping[str, str], profile: str | None) -> dict[str, Any]:
    """The settings of a profile; none if nobody asked for one and the default one is not there."""
    name = profile or environment.get("ORBIT_PROFILE")
    file = Path(environment.get("ORBIT_CONFIG") or DEFAULT_FILE).expanduser()
    try:
        text = file.read_text()
    except FileNotFoundError:
        if name is not None or environment.get("ORBIT_CONFIG"):
            raise ConfigError(f"there is no profile file {file}") from None
        return {}
    except OSError as error:
        raise ConfigError(f"the profile file {file} cannot be read: {error}") from error
    try:
        profiles = tomllib.loads(text).get("profile", {})
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the profile file {file} is no TOML: {error}") from error
    settings = profiles.get(name or DEFAULT_PROFILE)
    if settings is None:
        if name is None:
            return {}
        raise ConfigError(f"the profile file {file} has no profile {name!r}; it has: {', '.join(sorted(profiles))}")
    known = {setting.name for setting in fields(Config)}
    if wrong := sorted(set(settings) - known):
        raise ConfigError(f"profile {name or DEFAULT_PROFILE!r} in {file} has unknown settings: {', '.join(wrong)}")
    return dict(settings)
