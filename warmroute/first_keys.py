"""What `up` makes for an installation of its own: the secret key, and with AUTH on the first keys.

They are in the data directory, readable by its owner alone, as is the database that they open.
"""

import base64
import configparser
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from contract.settings import Settings
from warmroute.faults import Fault
from warmroute.signing import Key

SECRET_KEY, ADMIN_KEY, DEMO_KEY = "secret-key", "aws-credentials", "demo-api-key"
"""Files. The second has the form that AWS's tools read."""
_PROFILE = "default"
_CREATE_SECONDS = 60.0


@dataclass(frozen=True)
class FirstKeys:
    """An administrator's key, and one of the kind that OpenAI clients have, for the endpoint demo."""

    admin: Key
    demo: str
    is_new: bool


def secret_key(directory: Path, settings: Settings) -> dict[str, str]:
    """Return the setting that names the secret key, made at the first start; nothing if the user has one."""
    if settings.secret_key or settings.secret_key_file:
        return {}
    file = directory / SECRET_KEY
    if not file.exists():
        _write(file, base64.b64encode(secrets.token_bytes(32)).decode() + "\n")
    return {"SECRET_KEY_FILE": str(file.resolve())}


def first_keys(directory: Path, settings: Settings, environment: Mapping[str, str], endpoint: str) -> FirstKeys:
    """Return the keys that `up` made at its first start, or make them. Raises Fault."""
    admin_file, demo_file = directory / ADMIN_KEY, directory / DEMO_KEY
    is_new = not admin_file.exists()
    if is_new:
        made = _create(environment, "admin", "--description", "made by warmroute up")
        lines = f"aws_access_key_id = {made['AccessKeyId']}\naws_secret_access_key = {made['SecretAccessKey']}\n"
        _write(admin_file, f"[{_PROFILE}]\n{lines}")
    if not demo_file.exists():
        options = ("--kind", "api-key", "--endpoint", endpoint, "--description", f"endpoint {endpoint} of warmroute up")
        _write(demo_file, _create(environment, "invoke", *options)["ApiKey"] + "\n")
    return FirstKeys(_read(admin_file, settings.region), demo_file.read_text().strip(), is_new)


def of_running(directory: Path, settings: Settings) -> Settings:
    """Return the settings with the embedded database, and the secret key, of the `up` that runs on ``directory``.

    Raises Fault when none does, or its database is another one.
    """
    if settings.database_url:
        raise Fault("WARMROUTE_DATABASE_URL is set, too: leave out --data-dir, or unset it")
    from warmroute.embedded.postgres import running_url

    url = running_url(directory / "postgres")
    if url is None:
        raise Fault(f"no `warmroute up` with a Postgres of its own runs on {directory}")
    key_file = secret_key(directory, settings).get("SECRET_KEY_FILE", settings.secret_key_file)
    return replace(settings, database_url=url, secret_key_file=key_file)


def _read(file: Path, region: str) -> Key:
    found = configparser.ConfigParser(interpolation=None)
    try:
        found.read_string(file.read_text())
        profile = found[_PROFILE]
        return Key(profile["aws_access_key_id"], profile["aws_secret_access_key"], region)
    except (OSError, KeyError, configparser.Error):
        raise Fault(f"{file} holds no key; delete it to have another one made") from None


def _create(environment: Mapping[str, str], role: str, *options: str) -> dict[str, str]:
    """Make a key as an operator would: the command has the database's libraries, this process has not."""
    command = [sys.executable, "-P", "-m", "warmroute", "keys", "create", "--role", role, *options, "--json"]
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=_CREATE_SECONDS, check=False
    )
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2].removeprefix("warmroute: ")
        raise Fault(f"the first keys could not be made: {last or f'exit code {done.returncode}'}")
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


def _write(file: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    beside = file.with_name(file.name + ".new")
    with suppress(FileNotFoundError):
        beside.unlink()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
    beside.replace(file)
