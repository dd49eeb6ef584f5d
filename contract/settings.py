"""Every setting, once: name, unit, default, bounds and the reason for the default.

Read once at start from the environment, validated, then frozen. The README's table is checked against SETTINGS.
An unknown ``WARMROUTE_`` name is an error: a typo must not leave a default in force unnoticed.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import parse_qs, urlsplit

PREFIX = "WARMROUTE_"


class SettingsError(ValueError):
    """A setting is missing or wrong. The message is one plain sentence that names it and says what would be right."""


@dataclass(frozen=True)
class Setting:
    """One environment variable, without its prefix."""

    name: str
    default: str
    unit: str
    reason: str
    low: float | None = None
    high: float | None = None
    pattern: str | None = None
    choices: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()


SETTINGS: tuple[Setting, ...] = (
    Setting("DATABASE_URL", "", "URL", "external Postgres; unset: embedded, `up` only", schemes=("postgresql",)),
    Setting("REDIS_URL", "", "URL", "external Redis; unset: embedded, `up` only", schemes=("redis", "rediss")),
    Setting("ACCOUNT_ID", "000000000000", "12 digits", "appears in ARNs and messages", pattern=r"\d{12}"),
    Setting("REGION", "us-east-1", "name", "appears in ARNs", pattern=r"[a-z]{2}(-[a-z]+)+-\d"),
    Setting("AUTH", "off", "on, off", "off is accepted only on loopback", choices=("on", "off")),
    Setting(
        "SECRET_KEY",
        "",
        "base64",
        "seals secrets in Postgres and in the routing table; 32 bytes, or several by commas: the first seals, all open",
    ),
    Setting("SECRET_KEY_FILE", "", "path", "the same from a file, which a process list does not show"),
    Setting(
        "TLS_CERT_FILE", "", "path", "PEM certificate chain: both planes' listeners speak TLS; SIGHUP reads it anew"
    ),
    Setting("TLS_KEY_FILE", "", "path", "PEM private key of that certificate"),
    Setting(
        "TLS_CA_FILE", "", "path", "PEM authorities that https model hosts are checked against, beside the system's"
    ),
    Setting(
        "ALLOW_METADATA_HOSTS",
        "off",
        "on, off",
        "on: model hosts may have link-local and metadata addresses, which hand out a machine's credentials",
        choices=("on", "off"),
    ),
    Setting(
        "AUDIT_DAYS",
        "400",
        "days",
        "audit records older than this are deleted; more than a year of them is kept",
        1,
        36500,
    ),
    Setting(
        "LEASE_SECONDS",
        "10",
        "s",
        "a dead worker's counts are gone after this; shorter costs more renewals",
        1,
        300,
    ),
    Setting("RESYNC_SECONDS", "5", "s", "a worker that missed a notice has the new routes after this", 0.1, 300),
    Setting(
        "EJECT_SECONDS",
        "10",
        "s",
        "how long a failing instance is set aside before it is tried again",
        0.1,
        600,
    ),
    Setting("PROBE_SECONDS", "5", "s", "interval of health probes", 0.1, 300),
    Setting(
        "CONNECT_TIMEOUT_SECONDS",
        "2",
        "s",
        "to a model host; a host on the same network answers in ms",
        0.05,
        60,
    ),
    Setting("INVOKE_TIMEOUT_SECONDS", "60", "s", "whole unary call; SageMaker's own limit", 0.1, 3600),
    Setting("STREAM_TIMEOUT_SECONDS", "480", "s", "whole stream; SageMaker's own limit of 8 minutes", 0.1, 86400),
    Setting("FIRST_BYTE_TIMEOUT_SECONDS", "60", "s", "request sent to first byte of a stream's answer", 0.1, 3600),
    Setting(
        "IDLE_TIMEOUT_SECONDS",
        "60",
        "s",
        "between two chunks of a stream; tokens come far more often",
        0.1,
        3600,
    ),
    Setting(
        "BODY_BYTES_MAX",
        "26214400",
        "bytes",
        "request body; SageMaker's 25 MB for real-time endpoints",
        1024,
        2**30,
    ),
    Setting("READ_TIMEOUT_SECONDS", "60", "s", "for a client to finish sending its request", 0.1, 3600),
    Setting("KEEP_ALIVE_SECONDS", "75", "s", "idle client connection; above common load balancers' 60 s", 1, 3600),
    Setting("HOST_KEEP_ALIVE_SECONDS", "4", "s", "idle host connection; below uvicorn's and vLLM's 5 s", 0.1, 3600),
    Setting("DRAIN_SECONDS", "60", "s", "how long a stopping worker lets requests finish", 0, 3600),
    Setting(
        "PROVISION_TIMEOUT_SECONDS",
        "600",
        "s",
        "hosts that are not healthy by then fail the deployment",
        0.5,
        86400,
    ),
    Setting(
        "STORE_BUDGET_SECONDS",
        "0.02",
        "s",
        "wait for Redis before a request is routed on last known counts",
        0.001,
        5,
    ),
    Setting("WORKERS", "2", "processes", "data-plane workers; one per core is the useful maximum", 1, 256),
    Setting(
        "CONNECTIONS_MAX",
        "10000",
        "connections",
        "client connections a worker keeps, fewer where file descriptors do not suffice; more are answered 503",
        1,
        10**6,
    ),
    Setting("LOG_LEVEL", "info", "level", "of both planes' logs", choices=("debug", "info", "warning", "error")),
)


@dataclass(frozen=True)
class Settings:
    """All settings with their types; field names are the lower-case setting names."""

    # URLs may hold passwords.
    database_url: str = field(default="", repr=False)
    redis_url: str = field(default="", repr=False)
    account_id: str = "000000000000"
    region: str = "us-east-1"
    auth: str = "off"
    secret_key: str = field(default="", repr=False)
    secret_key_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_ca_file: str = ""
    allow_metadata_hosts: str = "off"
    audit_days: int = 400
    lease_seconds: float = 10.0
    resync_seconds: float = 5.0
    eject_seconds: float = 10.0
    probe_seconds: float = 5.0
    connect_timeout_seconds: float = 2.0
    invoke_timeout_seconds: float = 60.0
    stream_timeout_seconds: float = 480.0
    first_byte_timeout_seconds: float = 60.0
    idle_timeout_seconds: float = 60.0
    body_bytes_max: int = 26_214_400
    read_timeout_seconds: float = 60.0
    keep_alive_seconds: float = 75.0
    host_keep_alive_seconds: float = 4.0
    drain_seconds: float = 60.0
    provision_timeout_seconds: float = 600.0
    store_budget_seconds: float = 0.02
    workers: int = 2
    connections_max: int = 10_000
    log_level: str = "info"
    environ: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The WARMROUTE_ variables as read, to hand to a child process."""


