"""Locks through two mounts of one cluster: called by locks.rs as `locks.py WHAT DIRECTORY DIRECTORY`.

To the kernel the two mounts are two file systems, so that one process is two owners here."""

import contextlib
import errno
import faulthandler
import fcntl
import os
import signal
import sqlite3
import struct
import sys
import threading
import time

R, W, U = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK
GETLK, SETLK, SETLKW = fcntl.F_GETLK, fcntl.F_SETLK, fcntl.F_SETLKW
OFD_GETLK, OFD_SETLK, OFD_SETLKW = 36, 37, 38
FLOCK = "hhqqi4x"


def posix(fd, mode, start=0, length=0, command=SETLK):
    return struct.unpack(FLOCK, fcntl.fcntl(fd, command, struct.pack(FLOCK, mode, os.SEEK_SET, start, length, 0)))


@contextlib.contextmanager
def refused(number):
    try:
        yield
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError(f"not refused with {errno.errorcode[number]}")


def both(a, b, name, flags=os.O_RDWR | os.O_CREAT):
    return os.open(f"{a}/{name}", flags), os.open(f"{b}/{name}", flags)


def soon(what, limit=10.0):
    """How long it took until `what` was not refused any more."""
    begin = time.monotonic()
    while True:
        try:
            what()
            return time.monotonic() - begin
        except BlockingIOError:
            assert time.monotonic() - begin < limit, "still refused"
            time.sleep(0.01)


def exclusion(a, b):
    here, there = both(a, b, "f")
    for command in (SETLK, OFD_SETLK):
        posix(here, W, 10, 10, command)
        for start, length in ((10, 10), (0, 11), (19, 1), (0, 0), (15, 0)):
            for mode in (R, W):
                with refused(errno.EAGAIN):
                    posix(there, mode, start, length, command)
        posix(there, W, 0, 10, command)
        posix(there, W, 20, 0, command)
        # A hole in the middle.
        posix(here, U, 13, 2, command)
        posix(there, R, 13, 2, command)
        with refused(errno.EAGAIN):
            posix(here, W, 0, 0, command)
        posix(here, R, 13, 2, command)
        with refused(errno.EAGAIN):
            posix(there, W, 13, 1, command)
        # Weaker is not in the way of readers.
        posix(here, R, 15, 5, command)
        posix(there, R, 15, 5, command)
        posix(there, U, 0, 0, command)
        posix(here, W, 0, 0, command)
        posix(here, U, 0, 0, command)
        posix(there, W, 0, 0, command)
        posix(there, U, 0, 0, command)
    # F_GETLK: what is in the way, of this host or of another.
    posix(here, W, 5, 7)
    assert posix(there, R, 0, 0, GETLK)[:4] == (W, os.SEEK_SET, 5, 7)
    assert posix(there, R, 0, 5, GETLK)[0] == U
    assert posix(here, R, 0, 0, GETLK)[0] == U, "one's own is in nobody's way"
    if os.fork() == 0:
        found = posix(here, R, 0, 0, GETLK)
        os._exit(0 if found[0] == W and found[4] == os.getppid() else 1)
    assert os.wait()[1] == 0, "the process that holds it is not named"
    posix(here, U)
    # flock is another world.
    fcntl.flock(here, fcntl.LOCK_EX)
    posix(there, W)
    for mode in (fcntl.LOCK_SH, fcntl.LOCK_EX):
        with refused(errno.EWOULDBLOCK):
            fcntl.flock(there, mode | fcntl.LOCK_NB)
    fcntl.flock(here, fcntl.LOCK_SH)
    fcntl.flock(there, fcntl.LOCK_SH | fcntl.LOCK_NB)
    with refused(errno.EWOULDBLOCK):
        fcntl.flock(here, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(here, fcntl.LOCK_UN)
    fcntl.flock(there, fcntl.LOCK_EX | fcntl.LOCK_NB)


def closing(a, b):
    one, there = both(a, b, "f")
    two = os.open(f"{a}/f", os.O_RDWR)
    # fcntl: any close of the file by the process, at once.
    posix(one, W)
    os.close(two)
    posix(there, W)
    posix(there, U)
    # flock, and fcntl of the open file: the last close of the open file, soon.
    for lock in (lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB), lambda fd: posix(fd, W, command=OFD_SETLK)):
        two = os.open(f"{a}/f", os.O_RDWR)
        three = os.dup(two)
        other = os.open(f"{a}/f", os.O_RDWR)
        lock(two)
        os.close(other)
        os.close(two)
        with refused(errno.EAGAIN):
            lock(there)
        if os.fork() == 0:
            time.sleep(0.5)
            os._exit(0)
        os.close(three)
        with refused(errno.EAGAIN):
            lock(there)
        os.wait()
        soon(lambda: lock(there))
        os.close(there)
        there = os.open(f"{b}/f", os.O_RDWR)
        # On the mount itself nobody sees that a close is still under way.
        soon(lambda: lock(one))
        posix(one, U, command=OFD_SETLK)
        fcntl.flock(one, fcntl.LOCK_UN)
        for _ in range(50):
            two = os.open(f"{a}/f", os.O_RDWR)
            lock(two)
            os.close(two)
        soon(lambda: lock(there))
        os.close(there)
        there = os.open(f"{b}/f", os.O_RDWR)
    # A process that is no more, however it ended.
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        fd = os.open(f"{a}/f", os.O_RDWR)
        posix(fd, W, 0, 5)
        posix(fd, W, 100, 5, OFD_SETLK)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(tell, b"x")
        time.sleep(100)
    os.read(ready, 1)
    with refused(errno.EAGAIN):
        posix(there, W)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    soon(lambda: posix(there, W))
    soon(lambda: fcntl.flock(there, fcntl.LOCK_EX | fcntl.LOCK_NB))


