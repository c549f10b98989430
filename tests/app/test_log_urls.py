"""The URL of a log is checked before it is used, and no error shows it."""

import pytest

from trails.app.log_urls import check_connection, check_log_url
from trails.app.settings import LOG_URL_VARIABLE, Project, Settings
from trails.errors import SettingsError

WHERE = "[graphs.main.log] url"


def check(url):
    """As it is checked when a graph is opened."""
    check_log_url(WHERE, url)
    check_connection(WHERE, url)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mysql://u:geheim@h/d", "must begin with postgresql://"),
        ("host=h password=geheim", "must begin with postgresql://"),
        ("postgresql://u:geh@eim@h/d", "percent-encoded"),
        ("postgresql://u:geheim/x@h/d", "percent-encoded"),
        ("postgresql://u:geheim?x@h/d", "percent-encoded"),
        ("postgresql://u:geheim#x@h/d", "percent-encoded"),
        ("postgresql://u:geheim@h:70000/d", "port"),
        ("postgresql://u:geheim@a:1,b:x/d", "port"),
        ("postgresql://u:geheim@[::1]:0/d", "port"),
        ("postgresql://u:geheim@[::1/d", "is not a URL"),
        ("postgresql://u:geheim@h/d?sslmode=full", "sslmode"),
        ("postgresql://u:geheim@h/d?sslmod=require", "'sslmod'"),
        ("postgresql://u:geheim@h/d?passfile=/no/file", "passfile"),
        ("postgresql://u:geheim@h/d?sslrootcert=/no%20file", "'/no file'"),
    ],
)
def test_mistakes_are_named_and_secrets_are_not(url, problem):
    """The setting, the part that is wrong, and what to write."""
    with pytest.raises(SettingsError) as caught:
        check(url)
    assert problem in caught.value.message
    assert caught.value.message.startswith(WHERE)
    assert not any(secret in caught.value.message for secret in ("geh", "eim"))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "postgresql://h/d",
        "postgres://u:p%40ss%2F@h:5432/d?sslmode=verify-full&sslrootcert=system",
        "postgresql://u@a:5432,b:5433,[::1]:5434/d?target_session_attrs=read-write",
        "postgresql:///d?host=/var/run/postgresql&options=-csearch_path%3Dx",
        "postgresql://%2Fvar%2Frun/d?connect_timeout=3&ssl=true",
    ],
)
def test_what_libpq_understands_is_accepted(url):
    """Several hosts, sockets, options."""
    check(url)


def test_a_password_file_that_others_can_read_is_refused(tmp_path):
    """The library would ignore it, and report a missing password."""
    file = tmp_path / "pass+file"
    file.write_text("*:*:*:*:geheim\n")
    url = f"postgresql://h/d?passfile={file}"
    file.chmod(0o640)
    with pytest.raises(SettingsError, match="chmod 600"):
        check_connection(WHERE, url)
    file.chmod(0o600)
    check_connection(WHERE, url)


def test_the_environment_is_checked_like_the_settings():
    """Under its own name."""
    settings = Settings(Project("p"))
    for url in ("mysql://geheim", "postgresql://h/d?passfile=/no/file"):
        with pytest.raises(SettingsError, match=LOG_URL_VARIABLE):
            settings.log_url("main", {LOG_URL_VARIABLE: url})
