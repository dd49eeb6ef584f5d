import math
import re
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.settings import PREFIX, SETTINGS, Setting, Settings, SettingsError, load, require

NUMBERS = [setting for setting in SETTINGS if setting.low is not None]
TEXTS = [setting for setting in SETTINGS if setting.low is None]
TYPES = {item.name: item.type for item in fields(Settings)}
SECRET = "s3cret-w0rd"


def given_one(setting: Setting, value: str) -> object:
    """Return the value that a setting has when the environment says ``value``."""
    return getattr(load({PREFIX + setting.name: value}), setting.name.lower())


def test_an_empty_environment_gives_the_defaults() -> None:
    assert load({}) == Settings()
    assert load({"PATH": "/bin", "XWARMROUTE_WORKERS": "7"}) == Settings()


def test_each_setting_has_a_field_and_each_field_a_setting() -> None:
    assert [setting.name.lower() for setting in SETTINGS] == [name for name in TYPES if name != "environ"]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_is_described_and_its_default_is_one_that_may_be_given(setting: Setting) -> None:
    assert re.fullmatch(r"[A-Z][A-Z_]*[A-Z]", setting.name)
    assert setting.unit
    assert setting.reason
    assert given_one(setting, setting.default) == getattr(Settings(), setting.name.lower())


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.name)
def test_numbers_are_taken_within_their_bounds_and_refused_beyond(setting: Setting) -> None:
    assert setting.low is not None
    assert setting.high is not None
    assert setting.low < setting.high
    whole = TYPES[setting.name.lower()] is int
    shown = (lambda value: str(int(value))) if whole else repr
    for value in (setting.low, setting.high):
        assert given_one(setting, shown(value)) == value
    step = 1 if whole else max(1e-6, abs(setting.low) * 1e-6)
    for value in (setting.low - step, setting.high * 1.01 + 1, -1e9):
        with pytest.raises(SettingsError, match=f"{PREFIX}{setting.name} must be between"):
            given_one(setting, shown(value))


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.name)
@pytest.mark.parametrize("value", ["", "ten", "10s", "1,5", "0x10", "1e", "--1"])
def test_what_is_no_number_is_refused_with_its_unit(setting: Setting, value: str) -> None:
    with pytest.raises(SettingsError, match=rf"{PREFIX}{setting.name} must be a (whole )?number of {setting.unit}"):
        given_one(setting, value)


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.name)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400"])
def test_no_number_is_endless(setting: Setting, value: str) -> None:
    """Nan is neither below nor above a bound."""
    with pytest.raises(SettingsError, match=PREFIX + setting.name):
        given_one(setting, value)


def test_whole_numbers_are_whole() -> None:
    with pytest.raises(SettingsError, match="WARMROUTE_WORKERS must be a whole number of processes"):
        load({"WARMROUTE_WORKERS": "2.5"})
    assert isinstance(load({"WARMROUTE_WORKERS": "3"}).workers, int)
    assert math.isclose(load({"WARMROUTE_LEASE_SECONDS": "2.5"}).lease_seconds, 2.5)


def test_blanks_around_a_value_do_not_matter() -> None:
    assert load({"WARMROUTE_WORKERS": " 3\n"}).workers == 3


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ACCOUNT_ID", "12345", r"\d{12}"),
        ("ACCOUNT_ID", "12345678901x", r"\d{12}"),
        ("ACCOUNT_ID", "", r"\d{12}"),
        ("REGION", "here", "must match"),
        ("REGION", "us-east-1\nx", "must match"),
        ("AUTH", "On", "one of on, off"),
        ("AUTH", "", "one of on, off"),
        ("LOG_LEVEL", "loud", "one of debug, info, warning, error"),
        ("REDIS_URL", "localhost:6379", "must start with redis:// or rediss://"),
        ("REDIS_URL", "http://h:1", "must start with redis:// or rediss://"),
        ("REDIS_URL", "redis://h:port", "is not a URL; give redis:// or rediss://"),
        ("DATABASE_URL", "mysql://h/d", "must start with postgresql://"),
        ("DATABASE_URL", "postgresql+asyncpg://h/d", "must start with postgresql://"),
        ("DATABASE_URL", "postgresql://[::1/d", "is not a URL"),
    ],
)
def test_a_wrong_text_is_refused_with_what_would_be_right(name: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({PREFIX + name: value})
    assert str(caught.value).startswith(PREFIX + name)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDIS_URL", "redis://user:p%40ss@h:6379/2"),
        ("REDIS_URL", "rediss://h"),
        ("REDIS_URL", ""),
        ("DATABASE_URL", "postgresql://u:p@[::1]:5432/d?sslmode=require"),
        ("REGION", "us-gov-west-1"),
        ("REGION", "ap-southeast-7"),
        ("ACCOUNT_ID", "012345678901"),
    ],
)
def test_right_texts_are_taken_as_they_are(name: str, value: str) -> None:
    assert getattr(load({PREFIX + name: value}), name.lower()) == value