def promptly(measure, limit):
    """One of some times is short: each is longer where nobody has a CPU for it."""
    times = []
    while not times or times[-1] >= limit:
        assert len(times) < 5, f"never within {limit} s: {times}"
        times.append(measure())


def waiting(a, b):
    here, there = both(a, b, "f")
    kinds = (
        (lambda fd: fcntl.flock(fd, fcntl.LOCK_EX), lambda fd: fcntl.flock(fd, fcntl.LOCK_UN)),
        (lambda fd: posix(fd, W, 3, 4, SETLKW), lambda fd: posix(fd, U)),
        (lambda fd: posix(fd, W, 3, 4, OFD_SETLKW), lambda fd: posix(fd, U, command=OFD_SETLK)),
    )

    def woken_after(lock, unlock):
        lock(here)
        times = []

        def wait():
            lock(there)
            times.append(time.monotonic())

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.5)
        assert not times, "it did not wait"
        begin = time.monotonic()
        unlock(here)
        thread.join(60)
        assert times, "it was not woken"
        unlock(there)
        return times[0] - begin

    for lock, unlock in kinds:
        promptly(lambda: woken_after(lock, unlock), 1)


class Alarm(Exception):
    pass


def alarmed_after(lock, alarm):
    """When a wait for a lock that others hold has ended, to which a signal comes."""
    begin = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, alarm)
        lock()
    except Alarm:
        return time.monotonic() - begin
    raise AssertionError("got what is held")


def interrupted(a, b):
    here, there = both(a, b, "f")
    signal.signal(signal.SIGALRM, ring)
    for lock in (lambda: fcntl.flock(there, fcntl.LOCK_EX), lambda: posix(there, W, 0, 5, SETLKW)):
        fcntl.flock(here, fcntl.LOCK_EX)
        posix(here, W)
        promptly(lambda: alarmed_after(lock, 0.4), 1.5)
        # It waits no more: what is given up goes to nobody, and can be had again.
        for _ in range(2):
            fcntl.flock(here, fcntl.LOCK_UN)
            posix(here, U)
            time.sleep(0.1)
            fcntl.flock(here, fcntl.LOCK_EX | fcntl.LOCK_NB)
            posix(here, W)
    # A process that is killed while it waits.
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        posix(there, W, 0, 5, SETLKW)
        os._exit(1)
    time.sleep(0.4)
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    posix(here, U)
    posix(here, W)


def waits(child):
    """Until that process has asked for a lock, and has not got it."""
    calls = 0
    while calls < 5:
        assert os.waitpid(child, os.WNOHANG)[0] == 0, "it has ended"
        with open(f"/proc/{child}/syscall") as call:
            fields = call.read().split()
        calls = calls + 1 if fields[2:3] == [hex(SETLKW)] else 0
        time.sleep(0.1)


