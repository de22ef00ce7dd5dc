import os
import tomllib
from pathlib import Path

import pytest

from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.settings import Settings, load_settings, print_config, settings_reference
from kikwiflow_worker.telemetry import LogLevel

SECRET = "s3cr3t"
URI = f"mongodb://user:{SECRET}@db.example/"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("KIKWIFLOW_")]:
        monkeypatch.delenv(variable)


def load(
    flags: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    return load_settings(flags=flags or {}, environ=environ or {}, config=config)


def failure(
    flags: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
    config: Path | None = None,
) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(flags, environ, config)
    return str(caught.value)


def a_file(folder: Path, text: str) -> Path:
    path = folder / "worker.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.field_case("S-27")
def test_nothing_given_yields_the_defaults() -> None:
    settings = load()

    assert settings == Settings()
    assert (settings.concurrency, settings.lock_seconds, settings.default_retry_interval) == (
        10,
        30.0,
        "PT3M",
    )


def test_a_flag_wins_over_the_environment_that_over_the_file_and_that_over_the_default(
    tmp_path: Path,
) -> None:
    config = a_file(tmp_path, "concurrency = 2\nlock_seconds = 2\ngrace_seconds = 2")
    environ = {"KIKWIFLOW_CONCURRENCY": "3", "KIKWIFLOW_LOCK_SECONDS": "3"}

    settings = load({"concurrency": 4, "lock_seconds": None}, environ, config)

    assert (settings.concurrency, settings.lock_seconds, settings.grace_seconds) == (4, 3.0, 2.0)
    assert settings.history_ttl_days == 30


def test_sources_name_the_place_of_each_value(tmp_path: Path) -> None:
    config = a_file(tmp_path, "grace_seconds = 2")

    settings = load({"concurrency": 4}, {"KIKWIFLOW_LOCK_SECONDS": "3"}, config)

    assert settings.sources == {
        "concurrency": "flag --concurrency",
        "lock_seconds": "env KIKWIFLOW_LOCK_SECONDS",
        "grace_seconds": f"file {config} key grace_seconds",
    }


def test_the_environment_can_name_the_file(tmp_path: Path) -> None:
    config = a_file(tmp_path, "concurrency = 2")

    settings = load(environ={"KIKWIFLOW_CONFIG": str(config)})

    assert settings.concurrency == 2


def test_a_file_given_by_flag_wins_over_the_one_in_the_environment(tmp_path: Path) -> None:
    settings = load(
        environ={"KIKWIFLOW_CONFIG": str(tmp_path / "absent")},
        config=a_file(tmp_path, "concurrency = 2"),
    )

    assert settings.concurrency == 2


def test_building_settings_directly_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIKWIFLOW_CONCURRENCY", "77")

    assert Settings().concurrency == 10


def test_settings_cannot_be_changed() -> None:
    settings = Settings()

    with pytest.raises(ValueError, match="frozen"):
        settings.concurrency = 5  # type: ignore[misc]


def test_all_mistakes_are_listed_at_once_with_their_place(tmp_path: Path) -> None:
    config = a_file(tmp_path, "grace_secs = 3\nlog_level = 'loud'")
    environ = {"KIKWIFLOW_CONCURENCY": "3", "KIKWIFLOW_LOCK_SECONDS": "soon"}

    message = failure({"concurrency": 0, "frobnicate": 1}, environ, config)

    assert f"file {config} key grace_secs: is not a setting; did you mean grace_seconds?" in message
    assert (
        "env KIKWIFLOW_CONCURENCY: is not a setting; did you mean KIKWIFLOW_CONCURRENCY?" in message
    )
    assert "flag --frobnicate: is not a setting; remove it" in message
    assert (
        "flag --concurrency: should be greater than or equal to 1 (it is 0); give integer from 1 to 1000"
        in message
    )
    assert "env KIKWIFLOW_LOCK_SECONDS: should be a valid number" in message
    assert (
        f"file {config} key log_level: should be 'debug', 'info', 'warning' or 'error' (it is 'loud')"
        in message
    )


def test_test_variables_and_the_config_variable_are_not_unknown() -> None:
    assert load(environ={"KIKWIFLOW_TEST_MONGO_URI": URI, "KIKWIFLOW_CONFIG": ""}) == Settings()


def test_variables_of_a_kubernetes_service_named_kikwiflow_are_ignored() -> None:
    environ = {
        "KIKWIFLOW_SERVICE_HOST": "10.0.0.1",
        "KIKWIFLOW_WORKER_SERVICE_PORT_HTTP": "80",
        "KIKWIFLOW_WORKER_PORT": "tcp://10.0.0.1:80",
        "KIKWIFLOW_WORKER_PORT_80_TCP_ADDR": "10.0.0.1",
    }

    assert load(environ=environ) == Settings()


def test_a_variable_that_only_looks_like_a_kubernetes_port_is_unknown() -> None:
    assert "env KIKWIFLOW_HEALTH_PORT: is not a setting" in failure(
        environ={"KIKWIFLOW_HEALTH_PORT": "8080"}
    )


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load(environ={"KIKWIFLOW_CONCURRENCY": ""}).concurrency == 10


def test_a_lower_case_variable_is_unknown() -> None:
    message = failure(environ={"KIKWIFLOW_concurrency": "3"})

    assert (
        "env KIKWIFLOW_concurrency: is not a setting; did you mean KIKWIFLOW_CONCURRENCY?"
        in message
    )


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a/b", "a" * 129, "é"])
def test_a_bad_instance_name_is_refused(name: str) -> None:
    assert "flag --instance-name" in failure({"instance_name": name})


@pytest.mark.parametrize("name", ["a", "worker-1.zone_b", "9", "a" * 128])
def test_a_good_instance_name_is_accepted(name: str) -> None:
    assert load({"instance_name": name}).instance_name == name


def test_two_places_for_the_database_are_refused_with_both_sources() -> None:
    message = failure({"embedded": True, "concurrency": 0}, {"KIKWIFLOW_MONGODB_URI": URI})

    assert "env KIKWIFLOW_MONGODB_URI and flag --embedded: exclude each other" in message
    assert "flag --concurrency" in message
    assert SECRET not in message


def test_two_places_for_the_database_are_refused_without_load_settings_too() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        Settings(mongodb_uri_file=Path("a"), embedded=Path("b"))


@pytest.mark.parametrize(
    ("flags", "environ"),
    [
        ({"mongodb_uri": f"postgres://user:{SECRET}@db/"}, {}),
        ({}, {"KIKWIFLOW_MONGODB_URI": f"mongodb://user:{SECRET} @db/"}),
        ({"mongodb_uri_file": Path(URI)}, {}),
        ({}, {"KIKWIFLOW_MONGODB_URI_FILE": URI}),
        ({"mongodb_database": URI}, {}),
        ({"instance_name": URI}, {}),
    ],
)
def test_no_error_shows_a_password(flags: dict[str, object], environ: dict[str, str]) -> None:
    message = failure(flags, environ)

    assert "MONGODB" in message.upper()
    assert SECRET not in message


def test_no_name_of_an_unknown_setting_shows_a_password(tmp_path: Path) -> None:
    uri = f"mongodb://user:{SECRET}@host/"
    config = a_file(tmp_path, f"'{uri}' = 1")

    message = failure({uri: 1}, {f"KIKWIFLOW_{uri}": "1"}, config)

    assert message.count("is not a setting") == 3
    assert SECRET not in message


@pytest.mark.parametrize("flag", [True, ""])
def test_the_bare_embedded_flag_means_the_state_directory(flag: object) -> None:
    settings = load({"embedded": flag}, {"XDG_STATE_HOME": "/state", "HOME": "/home/me"})

    assert settings.embedded == Path("/state/kikwiflow/embedded")


@pytest.mark.parametrize("environ", [{}, {"XDG_STATE_HOME": "relative"}])
def test_the_state_directory_falls_back_to_home(environ: dict[str, str]) -> None:
    settings = load(environ={"KIKWIFLOW_EMBEDDED": "true", "HOME": "/home/me", **environ})

    assert settings.embedded == Path("/home/me/.local/state/kikwiflow/embedded")


def test_embedded_takes_a_directory() -> None:
    assert load({"embedded": "data"}).embedded == Path("data")


def test_embedded_can_be_switched_off_over_a_file(tmp_path: Path) -> None:
    config = a_file(tmp_path, "embedded = true")

    settings = load(
        environ={"KIKWIFLOW_EMBEDDED": "false", "KIKWIFLOW_MONGODB_URI": URI}, config=config
    )

    assert (settings.embedded, settings.uri()) == (None, URI)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("8080", "127.0.0.1:8080"),
        (8080, "127.0.0.1:8080"),
        ("0.0.0.0:0", "0.0.0.0:0"),
        ("[::1]:80", "[::1]:80"),
    ],
)
def test_the_health_address_is_completed(given: object, expected: str) -> None:
    assert load({"health_address": given}).health_address == expected