def test_a_typing_error_does_not_leave_a_default_in_force() -> None:
    with pytest.raises(SettingsError, match="WARMROUTE_LEASE_SECOND is not a setting; did you mean WARMROUTE_LEASE_SE"):
        load({"WARMROUTE_LEASE_SECOND": "5"})
    with pytest.raises(SettingsError, match="WARMROUTE_QQQQQQQQQQQQ is not a setting; the README lists the settings"):
        load({"WARMROUTE_QQQQQQQQQQQQ": "5"})


@given(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=20), st.sampled_from(SETTINGS))
def test_any_value_is_taken_or_refused_in_one_sentence(value: str, setting: Setting) -> None:
    try:
        given_one(setting, value)
    except SettingsError as error:
        said = str(error)
        assert said.startswith(PREFIX + setting.name)
        assert "\n" not in said


# --- secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        f"http://user:{SECRET}@h:1",
        f"redis://user:{SECRET}@h:port",
        f"postgresql://user:{SECRET}@[::1/d",
        f"{SECRET}@h",
        f"redis://{SECRET}\n@h",
    ],
)
@pytest.mark.parametrize("name", ["REDIS_URL", "DATABASE_URL"])
def test_a_refusal_does_not_repeat_a_password(name: str, value: str) -> None:
    """Nor does what it was raised from: tracebacks end up in logs."""
    try:
        load({PREFIX + name: value})
    except SettingsError as error:
        seen: BaseException | None = error
        while seen is not None:
            assert SECRET not in str(seen)
            seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


def test_settings_can_be_printed_without_giving_a_password_away() -> None:
    """A settings object in a log line or a failed assertion is soon done."""
    settings = load(
        {
            "WARMROUTE_REDIS_URL": f"redis://user:{SECRET}@h:6379/0",
            "WARMROUTE_DATABASE_URL": f"postgresql://user:{SECRET}@h/d",
        }
    )
    assert SECRET not in repr(settings)
    assert SECRET not in str(settings)


# --- handing on ------------------------------------------------------------------------------------------------------


def test_a_child_is_given_what_was_given() -> None:
    given_all = {"WARMROUTE_WORKERS": "3", "WARMROUTE_LEASE_SECONDS": "7"}
    settings = load({**given_all, "HOME": "/srv/app"})
    assert settings.environ == given_all
    assert load(settings.environ) == settings


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Settings().workers = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", ["REDIS_URL", "DATABASE_URL"])
def test_what_has_no_default_is_asked_for_with_an_example(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"{PREFIX}{name} is not set; give a URL such as (redis|postgresql)://"):
        require(Settings(), name)
    assert require(load({PREFIX + name: f"{'redis' if 'REDIS' in name else 'postgresql'}://h/0"}), name)


@pytest.mark.parametrize("query", ["ssl_cert_reqs=none", "db=1&ssl_ca_certs=/f", "protocol="])
def test_parameters_of_redis_that_a_worker_would_pass_over_are_refused(query: str) -> None:
    with pytest.raises(SettingsError, match=r"takes no parameter but db; .*SSL_CERT_FILE") as caught:
        load({"WARMROUTE_REDIS_URL": f"rediss://:canary@h/?{query}"})
    assert "canary" not in str(caught.value)
    load({"WARMROUTE_REDIS_URL": "rediss://h/?db=1"})
