"""The connection to a server: one HTTP/2 channel, opened with the first call."""

from pathlib import Path

import grpc

from orbit.config import Config
from orbit.version import VERSION

# Largest message that this side takes, in bytes. The server's own answers end at 4 MiB.
MESSAGE_BYTES_MAX = 16 * 1024 * 1024

# Anything that gRPC takes as metadata of a call.
Metadata = tuple[tuple[str, str], ...]

_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.primary_user_agent", f"orbit-python/{VERSION}"),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # A broken path is noticed although nothing is sent: long polls die silently behind some gateways.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Pauses between attempts are ours (`Backoff`); the channel's own would grow to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Each client and each worker has a connection of its own, so one does not wait behind the other.
    ("grpc.use_local_subchannel_pool", 1),
    # Calls are repeated above this, where it is known which may be.
    ("grpc.enable_retries", 0),
]


def open_channel(config: Config) -> grpc.aio.Channel:
    """Makes a channel; it connects with its first call. Raises `OSError` if a TLS file cannot be read."""
    if not config.secure:
        return grpc.aio.insecure_channel(config.target, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_read(config.tls_ca),
        private_key=_read(config.tls_key),
        certificate_chain=_read(config.tls_cert),
    )
    return grpc.aio.secure_channel(config.target, credentials, options=_OPTIONS)


def metadata(config: Config) -> Metadata:
    """What each call carries: who the caller is."""
    return (("authorization", f"Bearer {config.api_key}"),) if config.api_key else ()


def _read(path: str | None) -> bytes | None:
    return Path(path).expanduser().read_bytes() if path else None
