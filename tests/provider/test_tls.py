"""https: a private CA, client certificates, proxies; and what is said when there is no trust."""

import os
import subprocess

import pytest
from sbxtest.build import build_dir
from sbxtest.process import sanitizer_env, sanitizer_reports
from sbxtest.timing import scale
from sbxtest.tls import ConnectProxy, PrivateCa, TlsTerminator

TOKEN = "s3cret-token"
CONNECT, TLS = 4, 5


@pytest.fixture(name="probe")
def fixture_probe(tmp_path):
    """probe(url, name=value...) is the line that the program prints."""
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    token_file.chmod(0o600)
    report = tmp_path / "sanitizer"

    def run(url, **options):
        env = {**os.environ, **sanitizer_env(report), "SBX_TOKEN_FILE": str(token_file)}
        for name in [name for name in env if name.lower().endswith("_proxy")]:
            del env[name]
        env.update({name if name.islower() else f"SBX_{name}": str(value)
                    for name, value in options.items()})
        done = subprocess.run([build_dir() / "tests/provider/probe", url], env=env,
                              stdout=subprocess.PIPE, timeout=scale(30), check=True)
        assert not sanitizer_reports(report)
        assert TOKEN not in done.stdout.decode()
        return done.stdout.decode().strip()

    return run


@pytest.fixture(name="place")
def fixture_place(start_sbxd):
    """A server with a CA and https in front of it, under the name sbx.test and localhost."""
    server = start_sbxd(token=TOKEN)
    with PrivateCa() as ca:
        cert, key = ca.issue("sbx.test", "localhost")
        with TlsTerminator(server.port, cert, key) as https:
            yield server, ca, https


def kind(line):
    """(errno's name, kind of failure)"""
    words = line.split(" ")
    return words[0], int(words[1])


def test_private_ca(place, probe):
    _, ca, https = place
    assert probe(https.url(), CACERT=ca.cert) == "ok"
    assert kind(probe(https.url())) == ("EPROTO", TLS)
    with PrivateCa("another") as other:
        assert kind(probe(https.url(), CACERT=other.cert)) == ("EPROTO", TLS)


def test_the_name_must_match(place, probe):
    _, ca, https = place
    assert kind(probe(https.url("127.0.0.1"), CACERT=ca.cert)) == ("EPROTO", TLS)


def test_client_certificate(place, probe):
    server, ca, _ = place
    cert, key = ca.issue("localhost")
    with TlsTerminator(server.port, cert, key, client_ca=ca.cert) as https:
        assert probe(https.url(), CACERT=ca.cert, CERT=cert, KEY=key) == "ok"
        assert probe(https.url(), CACERT=ca.cert) != "ok"


@pytest.mark.parametrize("by", ["option", "environment"])
def test_connect_proxy(place, probe, by):
    _, ca, https = place
    with ConnectProxy({"sbx.test": https.port}) as proxy:
        options = {"PROXY": proxy.url} if by == "option" else {"https_proxy": proxy.url}
        assert probe("https://sbx.test", CACERT=ca.cert, **options) == "ok"
        assert proxy.targets == ["sbx.test:443"]


def test_proxy_that_wants_a_password(place, probe):
    _, ca, https = place
    with ConnectProxy({"sbx.test": https.port}, credentials="a:b") as proxy:
        assert kind(probe("https://sbx.test", CACERT=ca.cert, PROXY=proxy.url)) == (
            "EHOSTUNREACH", CONNECT)


def test_loopback_is_asked_directly(place, probe):
    server, ca, https = place
    with ConnectProxy() as proxy:
        assert probe(https.url(), CACERT=ca.cert, PROXY=proxy.url) == "ok"
        assert probe(server.url, http_proxy=proxy.url, all_proxy=proxy.url) == "ok"
        assert proxy.connections == 0


def test_plain_http_to_a_name_is_refused(probe):
    assert probe("http://sbx.test").startswith("refused the token must not cross plain http")


def test_wrong_token(place, probe, tmp_path):
    server, _, _ = place
    other = tmp_path / "other"
    other.write_text("wrong")
    line = probe(server.url, TOKEN_FILE=other)
    assert line.startswith("EACCES ") and " 401 " in line
