"""What the kernel holds of files: numbers, replaced and removed files, directories."""

import os
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.core


@pytest.fixture
def mount(start_sbxd, start_mount):
    mount = start_mount(start_sbxd().url)
    for name in ("a", "b"):
        (mount / name).mkdir()
    return mount


@pytest.fixture
def fs(mount):
    return mount / "a/fs"


def save(path, data: bytes):
    """As editors save: a temporary file, renamed over the old one."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(data)
    temporary.rename(path)


@pytest.mark.long(10)
def test_numbers_of_saved_and_new_files_differ(fs):
    seen = {}
    for index in range(300 if os.environ.get("SBX_SLOW") == "1" else 100):
        save(fs / "A", b"x")
        (fs / f"B{index}").write_bytes(b"y")
        saved, new = os.stat(fs / "A"), os.stat(fs / f"B{index}")
        assert saved.st_ino != new.st_ino
        assert new.st_ino not in seen
        seen[new.st_ino] = index
        with open(fs / f"B{index}", "rb") as file:
            assert os.fstat(file.fileno()).st_ino == new.st_ino
    listed = {entry.name: entry.inode() for entry in os.scandir(fs)}
    assert listed == {name: os.stat(fs / name).st_ino for name in listed}


def test_number_stays_while_open(fs):
    (fs / "f").write_bytes(b"one")
    with open(fs / "f", "r+b") as file:
        number = os.fstat(file.fileno()).st_ino
        file.write(b"two")
        file.flush()
        os.fsync(file.fileno())
        assert os.fstat(file.fileno()).st_ino == number
        assert os.stat(fs / "f").st_ino == number


def test_links_share_a_number(fs):
    (fs / "f").write_bytes(b"x")
    os.stat(fs / "f")
    os.link(fs / "f", fs / "g")
    assert os.stat(fs / "f").st_ino == os.stat(fs / "g").st_ino
    assert os.stat(fs / "f").st_nlink == 2


def test_two_sessions_share_no_number(mount, fs):
    """cmp, diff and cp refuse what they take for the same file."""
    other = mount / "b/fs"
    (fs / "f").write_bytes(b"one")
    (other / "f").write_bytes(b"two")
    assert os.stat(fs / "f").st_ino != os.stat(other / "f").st_ino
    assert subprocess.run(["cmp", "-s", fs / "f", other / "f"], check=False).returncode == 1
    subprocess.run(["cp", fs / "f", other / "f"], check=True)
    subprocess.run(["diff", "-r", fs, other], check=True)


def test_an_open_file_keeps_its_version(fs):
    save(fs / "f", b"a" * 100000)
    with open(fs / "f", "rb", buffering=0) as old:
        first = old.read(1000)
        save(fs / "f", b"b" * 50)
        assert (fs / "f").read_bytes() == b"b" * 50
        rest = b""
        while chunk := old.read(65536):
            rest += chunk
        assert first + rest == b"a" * 100000
        assert os.fstat(old.fileno()).st_size == 100000
    assert (fs / "f").read_bytes() == b"b" * 50


def test_an_open_file_without_a_name(fs):
    with open(fs / "f", "w+b", buffering=0) as file:
        file.write(b"hello")
        os.unlink(fs / "f")
        file.write(b" there")
        assert os.pread(file.fileno(), 100, 0) == b"hello there"
        found = os.fstat(file.fileno())
        assert (found.st_size, found.st_nlink) == (11, 0)
        os.ftruncate(file.fileno(), 5)
        os.fchmod(file.fileno(), 0o600)
        assert os.fstat(file.fileno()).st_size == 5
        assert not os.path.exists(fs / "f")
    assert os.listdir(fs) == []


def test_a_removed_directory_that_somebody_stands_in(fs):
    (fs / "d/e").mkdir(parents=True)
    fd = os.open(fs / "d/e", os.O_RDONLY)
    try:
        shutil.rmtree(fs / "d")
        assert os.fstat(fd).st_nlink == 0
        with pytest.raises(FileNotFoundError):
            os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=fd)
    finally:
        os.close(fd)


def test_files_of_a_renamed_directory(fs):
    (fs / "p/q/r").mkdir(parents=True)
    (fs / "p/q/r/f").write_bytes(b"x")
    with open(fs / "p/q/r/f", "r+b", buffering=0) as file:
        number = os.stat(fs / "p/q").st_ino
        os.rename(fs / "p", fs / "p2")
        assert (fs / "p2/q/r/f").read_bytes() == b"x"
        assert os.stat(fs / "p2/q").st_ino == number
        file.write(b"y")
    assert (fs / "p2/q/r/f").read_bytes() == b"y"
    assert not (fs / "p").exists()


def test_a_big_directory(mount, fs):
    """20,000 names, each once."""
    wanted = {f"{index}-{'x' * 20}" for index in range(20000)}
    root = mount.status("a")["root"]
    os.mkdir(f"{root}/big")
    for name in wanted:
        os.close(os.open(f"{root}/big/{name}", os.O_CREAT | os.O_WRONLY))
    listed = os.listdir(fs / "big")
    assert len(listed) == len(wanted)
    assert set(listed) == wanted
    found = subprocess.run(["find", fs / "big", "-type", "f", "-printf", "%f\n"], check=True,
                           capture_output=True, text=True)
    assert set(found.stdout.split()) == wanted


def test_rewinding_sees_what_is_new(fs):
    (fs / "one").write_bytes(b"")
    script = """
        opendir(my $dir, $ARGV[0]) or die;
        my @first = sort grep(!/^\\./, readdir($dir));
        open(my $file, '>', "$ARGV[0]/two") or die;
        close($file) or die;
        my @end = readdir($dir);
        rewinddir($dir);
        my @second = sort grep(!/^\\./, readdir($dir));
        print "@first|@end|@second";
    """
    found = subprocess.run(["perl", "-e", script, fs], check=True, capture_output=True, text=True)
    assert found.stdout == "one||one two"


def test_removing_while_listing(mount, fs):
    root = mount.status("a")["root"]
    os.mkdir(f"{root}/d")
    for index in range(300):
        os.close(os.open(f"{root}/d/{'n' * 100}{index}", os.O_CREAT | os.O_WRONLY))
    subprocess.run(["rm", "-r", fs / "d"], check=True)
    assert not (fs / "d").exists()
    assert not os.path.exists(f"{root}/d")


def test_no_fifo_is_made_and_owners_stay(fs):
    (fs / "f").write_bytes(b"")
    with pytest.raises(PermissionError):
        os.mkfifo(fs / "fifo")
    with pytest.raises(PermissionError):
        os.chown(fs / "f", 4711, -1)
    with pytest.raises(PermissionError):
        os.chmod(fs / "f", 0o4755)
    os.chown(fs / "f", os.stat(fs / "f").st_uid, os.stat(fs / "f").st_gid)


def test_long_names(fs):
    (fs / ("n" * 255)).write_bytes(b"x")
    with pytest.raises(OSError):
        (fs / ("n" * 256)).write_bytes(b"x")
    assert os.listdir(fs) == ["n" * 255]