@pytest.mark.parametrize("given", ["host", "host:", ":80", "host:65536", "::1:80", "a:b:80", True])
def test_a_bad_health_address_is_refused(given: object) -> None:
    assert "flag --health-address" in failure({"health_address": given})


@pytest.mark.parametrize("given", ["a, b,,c", ("a,b", "c"), ["a", "b", "c"]])
def test_handlers_are_separated_by_commas_or_given_as_a_list(given: object) -> None:
    assert load({"handlers": given}).handlers == ("a", "b", "c")


@pytest.mark.parametrize("given", ["3m", "", "PT", "-PT3M"])
def test_a_bad_duration_is_refused(given: str) -> None:
    assert "flag --default-retry-interval" in failure({"default_retry_interval": given})


@pytest.mark.parametrize("given", ["nan", "inf", "-1", "0.5"])
def test_a_lock_length_must_be_a_number_of_at_least_one(given: str) -> None:
    assert "flag --lock-seconds" in failure({"lock_seconds": given})


def test_the_longest_poll_interval_is_not_less_than_the_base() -> None:
    assert "poll_max_seconds must not be less" in failure({"poll_interval_seconds": 10})


def test_words_of_the_log_settings_may_be_upper_case() -> None:
    assert load(environ={"KIKWIFLOW_LOG_LEVEL": "WARNING"}).log_level is LogLevel.WARNING