def deadlock(a, b):
    """Two processes on two mounts, each with what the other wants."""
    here, there = both(a, b, "f")
    ready, tell = os.pipe()
    # Held before the other one asks for it, however late this one runs.
    posix(here, W, 0, 1, SETLKW)
    child = os.fork()
    if child == 0:
        posix(there, W, 1, 1, SETLKW)
        os.write(tell, b"x")
        posix(there, W, 0, 1, SETLKW)
        os._exit(0)
    os.close(tell)
    os.read(ready, 1)
    waits(child)
    with refused(errno.EDEADLK):
        posix(here, W, 1, 1, SETLKW)
    # It goes on for the other once one gives up.
    posix(here, U)
    assert os.waitpid(child, 0)[1] == 0
    posix(here, W, 0, 0, SETLKW)


def ring(*_):
    raise Alarm


def signalled(a, b):
    """Both kinds are held by somebody else."""
    there = os.open(f"{b}/f", os.O_RDWR)
    signal.signal(signal.SIGALRM, ring)
    for lock in (
        lambda: fcntl.flock(there, fcntl.LOCK_EX),
        lambda: posix(there, W, 0, 5, SETLKW),
        lambda: posix(there, W, 0, 5, OFD_SETLKW),
    ):
        promptly(lambda: alarmed_after(lock, 0.3), 1.5)


def open_files(a, b):
    """The same cycle of open files, which Linux leaves alone: another thread may yet unlock."""
    here, there = both(a, b, "f")
    posix(here, W, 0, 1, OFD_SETLK)
    posix(there, W, 1, 1, OFD_SETLK)
    thread = threading.Thread(target=lambda: posix(here, W, 1, 1, OFD_SETLKW))
    thread.start()
    time.sleep(0.3)
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        posix(there, W, 0, 1, OFD_SETLKW)
    except Alarm:
        pass
    else:
        raise AssertionError("got what is held")
    posix(there, U, command=OFD_SETLK)
    thread.join(10)
    assert not thread.is_alive()
    posix(here, U, command=OFD_SETLK)
    process_and_open_file(here, there)


def process_and_open_file(here, there):
    """A cycle of the two, which Linux leaves alone for the open file in it."""
    posix(here, W, 0, 1, SETLK)
    posix(there, W, 1, 1, OFD_SETLK)
    thread = threading.Thread(target=lambda: posix(there, W, 0, 1, OFD_SETLKW))
    thread.start()
    time.sleep(0.3)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        posix(here, W, 1, 1, SETLKW)
    except Alarm:
        pass
    else:
        raise AssertionError("got what is held")
    posix(here, U)
    thread.join(10)
    assert not thread.is_alive()


def cycle_over_shards(a, b):
    """Processes on two mounts, each with what the one before wants, in directories of different shards, and one that waits
    for the cycle from outside. One gives up, and the others go on."""
    folders = os.environ["FOLDERS"].split()
    paths = [f"{(a, b)[number % 2]}/{folder}/f" for number, folder in enumerate(folders)]
    nexts = [f"{(a, b)[number % 2]}/{folder}/f" for number, folder in enumerate(folders[1:] + folders[:1])]
    ready, tell = os.pipe()
    begin, go = os.pipe()

    def member(held, wanted):
        files = [os.open(path, os.O_RDWR | os.O_CREAT) for path in (held, wanted)]
        posix(files[0], W, 0, 1, SETLKW)
        os.write(tell, b"x")
        os.read(begin, 1)
        try:
            posix(files[1], W, 0, 1, SETLKW)
        except OSError as error:
            return 1 if error.errno == errno.EDEADLK else 2
        return 0

    def outsider():
        file = os.open(nexts[0], os.O_RDWR | os.O_CREAT)
        os.write(tell, b"x")
        os.read(begin, 1)
        posix(file, W, 0, 1, SETLKW)
        return 0

    children = []
    for run in [lambda pair=pair: member(*pair) for pair in zip(paths, nexts)] + [outsider]:
        child = os.fork()
        if child == 0:
            os._exit(run())
        children.append(child)
    for _ in children:
        os.read(ready, 1)
    since = time.monotonic()
    os.write(go, b"x" * len(children))
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    took = time.monotonic() - since
    assert codes[-1] == 0 and sorted(codes[:-1]) == [0] * (len(folders) - 1) + [1], codes
    # One is chosen; that this one is stopped, say, would make others wait for two seconds more.
    assert took < 10, took


