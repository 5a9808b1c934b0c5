"""Work of one session that is more than all threads together."""

import os
import subprocess
import time

from sbxtest import scale, wait_for

FILES = 700  # more than there are threads for uploads


def test_many_adopted_files_hold_nobody_up(start_sbxd, start_mount):
    """What a dead mount left is sent all at once: its own changes, and other sessions, go on."""
    server = start_sbxd()
    mount = start_mount(server.url)
    for name in ("dev1", "dev2"):
        (mount / name).mkdir()
    files = [os.open(mount / f"dev1/fs/f{i}", os.O_WRONLY | os.O_CREAT) for i in range(FILES)]
    for i, file in enumerate(files):
        os.write(file, b"%d" % i)
    server.set_faults("*:*:refuse")
    mount.kill()
    for file in files:
        try:
            os.close(file)
        except OSError:
            pass
    subprocess.run(["fusermount3", "-uz", str(mount.mnt)], check=True)
    server.set_faults("exec:*:delay=50")
    mount.start()
    assert mount.status("dev1")["pending_writes"].split()[0] == str(FILES)
    with subprocess.Popen(["ls", mount / "dev1/fs"], stdout=subprocess.DEVNULL):
        for i in range(20):
            begin = time.monotonic()
            (mount / f"dev2/fs/g{i}").write_text("x")
            assert time.monotonic() - begin < scale(6)
    wait_for(lambda: mount.status("dev1")["pending_writes"].split()[0] == "0", 60)
    root = server.session_dir(mount.status("dev1")["id"])
    assert all((root / f"f{i}").read_bytes() == b"%d" % i for i in range(FILES))