def test_an_absent_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    assert f"settings file {tmp_path / 'absent'} cannot be read" in failure(
        config=tmp_path / "absent"
    )


def test_a_file_that_is_not_toml_is_an_error_with_the_line(tmp_path: Path) -> None:
    assert "is not valid TOML" in failure(config=a_file(tmp_path, "concurrency: 3"))


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    config = tmp_path / "worker.toml"
    config.write_bytes(b"\xff\xfe")

    assert "is not UTF-8" in failure(config=config)


def test_the_uri_is_read_from_its_file_without_the_line_end(tmp_path: Path) -> None:
    secret = tmp_path / "uri"
    secret.write_text(URI + "\n", encoding="utf-8")

    assert load({"mongodb_uri_file": secret}).uri() == URI


def test_an_unreadable_uri_file_is_an_error_that_names_place_and_path(tmp_path: Path) -> None:
    settings = load(environ={"KIKWIFLOW_MONGODB_URI_FILE": str(tmp_path / "absent")})

    with pytest.raises(
        ConfigurationError, match=r"env KIKWIFLOW_MONGODB_URI_FILE: .*absent cannot be read"
    ):
        settings.uri()


@pytest.mark.parametrize("content", [b"", f"password {SECRET}".encode(), b"\xff" + SECRET.encode()])
def test_a_uri_file_without_a_uri_is_an_error_that_does_not_show_it(
    tmp_path: Path, content: bytes
) -> None:
    secret = tmp_path / "uri"
    secret.write_bytes(content)

    with pytest.raises(ConfigurationError, match="does not hold a MongoDB URI") as caught:
        load({"mongodb_uri_file": secret}).uri()

    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__


