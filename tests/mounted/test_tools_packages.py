"""Package managers: real npm and venv, made on one side and used on the other."""

import io
import json
import os
import subprocess
import tarfile

import pytest

from sbxtest.fixtures import python_kinds, quick_kinds

PACKAGES = {
    "alpha": {"package.json": json.dumps({"name": "alpha", "version": "1.0.0",
                                          "bin": {"alpha": "bin/run.js"},
                                          "dependencies": {"beta": "1.0.0"}}),
              "bin/run.js": "#!/usr/bin/env node\nconsole.log('alpha ' + require('beta').name)\n"},
    "beta": {"package.json": json.dumps({"name": "beta", "version": "1.0.0",
                                         "main": "lib/index.js"}),
             "lib/index.js": "exports.name = require('./name.json')\n",
             "lib/name.json": '"beta"\n'},
}

PROJECT = {"name": "project", "version": "1.0.0", "scripts": {"go": "alpha"},
           "dependencies": {"alpha": "file:tgz/alpha.tgz", "beta": "file:tgz/beta.tgz"}}


def write_project(top):
    """A project whose packages are tarballs beside it, with its lock file."""
    os.makedirs(top / "tgz")
    for name, files in PACKAGES.items():
        with tarfile.open(top / f"tgz/{name}.tgz", "w:gz") as tar:
            for path, text in files.items():
                info = tarfile.TarInfo(f"package/{path}")
                info.size, info.mode = len(text), 0o755 if path.startswith("bin/") else 0o644
                tar.addfile(info, io.BytesIO(text.encode()))
    (top / "package.json").write_text(json.dumps(PROJECT))
    subprocess.run(["npm", "install", "--offline", "--package-lock-only", "--no-audit"], cwd=top,
                   check=True, capture_output=True, env={**os.environ, "HOME": str(top.parent)})


CI = ["npm", "ci", "--offline", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel",
      "error"]


@pytest.mark.long(10)
@quick_kinds
def test_npm(place):
    """npm ci on the mount, then in the sandbox; its links are `../alpha/bin/run.js`."""
    write_project(place.work / "project")
    place.run("cp", "-r", place.work / "project", place.fs / "here")
    place.run(*CI, cwd=place.fs / "here", seconds=120)
    assert os.readlink(place.fs / "here/node_modules/.bin/alpha") == "../alpha/bin/run.js"
    assert place.run("node_modules/.bin/alpha", cwd=place.fs / "here") == "alpha beta\n"
    assert place.inside("node_modules/.bin/alpha", cwd="here") == "alpha beta\n"
    # Again: what is there is taken away first.
    place.run(*CI, cwd=place.fs / "here", seconds=120)
    assert place.inside("npm run --silent go", cwd="here") == "alpha beta\n"

    place.run("cp", "-r", place.work / "project", place.fs / "there")
    place.inside(" ".join(CI), cwd="there", seconds=120)
    place.fresh()
    assert place.run("node_modules/.bin/alpha", cwd=place.fs / "there") == "alpha beta\n"
    assert place.run("npm", "run", "--silent", "go", cwd=place.fs / "there") == "alpha beta\n"
    place.run("diff", "-r", "--no-dereference", "here", "there")


VENV = "import sys, os; print(os.path.relpath(sys.prefix), sys.prefix != sys.base_prefix)"


def check_venvs(place, where):
    """The environment runs on both sides."""
    assert place.run("venv/bin/python", "-c", VENV, cwd=place.fs / where) == "venv True\n"
    assert place.inside("venv/bin/python -c \"$1\"", VENV, cwd=where) == "venv True\n"


@python_kinds
def test_venv(place):
    """Its bin/python3 is an absolute link, which leads into the sandbox from here."""
    for where in ("here", "there"):
        (place.fs / where).mkdir()
    place.run("/usr/bin/python3", "-m", "venv", "--without-pip", "venv", cwd=place.fs / "here")
    check_venvs(place, "here")
    (place.fs / "here/venv/lib/python3.11/site-packages/mine.py").write_text("x = 42\n")
    assert place.inside("venv/bin/python -c 'import mine; print(mine.x)'", cwd="here") == "42\n"
    place.inside("/usr/bin/python3 -m venv --without-pip venv", cwd="there")
    place.fresh()
    check_venvs(place, "there")
    shown = os.readlink(place.fs / "there/venv/bin/python3")
    assert shown == "../../../../.sbxfs-root/usr/bin/python3"
    assert os.readlink(place.root / "there/venv/bin/python3") == "/usr/bin/python3"


@pytest.mark.slow
@python_kinds
def test_venv_with_pip(place):
    place.run("/usr/bin/python3", "-m", "venv", "venv", seconds=400)
    assert "pip" in place.inside("venv/bin/python -m pip --version")
    assert "pip" in place.run("venv/bin/python", "-m", "pip", "--version", seconds=120)
