"""What settings name and both planes read at start: the secret key, certificates, authorities.

The one module of this package that touches files. Whatever is wrong is a SettingsError that repeats no secret.
"""

import ssl
from pathlib import Path

from access.sealing import BadSecretKey, Sealing
from contract.settings import PREFIX, Settings, SettingsError


def sealing_of(settings: Settings) -> Sealing | None:
    """Return the seal, or None when no key is set. Raises SettingsError, which never repeats a key."""
    if settings.secret_key and settings.secret_key_file:
        raise SettingsError(f"{PREFIX}SECRET_KEY and {PREFIX}SECRET_KEY_FILE are both set; one of them is the key")
    name, text = "SECRET_KEY", settings.secret_key
    if settings.secret_key_file:
        name = "SECRET_KEY_FILE"
        try:
            text = Path(settings.secret_key_file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise SettingsError(f"{PREFIX}SECRET_KEY_FILE cannot be read: {why}") from None
    elif not text:
        if settings.auth == "on":
            raise SettingsError(f"{PREFIX}AUTH=on needs {PREFIX}SECRET_KEY or {PREFIX}SECRET_KEY_FILE")
        return None
    try:
        return Sealing.of(text)
    except BadSecretKey as bad:
        raise SettingsError(f"{PREFIX}{name} is no key: {bad}") from None


def listener_tls(settings: Settings) -> ssl.SSLContext | None:
    """Return what a listener speaks TLS with, None if it is to speak plain HTTP. Raises SettingsError."""
    if not settings.tls_cert_file and not settings.tls_key_file:
        return None
    if not settings.tls_cert_file or not settings.tls_key_file:
        raise SettingsError(f"{PREFIX}TLS_CERT_FILE and {PREFIX}TLS_KEY_FILE go together; only one of them is set")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Let new connections see the certificate as the files have it now. Raises SettingsError and changes nothing."""
    try:
        # On trial first: a context that took a certificate and then refused its key would serve neither.
        for one in (ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), context):
            # An encrypted key would have OpenSSL ask the terminal.
            one.load_cert_chain(settings.tls_cert_file, settings.tls_key_file, password=_no_password)
    except ssl.SSLError as error:
        why = error.reason or "they are no PEM files"
        raise SettingsError(f"{PREFIX}TLS_CERT_FILE and {PREFIX}TLS_KEY_FILE cannot be used: {why}") from None
    except ValueError as error:
        raise SettingsError(f"{PREFIX}TLS_KEY_FILE cannot be used: {error}") from None
    except OSError as error:
        said = f"{PREFIX}TLS_CERT_FILE and {PREFIX}TLS_KEY_FILE cannot be read: {error.strerror}"
        raise SettingsError(said) from None


def _no_password() -> str:
    raise ValueError("the key is encrypted; give one without a password")


def host_tls(settings: Settings) -> ssl.SSLContext:
    """Return what https model hosts are checked with: the system's authorities, and TLS_CA_FILE's beside them.

    Raises SettingsError.
    """
    context = ssl.create_default_context()
    if settings.tls_ca_file:
        try:
            context.load_verify_locations(cafile=settings.tls_ca_file)
        except ssl.SSLError:
            raise SettingsError(f"{PREFIX}TLS_CA_FILE holds no certificates in PEM form") from None
        except OSError as error:
            raise SettingsError(f"{PREFIX}TLS_CA_FILE cannot be read: {error.strerror}") from None
    return context
