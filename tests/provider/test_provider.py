"""Runs the C tests of client/ over the wire; provider_test against sbxd, the others alone."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from sbxtest.build import build_dir
from sbxtest.process import sanitizer_env, sanitizer_reports, valgrind
from sbxtest.timing import scale

HERE = Path(__file__).parent


def cases(source):
    """The names of the tests in a C file."""
    text = (HERE / source).read_text()
    names = re.findall(r"cmocka_unit_test(?:_setup_teardown)?\((test_\w+)", text)
    assert names
    return names


def run(program, case, tmp_path, env):
    """One test of a cmocka program, chosen by its name."""
    report = tmp_path / "sanitizer"
    done = subprocess.run(
        [*valgrind(report), build_dir() / "tests/provider" / program, case],
        env={**os.environ, **sanitizer_env(report), **env},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=scale(120), check=False, cwd=tmp_path)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == 0 and "[  PASSED  ] 1 test(s)." in text, text
    assert not sanitizer_reports(report)


@pytest.mark.parametrize("program,case", [
    (program, case) for program in ("http_test", "trust_test") for case in cases(f"{program}.c")])
def test_alone(program, case, tmp_path):
    run(program, case, tmp_path, {})


@pytest.mark.parametrize("profile", ["host", "overlay"])
@pytest.mark.parametrize("case", cases("provider_test.c"))
def test_provider(case, profile, start_sbxd, tmp_path):
    server = start_sbxd(profile=profile, token="s3cret")
    run("provider_test", case, tmp_path,
        {"SBX_ENDPOINT": server.url, "SBX_TOKEN_FILE": str(server.token_file)})