def hold(a, b):
    """Holds locks on the second mount until it is told to end; says what it saw."""
    fd = os.open(f"{b}/held", os.O_RDWR | os.O_CREAT)
    posix(fd, W, 0, 10)
    posix(fd, R, 20, 10, OFD_SETLK)
    fcntl.flock(fd, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.readline()
    posix(fd, U)
    posix(fd, U, command=OFD_SETLK)
    fcntl.flock(fd, fcntl.LOCK_UN)
    print("free", flush=True)
    sys.stdin.readline()


MANY = 60_000


def hold_many(a, b):
    """As many ranges on the second mount as a session may have, or nearly so; asks and locks on when it is told to."""
    fd = os.open(f"{b}/many", os.O_RDWR | os.O_CREAT)
    for n in range(MANY):
        posix(fd, W, 2 * n, 1)
    print("held", flush=True)
    sys.stdin.readline()
    os.listdir(b)
    posix(fd, W, 2 * MANY, 1)
    print("free", flush=True)
    sys.stdin.readline()


def are_held(a, b):
    fd = os.open(f"{a}/many", os.O_RDWR)
    for n in (0, 1, MANY // 2, MANY - 1):
        with refused(errno.EAGAIN):
            posix(fd, R, 2 * n, 1)
        posix(fd, W, 2 * n + 1, 1)


def is_held(a, b):
    """On the first mount, what `hold` holds on the second."""
    fd = os.open(f"{a}/held", os.O_RDWR)
    for mode, start in ((R, 5), (W, 0), (W, 25)):
        with refused(errno.EAGAIN):
            posix(fd, mode, start, 1)
    posix(fd, R, 25, 1)
    with refused(errno.EAGAIN):
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


def is_free(a, b):
    fd = os.open(f"{a}/held", os.O_RDWR)
    posix(fd, W)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_free_but_for_flock(a, b):
    posix(os.open(f"{a}/held", os.O_RDWR), W)


def becomes_free(a, b):
    """Waits for it; prints how long that took, in seconds."""
    fd = os.open(f"{a}/held", os.O_RDWR)
    begin = time.monotonic()
    posix(fd, W, command=SETLKW)
    fcntl.flock(fd, fcntl.LOCK_EX)
    print(time.monotonic() - begin)


def relies(a, b):
    """Holds a lock on the second mount, and says whether it can still write when it is told to."""
    fd = os.open(f"{b}/held", os.O_RDWR | os.O_CREAT)
    posix(fd, W, 0, 10)
    print("held", flush=True)
    sys.stdin.readline()
    try:
        os.pwrite(fd, b"x", 0)
        print("written", flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
    os.close(fd)

    # The last close is on its way when this one returns.
    def write():
        fd = os.open(f"{b}/held", os.O_RDWR)
        try:
            os.pwrite(fd, b"x", 0)
        except OSError as error:
            assert error.errno == errno.EIO, error
            raise BlockingIOError from error
        finally:
            os.close(fd)

    soon(write)
    print("written", flush=True)
    sys.stdin.readline()


def take(a, b):
    """Waits for a lock on the first mount, and holds it until it is told to end."""
    fd = os.open(f"{a}/held", os.O_RDWR | os.O_CREAT)
    posix(fd, W, 0, 10, SETLKW)
    print("held", flush=True)
    sys.stdin.readline()


def count(a, b):
    """Counts up in a file under a lock until it is told to stop; prints how often it did."""
    kind = os.environ["KIND"]
    fd = os.open(f"{a}/count-{kind}", os.O_RDWR)
    lock, unlock = {
        "flock": (lambda: fcntl.flock(fd, fcntl.LOCK_EX), lambda: fcntl.flock(fd, fcntl.LOCK_UN)),
        "posix": (lambda: posix(fd, W, 5, 5, SETLKW), lambda: posix(fd, U)),
    }[kind]
    done = 0
    while not os.path.exists(f"{a}/stop"):
        lock()
        value = int(os.pread(fd, 20, 0))
        os.pwrite(fd, b"%d\n" % (value + 1), 0)
        unlock()
        done += 1
    print(done)


def insert(a, b):
    """One of several writers of a database, through the first mount."""
    database = sqlite3.connect(f"{a}/base", timeout=100, isolation_level=None)
    database.execute("create table if not exists t (writer integer, n integer)")
    for n in range(int(os.environ["ROWS"])):
        database.execute("begin immediate")
        database.execute("insert into t values (?, ?)", (os.getpid(), n))
        database.execute("commit")


def check(a, b):
    for mount in (a, b):
        database = sqlite3.connect(f"{mount}/base", timeout=100)
        assert database.execute("pragma integrity_check").fetchall() == [("ok",)]
        print(database.execute("select count(*) from t").fetchone()[0])


# Where it hangs, say where, before it is ended for that.
faulthandler.dump_traceback_later(100)
globals()[sys.argv[1]](sys.argv[2], sys.argv[3])
