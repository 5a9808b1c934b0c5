"""git on the mount, beside a git in the sandbox."""

import threading
import time

import pytest

from sbxtest import CommandError
from sbxtest.fixtures import quick_kinds

MAKE_REPO = """
    git init -q -b main src
    cd src
    for i in 1 2 3; do
        mkdir d$i
        for j in 1 2; do echo $i $j >d$i/f$j; done
    done
    printf '#!/bin/sh\\necho hello\\n' >run.sh
    chmod 755 run.sh
    ln -s d1/f1 link
    git add .
    git commit -qm one
"""


def clean(place, directory):
    assert place.run("git", "status", "--porcelain", cwd=place.fs / directory) == ""


@pytest.mark.long(20)
def test_work_in_a_repository(place):
    place.sh(MAKE_REPO)
    repo = place.fs / "src"
    place.sh("""
        git checkout -qb topic
        echo t >>d1/f1
        git commit -qam topic
        git checkout -q main
        echo m >>d2/f2
        git mv d3 e3
        git commit -qam main
        git rebase -q main topic
        git gc -q
        git fsck --strict --no-progress
    """, cwd=repo)
    clean(place, "src")
    assert place.run("git", "log", "--format=%s", cwd=repo).split() == ["topic", "main", "one"]
    # The same repository is whole and clean for the sandbox's git.
    assert place.inside("git fsck --strict --no-progress && git status --porcelain &&"
                        " git log --format=%s", cwd="src").split() == ["topic", "main", "one"]
    assert place.inside("./run.sh; cat link", cwd="src") == "hello\n1 1\nt\n"


@quick_kinds
def test_a_second_working_tree(place):
    place.inside(MAKE_REPO)
    place.fresh()
    place.sh("""
        git worktree add -q ../tree -b side
        cd ../tree
        echo w >w
        git add w
        git commit -qm side
        test -z "$(git status --porcelain)"
        cd ../src
        git worktree remove ../tree
        git merge -q --no-edit side
        git tag -a v1 -m v1
        git fsck --strict --no-progress
    """, cwd=place.fs / "src")
    assert not (place.fs / "tree").exists()
    clean(place, "src")
    assert place.inside("git describe; git worktree list | wc -l", cwd="src").split() == ["v1", "1"]


@pytest.mark.long(12)
@quick_kinds
def test_clone_and_exchange(place):
    place.sh(MAKE_REPO)
    place.sh("""
        git clone -q "file://$PWD/src" clone
        cd clone
        echo c >>d1/f1
        git commit -qam clone
        git push -q origin HEAD:pushed
        git reset -q --hard HEAD~1
        git fetch -q
        git merge -q origin/pushed
    """)
    clean(place, "clone")
    place.inside("""
        cd clone
        test -z "$(git status --porcelain)"
        echo s >>d2/f2
        git commit -qam sandbox
        git push -q origin HEAD:main2
    """.replace("git push", "git remote set-url origin ../src && git push"))
    place.fresh()
    assert place.run("git", "log", "--format=%s", "main2", cwd=place.fs / "src").split() == [
        "sandbox", "clone", "one"]
    place.run("git", "fsck", "--strict", "--no-progress", cwd=place.fs / "clone")
    clean(place, "clone")


@quick_kinds
def test_first_status_after_a_clone_reads_no_content(place):
    """The index that the clone wrote is believed: what checkout's fstat saw is what lstat sees.

    git reads a file again whose mtime is in the index's second. So the last file that is checked
    out, an empty one, takes a second.
    """
    place.sh(MAKE_REPO + """
        for i in 1 2 3 4 5; do yes $i | head -c 20000 >big$i; done
        echo 'zz filter=slow' >.gitattributes
        : >zz
        git add .
        git commit -qm slow
    """, cwd=place.work)
    place.sh(f"git -c filter.slow.smudge='sleep 1.1; cat' clone -q file://{place.work}/src clone")
    time.sleep(1.2)  # so that nothing is guessed from what the clone has read
    mark = place.log_mark()
    clean(place, "clone")
    asked = place.server.log(mark)
    assert "get" not in {record.route for record in asked}
    # Files of .git, at most, whose objects are small: one of the others is 20,000 bytes.
    assert sum(r.bytes_out for r in asked if r.program == "sbxfs-pack") < 20000
    assert len(asked) <= 12


@quick_kinds
def test_index_lock_of_the_other_side(place):
    place.sh(MAKE_REPO)
    place.inside("echo held >src/.git/index.lock")
    place.fresh()
    with pytest.raises(CommandError, match="index.lock.*File exists"):
        place.run("git", "add", "-A", cwd=place.fs / "src")
    place.inside("rm src/.git/index.lock")
    (place.fs / "src/.git/index.lock").write_text("held here")
    with pytest.raises(CommandError, match="index.lock.*File exists"):
        place.inside("echo x >new && git add -A", cwd="src")
    (place.fs / "src/.git/index.lock").unlink()
    place.inside("git add -A && git commit -qm new", cwd="src")
    place.fresh()
    clean(place, "src")


@pytest.mark.slow
def test_locks_between_two_gits(start_place):
    """Commits from both sides at once into one repository: each that succeeded is there.

    With ttl=0, since the one reads what the other wrote a moment ago.
    """
    place = start_place("gnu-host", ["ttl=0"])
    place.inside(MAKE_REPO + "git config core.filesRefLockTimeout 20000; git branch shared main")
    place.fresh()
    script = ("i=0; while [ $i -lt 5 ]; do i=$((i+1)); "
              "c=$(git commit-tree -p main -m \"{0} $i\" 'main^{{tree}}'); "
              "while ! git update-ref -m x refs/heads/{0}/$i $c; do :; done; "
              "until old=$(git rev-parse shared 2>/dev/null || git rev-parse main); "
              "new=$(git commit-tree -p $old -m \"{0} $i\" 'main^{{tree}}'); "
              "git update-ref refs/heads/shared $new $old 2>/dev/null; do :; done; done")
    failed = []

    def sandbox():
        try:
            place.inside(script.format("there"), cwd="src", seconds=100)
        except Exception as error:  # pylint: disable=broad-except
            failed.append(error)

    thread = threading.Thread(target=sandbox)
    thread.start()
    try:
        place.sh(script.format("here"), cwd=place.fs / "src", seconds=100)
    finally:
        thread.join()
    assert not failed
    wanted = {f"{side} {i}" for side in ("here", "there") for i in range(1, 6)}
    for log in (place.run("git", "log", "--format=%s", "shared", cwd=place.fs / "src"),
                place.inside("git log --format=%s shared", cwd="src")):
        lines = log.splitlines()
        assert len(lines) == 11
        assert set(lines) == wanted | {"one"}
    branches = place.run("git", "branch", "--format=%(refname:short)", cwd=place.fs / "src")
    assert set(branches.split()) == {"main", "shared"} | {w.replace(" ", "/") for w in wanted}
    place.run("git", "fsck", "--strict", "--no-progress", cwd=place.fs / "src")
    place.inside("git fsck --strict --no-progress", cwd="src")
