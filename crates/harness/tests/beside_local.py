"""The same calls on a local file system and on the mounts of one cluster, a mount chosen anew for each call: what a call
answers, and what is seen afterwards, is the same. Called by beside_local.rs as
`beside_local.py LOCAL MOUNT,MOUNT,... SEED STEPS`; needs root. What differs is printed with all calls before it.

Not compared: sizes of directories, blocks, inode numbers, access times; times of change only as far as a call changes them."""

import ctypes
import errno
import os
import random
import stat
import struct
import sys

NAMES = ["a", "b", "c", "d", "e", "f", "x" * 255]
# User, group, and other groups.
USERS = [(0, 0, [0]), (1001, 2001, [2001]), (1002, 2002, [2001, 2002]), (1003, 2003, [])]
OPEN_MAX = 12
COMPARED_EVERY = 100
# Clocks of services and kernels tick that coarsely, in nanoseconds.
TICK = 20_000_000
NOREPLACE, EXCHANGE = 1, 2
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 3, 16
AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400
SYS_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}[os.uname().machine]

libc = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def renameat2(source, target, flags, source_dir=AT_FDCWD, target_dir=AT_FDCWD):
    checked(libc.syscall(SYS_RENAMEAT2, source_dir, os.fsencode(source), target_dir, os.fsencode(target), flags))


def fallocate(fd, mode, offset, length):
    checked(libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)))


def link_open_file(fd, target):
    path = os.fsencode(f"/proc/self/fd/{fd}")
    checked(libc.linkat(AT_FDCWD, path, AT_FDCWD, os.fsencode(target), AT_SYMLINK_FOLLOW))


def access_control_list(entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def seen(meta):
    """What must be the same of an inode, but for its times."""
    same = (oct(meta.st_mode), meta.st_nlink, meta.st_uid, meta.st_gid, meta.st_rdev)
    has_size = stat.S_ISREG(meta.st_mode) or stat.S_ISLNK(meta.st_mode)
    return same + ((meta.st_size,) if has_size else ())


def contents(path):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(fd, 4 << 20) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)


def attributes(path):
    """Extended ones, but for those that the system gives to files by itself."""
    names = [name for name in os.listxattr(path, follow_symlinks=False) if name != "security.selinux"]
    return sorted((name, os.getxattr(path, name, follow_symlinks=False)) for name in names)


def short(value):
    text = repr(value)
    return text if len(text) <= 160 else text[:160] + "..."


class Side:
    """One of the two file systems: a path of it, and what is open there."""

    def __init__(self, root):
        self.root = root
        self.open = {}

    def at(self, path, root=None):
        return (root or self.root) + ("/" + path if path else "")


class Open:
    """What is open on both, there through one of the mounts."""

    def __init__(self, mount, is_dir):
        self.mount, self.is_dir = mount, is_dir


class Differs(Exception):
    pass


