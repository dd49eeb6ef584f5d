"""The installation's secret key as this plane is given it: in a setting, or in a file that a setting names."""

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