def load(environ: Mapping[str, str]) -> Settings:
    """Return the settings in ``environ``. Raises SettingsError for the first unknown name or bad value."""
    given = {name: value for name, value in environ.items() if name.startswith(PREFIX)}
    known = {PREFIX + setting.name: setting for setting in SETTINGS}
    for name in given:
        if name not in known:
            # Compared without the prefix that all share: it would make any two names alike.
            near = difflib.get_close_matches(name.removeprefix(PREFIX), [setting.name for setting in SETTINGS], n=1)
            hint = f"; did you mean {PREFIX}{near[0]}?" if near else "; the README lists the settings"
            raise SettingsError(f"{name} is not a setting{hint}")
    types = {item.name: item.type for item in fields(Settings)}
    values: dict[str, Any] = {}
    for name, setting in known.items():
        text = given.get(name, setting.default)
        values[setting.name.lower()] = _parse(name, setting, text, types[setting.name.lower()])
    return Settings(**values, environ=given)


def require(settings: Settings, name: str) -> str:
    """Return a setting that has no default, or raise SettingsError that says how to give it."""
    value: str = getattr(settings, name.lower())
    if not value:
        example = {
            "DATABASE_URL": "postgresql://user:password@host:5432/warmroute",
            "REDIS_URL": "redis://host:6379/0",
        }
        raise SettingsError(f"{PREFIX}{name} is not set; give a URL such as {example[name]}")
    return value


def _parse(name: str, setting: Setting, text: str, kind: object) -> Any:
    text = text.strip()
    if kind in (int, float):
        return _number(name, setting, text, whole=kind is int)
    if setting.choices and text not in setting.choices:
        raise SettingsError(f"{name} must be one of {', '.join(setting.choices)}")
    if setting.pattern and not re.fullmatch(setting.pattern, text):
        raise SettingsError(f"{name} must match {setting.pattern}")
    if setting.schemes and text:
        _check_url(name, setting, text)
    return text


def _number(name: str, setting: Setting, text: str, *, whole: bool) -> float:
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        raise SettingsError(f"{name} must be a {'whole ' if whole else ''}number of {setting.unit}") from None
    assert setting.low is not None
    assert setting.high is not None
    if not setting.low <= value <= setting.high:
        raise SettingsError(f"{name} must be between {setting.low:g} and {setting.high:g} {setting.unit}")
    return value


def _check_url(name: str, setting: Setting, text: str) -> None:
    wanted = " or ".join(f"{scheme}://" for scheme in setting.schemes)
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise SettingsError(f"{name} is not a URL; give {wanted}user:password@host:port/name") from None
    if parts.scheme not in setting.schemes:
        # The value may hold a password, so it is not repeated.
        raise SettingsError(f"{name} must start with {wanted}")
    if setting.name == "REDIS_URL" and parse_qs(parts.query, keep_blank_values=True).keys() - {"db"}:
        said = "authorities of your own for rediss:// are in the file that SSL_CERT_FILE names"
        raise SettingsError(f"{name} takes no parameter but db; {said}")