class Beside:
    def __init__(self, local, mounts, seed):
        self.local, self.weft, self.mounts = Side(local), Side(mounts[0]), mounts
        self.dice = random.Random(seed)
        self.slots, self.next_slot = {}, 0
        self.paths = [""]
        # Of each local inode, its times when it was last looked at, here and there.
        self.times = {}
        self.calls = []
        self.user = 0

    # Calls on both.

    def become(self, user):
        if user == self.user:
            return
        os.seteuid(0)
        uid, gid, groups = USERS[user]
        os.setgroups(groups)
        os.setegid(gid)
        os.seteuid(uid)
        self.user = user

    def outcome(self, call, side, root, user):
        self.become(user)
        try:
            return "ok", call(lambda path: side.at(path, root), side.open)
        except OSError as error:
            return "error", errno.errorcode.get(error.errno, error.errno)
        finally:
            self.become(0)

    def same(self, text, call, mount=None, user=0, looks=(), gone=False):
        """Makes a call on both, and answers the outcome. `looks` are paths that a kernel may know from before another
        mount changed them: it says so once (see the README). `gone`: it is about what may be in a directory that another
        mount has removed, of which a kernel knows the permissions."""
        mount = self.mount() if mount is None else mount
        root = self.mounts[mount]
        local = self.outcome(call, self.local, self.local.root, user)
        weft = self.outcome(call, self.weft, root, user)
        text = f"m{mount} u{user} {text} -> {short(local)}"
        if local != weft and weft in (("error", "ESTALE"), ("error", "EPERM")):
            for path in looks:
                self.outcome(lambda at, _: os.lstat(at(path.rstrip("/"))), self.weft, root, 0)
            weft = self.outcome(call, self.weft, root, user)
        self.calls.append(text)
        if gone and (local, weft) == (("error", "ENOENT"), ("error", "EACCES")):
            return local
        if local != weft:
            raise Differs(f"{text}, but on Weft {short(weft)}")
        return local

    def look(self, text, call, mount=None):
        """A call that answers a `stat_result`, whose times are compared with those of before."""
        both = []

        def reduced(at, fds):
            meta = call(at, fds)
            both.append(meta)
            return seen(meta)

        mount = self.mount() if mount is None else mount
        kind, _ = self.same(text, reduced, mount)
        if kind == "ok":
            self.compare_times(text, *both)
            return both[0]

    def compare_times(self, text, local, weft):
        now = [(local.st_mtime_ns, weft.st_mtime_ns), (local.st_ctime_ns, weft.st_ctime_ns)]
        before_of, before = self.times.get(local.st_ino, (None, None))
        self.times[local.st_ino] = weft.st_ino, now
        if before_of != weft.st_ino:
            return
        for name, (here, there), (here_before, there_before) in zip("mc", now, before):
            moved = abs(there - there_before)
            if here == here_before and moved > TICK:
                raise Differs(f"{text}: {name}time changed from {there_before} to {there} by nothing")
            if here != here_before and there == there_before and abs(here - here_before) > TICK:
                raise Differs(f"{text}: {name}time stays {there}, here it went from {here_before} to {here}")
            if moved > TICK and (here > here_before) != (there > there_before):
                raise Differs(f"{text}: {name}time went from {there_before} to {there}")

    def compare_all(self):
        """Everything, through one mount."""
        mount, self.paths = self.mount(), []
        self.compare_below("", mount)

    def compare_below(self, path, mount):
        self.paths.append(path)
        _, names = self.same(f"list {path}", lambda at, _: sorted(os.listdir(at(path))), mount)
        for name in names:
            inner = f"{path}/{name}" if path else name
            meta = self.look(f"stat {inner}", lambda at, _: os.lstat(at(inner)), mount)
            self.same(f"attributes {inner}", lambda at, _: attributes(at(inner)), mount)
            if stat.S_ISDIR(meta.st_mode):
                self.compare_below(inner, mount)
                continue
            self.paths.append(inner)
            if stat.S_ISREG(meta.st_mode):
                self.same(f"contents {inner}", lambda at, _: contents(at(inner)), mount)

    # Choices.

    def mount(self):
        return self.dice.randrange(len(self.mounts))

    def who(self):
        return self.dice.choice([0, 0, 0, 1, 1, 2, 3])

    def path(self):
        dice = self.dice
        kind = dice.random()
        if kind < 0.55 and self.paths:
            return dice.choice(self.paths) or "."
        if kind < 0.85 and self.paths:
            folder = dice.choice(self.paths)
            return (folder + "/" if folder else "") + dice.choice(NAMES)
        path = "/".join(dice.choices(NAMES, weights=[6, 6, 6, 5, 4, 3, 1], k=dice.choice([1, 1, 2, 2, 2, 3, 3, 4])))
        return path + dice.choices(["", "/", "/.", "/.."], weights=[94, 2, 2, 2])[0]

    def size(self):
        around = [0, 1, 100, 511, 4095, 4096, 4097, 65535, 65536, 65537, 131072, 524288, 524289, 1 << 20]
        return self.dice.choice(around + [self.dice.randrange(2 << 20)])

    def bytes(self, length):
        return bytes([self.dice.randrange(1, 256)]) * length

    def slot(self, is_dir=False):
        slots = [slot for slot, what in self.slots.items() if what.is_dir == is_dir]
        return self.dice.choice(slots) if slots else None

    # Files that are open.

    def keep_open(self, text, path, mount, user, open_there):
        opened = []

        def call(at, fds):
            opened.append((fds, open_there(at)))

        kind, _ = self.same(text, call, mount, user, [path])
        if kind != "ok":
            return
        mode = os.fstat(opened[0][1]).st_mode
        if len(self.slots) >= OPEN_MAX or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            for _, fd in opened:
                os.close(fd)
            return
        for fds, fd in opened:
            fds[self.next_slot] = fd
        self.slots[self.next_slot] = Open(mount, stat.S_ISDIR(mode))
        self.calls.append(f"  it is fd{self.next_slot}")
        self.next_slot += 1

    def open(self):
        dice, path, mount = self.dice, self.path(), self.mount()
        flags = os.O_NONBLOCK | dice.choice([os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR])
        more = [(os.O_CREAT, 0.5), (os.O_CREAT | os.O_EXCL, 0.1), (os.O_TRUNC, 0.15), (os.O_APPEND, 0.15)]
        for flag, chance in more + [(os.O_NOFOLLOW, 0.1), (os.O_DIRECTORY, 0.05), (os.O_SYNC, 0.05)]:
            flags |= flag if dice.random() < chance else 0
        mode = dice.choice([0o644, 0o600, 0o666, 0o4755, 0o2755, 0o755, 0o2644, 0o444, 0])
        text = f"open {path} {flags:#o} {mode:#o}"
        self.keep_open(text, path, mount, self.who(), lambda at: os.open(at(path), flags, mode))

    def open_without_name(self):
        path = self.path()
        flags = os.O_TMPFILE | os.O_RDWR
        text = f"open in {path} without a name"
        self.keep_open(text, path, self.mount(), self.who(), lambda at: os.open(at(path), flags, 0o644))

    def with_open(self, text, call, is_dir=False, user=0):
        slot = self.slot(is_dir)
        if slot is not None:
            self.same(f"fd{slot} {text}", lambda _, fds: call(fds[slot]), self.slots[slot].mount, user, gone=is_dir)

    def close(self):
        if not self.slots:
            return
        slot = self.dice.choice(list(self.slots))
        self.same(f"fd{slot} close", lambda _, fds: os.close(fds.pop(slot)), self.slots.pop(slot).mount)

    def stat_open(self):
        if self.slots:
            slot = self.dice.choice(list(self.slots))
            self.look(f"fd{slot} stat", lambda _, fds: os.fstat(fds[slot]), self.slots[slot].mount)

    def write(self):
        offset, data = self.dice.choice([0, 0, 1, 100, 4096, 65536, 524288]), self.bytes(self.size())
        if self.dice.random() < 0.5:
            self.with_open(f"write {len(data)} at {offset}", lambda fd: os.pwrite(fd, data, offset))
        else:
            self.with_open(f"write {len(data)}", lambda fd: os.write(fd, data))

    def read(self):
        offset, length = self.dice.choice([0, 0, 1, 100, 4096, 65536, 524288]), self.size()
        if self.dice.random() < 0.5:
            self.with_open(f"read {length} at {offset}", lambda fd: os.pread(fd, length, offset))
        else:
            self.with_open(f"read {length}", lambda fd: os.read(fd, length))

    def seek(self):
        offset, whence = self.dice.choice([-100, -1, 0, 50, 4096]), self.dice.choice([0, 1, 2])
        self.with_open(f"seek {offset} {whence}", lambda fd: os.lseek(fd, offset, whence))

    def truncate_open(self):
        size = self.size()
        self.with_open(f"truncate {size}", lambda fd: os.ftruncate(fd, size))

    def fallocate(self):
        mode = self.dice.choice([0, KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE, ZERO_RANGE | KEEP_SIZE])
        offset, length = self.dice.choice([0, 100, 4096, 65536]), self.dice.choice([1, 4096, 5000, 100000])
        self.with_open(f"fallocate {mode} {offset} {length}", lambda fd: fallocate(fd, mode, offset, length))

    def sync(self):
        self.with_open("sync", os.fsync, self.dice.random() < 0.2)

    def change_open(self):
        mode = self.dice.choice([0o644, 0o755, 0o4755, 0o2755])
        self.with_open(f"chmod {mode:#o}", lambda fd: os.fchmod(fd, mode))

    def link_open(self):
        path, slot = self.path(), self.slot()
        if slot is not None:
            text, mount = f"fd{slot} link {path}", self.slots[slot].mount
            self.same(text, lambda at, fds: link_open_file(fds[slot], at(path)), mount)

    def copy(self):
        source, target = self.slot(), self.slot()
        if source is None or self.slots[source].mount != self.slots[target].mount:
            return
        begin, to = self.dice.choice([0, 1, 4096, 70000]), self.dice.choice([0, 1, 4096, 70000, 600000])
        length = self.size()

        def call(_, fds):
            # The kernel copies up to the end that it knows (docs/semantics.md): so it is told.
            os.fstat(fds[source])
            os.fstat(fds[target])
            return os.copy_file_range(fds[source], fds[target], length, begin, to)

        self.same(f"copy fd{source} {begin} to fd{target} {to}, {length}", call, self.slots[source].mount)

    def below_open(self):
        """By a name in a directory that is open, whatever has become of that."""
        name, user = self.dice.choice(NAMES), self.who()

        def write(folder):
            fd = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_NONBLOCK, 0o644, dir_fd=folder)
            try:
                return os.write(fd, b"hello") if stat.S_ISREG(os.fstat(fd).st_mode) else 0
            finally:
                os.close(fd)

        calls = {
            "mkdir": lambda folder: os.mkdir(name, dir_fd=folder),
            "unlink": lambda folder: os.unlink(name, dir_fd=folder),
            "rmdir": lambda folder: os.rmdir(name, dir_fd=folder),
            "list": lambda folder: sorted(os.listdir(folder)),
            "stat": lambda folder: seen(os.stat(name, dir_fd=folder, follow_symlinks=False)),
            "write": write,
        }
        text = self.dice.choice(list(calls))
        self.with_open(f"{text} {name}", calls[text], True, 0 if text in ("list", "stat") else user)

    def rename_open(self):
        source, target = self.slot(True), self.slot(True)
        if source is None or self.slots[source].mount != self.slots[target].mount:
            return
        old, new, flags = self.dice.choice(NAMES), self.dice.choice(NAMES), self.dice.choice([0, 0, 1, 2])

        def call(_, fds):
            for folder, name in ((fds[source], old), (fds[target], new)):
                try:
                    os.stat(name, dir_fd=folder, follow_symlinks=False)
                except OSError:
                    pass
            renameat2(old, new, flags, fds[source], fds[target])

        text = f"rename fd{source} {old} to fd{target} {new} {flags}"
        self.same(text, call, self.slots[source].mount, self.who(), gone=True)

    # Names.

    def by_path(self, text, call):
        path = self.path()
        return self.same(f"{text} {path}", lambda at, _: call(at(path)), None, self.who(), [path])

    def by_two(self, text, call):
        old, new = self.path(), self.path()
        return self.same(f"{text} {old} {new}", lambda at, _: call(at(old), at(new)), None, self.who(), [old, new])

    def mkdir(self):
        mode = self.dice.choice([0o755, 0o755, 0o777, 0o2775, 0o1777, 0o700])
        self.by_path(f"mkdir {mode:#o}", lambda path: os.mkdir(path, mode))

    def rmdir(self):
        self.by_path("rmdir", os.rmdir)

    def unlink(self):
        self.by_path("unlink", os.unlink)

    def rename(self):
        flags = self.dice.choice([0, 0, 0, 0, NOREPLACE, EXCHANGE, EXCHANGE, NOREPLACE | EXCHANGE])
        self.by_two(f"rename {flags}", lambda old, new: renameat2(old, new, flags))

    def link(self):
        self.by_two("link", lambda old, new: os.link(old, new, follow_symlinks=False))

    def symlink(self):
        target = self.dice.choice(["a", "../b", "c/d", ".", "nowhere", "e/../f", "a" * 300])
        self.by_path(f"symlink {target[:9]}", lambda path: os.symlink(target, path))

    def mknod(self):
        kind = self.dice.choice([stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFREG])
        self.by_path(f"mknod {kind:#o}", lambda path: os.mknod(path, kind | 0o640))

    def readlink(self):
        self.by_path("readlink", os.readlink)

    def list(self):
        self.by_path("list", lambda path: sorted(os.listdir(path)))

    def cat(self):
        self.by_path("cat", contents)

    # Attributes.

    def stat(self):
        path, call = self.path(), self.dice.choice([os.lstat, os.lstat, os.lstat, os.stat])
        self.look(f"{call.__name__} {path}", lambda at, _: call(at(path)))

    def truncate(self):
        size = self.size()
        self.by_path(f"truncate {size}", lambda path: os.truncate(path, size))

    def chmod(self):
        mode = self.dice.choice([0o644, 0o755, 0o777, 0o4755, 0o2755, 0o6777, 0o1777, 0o2644, 0, 0o600, 0o711])
        self.by_path(f"chmod {mode:#o}", lambda path: os.chmod(path, mode))

    def chown(self):
        owners = [(-1, 0), (0, -1), (0, 0), (1001, -1), (1001, 2001), (1002, 2002), (-1, 2001), (-1, 2002), (1002, -1)]
        user, group = self.dice.choice(owners)
        self.by_path(f"chown {user} {group}", lambda path: os.lchown(path, user, group))

    def set_times(self):
        time = self.dice.choice([0, 10**9, 10**18, 15 * 10**17 + 123456789])
        times = self.dice.choice([(time, time), (time, time + 1), None])
        if times is None:
            self.by_path("set times to now", os.utime)
        else:
            self.by_path(f"set times {times}", lambda path: os.utime(path, ns=times, follow_symlinks=False))

    def attribute(self):
        name = self.dice.choice(["user.a", "user.b", "user." + "n" * 240, "trusted.t", "security.x"])
        value, flags = self.bytes(self.dice.choice([0, 1, 10, 300])), self.dice.choice([0, 0, 1, 2])
        calls = {
            "setxattr": lambda path: os.setxattr(path, name, value, flags, follow_symlinks=False),
            "getxattr": lambda path: os.getxattr(path, name, follow_symlinks=False),
            "removexattr": lambda path: os.removexattr(path, name, follow_symlinks=False),
        }
        text = self.dice.choice(list(calls))
        self.by_path(f"{text} {name[:9]} {len(value)} {flags}", calls[text])

    def access_control(self):
        nobody, some = 0xFFFFFFFF, lambda: self.dice.randrange(8)
        entries = [(1, some(), nobody), (2, some(), self.dice.choice([1001, 1002])), (4, some(), nobody)]
        if self.dice.random() < 0.5:
            entries.append((8, some(), self.dice.choice([2001, 2002])))
        entries += [(16, some(), nobody), (32, some(), nobody)]
        name = self.dice.choice(["system.posix_acl_access", "system.posix_acl_default"])
        if self.dice.random() < 0.2:
            self.by_path(f"remove {name}", lambda path: os.removexattr(path, name))
        else:
            value = access_control_list(entries)
            self.by_path(f"set {name} {entries}", lambda path: os.setxattr(path, name, value))

    def run(self, steps):
        weights = {
            self.open: 14, self.close: 8, self.write: 10, self.read: 8, self.seek: 3, self.stat_open: 4,
            self.truncate_open: 3, self.fallocate: 2, self.copy: 2, self.sync: 1, self.change_open: 1,
            self.open_without_name: 1, self.link_open: 1, self.below_open: 4, self.rename_open: 1,
            self.mkdir: 7, self.rmdir: 3, self.unlink: 4, self.rename: 10, self.link: 3, self.symlink: 2,
            self.mknod: 2, self.readlink: 1, self.list: 3, self.cat: 5, self.stat: 10, self.truncate: 2,
            self.chmod: 4, self.chown: 3, self.set_times: 2, self.attribute: 3, self.access_control: 2,
        }  # fmt: skip
        os.chmod(self.local.root, 0o1777)
        os.chmod(self.mounts[0], 0o1777)
        for step in range(steps):
            if step % COMPARED_EVERY == 0:
                self.compare_all()
            self.dice.choices(list(weights), list(weights.values()))[0]()
        self.compare_all()
        while self.slots:
            self.close()
        self.compare_all()


def main():
    local, mounts, seed, steps = sys.argv[1], sys.argv[2].split(","), int(sys.argv[3]), int(sys.argv[4])
    os.umask(0)
    beside = Beside(local, mounts, seed)
    try:
        beside.run(steps)
    except Differs as difference:
        print(*beside.calls, sep="\n")
        sys.exit(f"seed {seed}: {difference}")


main()