def test_asking_for_a_uri_without_one_says_what_to_set() -> None:
    with pytest.raises(ConfigurationError, match="--mongodb-uri-file"):
        Settings().uri()


def test_the_printed_configuration_can_be_loaded_again(tmp_path: Path) -> None:
    flags: dict[str, object] = {
        "handlers": "a,b",
        "health_address": 80,
        "instance_name": "w",
        "mongodb_uri_file": "x",
    }
    settings = load({**flags, "allow_standalone": "yes", "log_level": "debug", "embedded": None})

    again = load(config=a_file(tmp_path, print_config(settings)))

    assert again.model_dump() == settings.model_dump()


def test_the_printed_configuration_names_sources_and_masks_the_password() -> None:
    text = print_config(load({"concurrency": 4}, {"KIKWIFLOW_MONGODB_URI": URI}))

    assert 'mongodb_uri = "mongodb://user:***@db.example/"  # env KIKWIFLOW_MONGODB_URI' in text
    assert "concurrency = 4  # flag --concurrency" in text
    assert "lock_seconds = 30.0  # default" in text
    assert SECRET not in text
    assert tomllib.loads(text)["concurrency"] == 4


def test_the_printed_configuration_does_not_show_the_uri_file(tmp_path: Path) -> None:
    secret = tmp_path / "uri"
    secret.write_text(URI, encoding="utf-8")

    text = print_config(load({"mongodb_uri_file": secret}))

    assert SECRET not in text
    assert str(secret) in text


def test_settings_do_not_show_the_password_in_their_repr() -> None:
    assert SECRET not in repr(load({"mongodb_uri": URI}))


def test_the_reference_has_a_row_with_a_meaning_for_each_setting() -> None:
    rows = settings_reference().splitlines()[2:]

    assert len(rows) == len(Settings.model_fields)
    assert all(field.description for field in Settings.model_fields.values())
    assert any(
        "| `concurrency` | `--concurrency` | `KIKWIFLOW_CONCURRENCY` | integer from 1 to 1000 | `10` |"
        in row
        for row in rows
    )


def test_each_length_of_time_carries_its_unit() -> None:
    numbers = {name for name, field in Settings.model_fields.items() if field.annotation is float}

    assert numbers
    assert all(name.endswith("_seconds") for name in numbers)


def test_a_list_with_wrong_items_is_one_mistake(tmp_path: Path) -> None:
    message = failure(config=a_file(tmp_path, "handlers = [1, 2]"))

    assert message.count("key handlers") == 1


def test_an_unknown_flag_that_resembles_a_setting_is_answered_with_the_flag() -> None:
    assert "flag --concurency: is not a setting; did you mean --concurrency?" in failure(
        {"concurency": 3}
    )


def test_the_catalogue_shows_the_flag_that_turns_off_what_is_on() -> None:
    rows = settings_reference().splitlines()

    assert next(row for row in rows if "`hand_on`" in row).startswith(
        "| `hand_on` | `--no-hand-on` |"
    )
    assert any(row.startswith("| `allow_standalone` | `--allow-standalone` |") for row in rows)


def test_options_of_a_sink_are_separated_where_a_name_begins() -> None:
    options = "url=https://x/?a=1, secret_file=/run/s,bootstrap_servers=a:1,b:2"

    settings = load({}, {"KIKWIFLOW_RELAY_OPTIONS": options})

    assert settings.relay_options == (
        "url=https://x/?a=1",
        "secret_file=/run/s",
        "bootstrap_servers=a:1,b:2",
    )


def test_a_relay_needs_a_sink() -> None:
    with pytest.raises(ConfigurationError, match="relay needs relay_sink"):
        load({"relay": True})


def test_an_option_of_a_sink_needs_a_name() -> None:
    with pytest.raises(ConfigurationError, match="flag --relay-options"):
        load({"relay_options": ("https://x",)})


def test_secrets_among_the_options_of_a_sink_are_not_printed() -> None:
    text = print_config(load({"relay_options": ("api_token=s3cr3t", "url=amqp://u:s3cr3t@x/")}))

    assert "s3cr3t" not in text
    assert "api_token=***" in text
