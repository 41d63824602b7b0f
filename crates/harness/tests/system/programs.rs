//! Real programs on a mount.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use harness::cluster::Cluster;
use harness::dice::{Dice, scale, seed};
use harness::run::{LONG, run, shell};
use harness::{process, tree, wait};

/// For what takes a minute where nothing else runs.
const VERY_LONG: Duration = Duration::from_secs(600);

#[test]
fn git_works_in_a_repository_of_many_commits() {
    let cluster = Cluster::start();
    let root = cluster.folder("git");
    shell(
        &root,
        r#"
        export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@b HOME=$PWD
        git init -q one && cd one
        for commit in 1 2 3 4 5 6 7 8; do
            for file in 1 2 3 4 5 6 7 8 9; do
                mkdir -p d$file && seq $commit $((commit * file * 100)) > d$file/f$commit
            done
            git add . && git commit -q -m c$commit
        done
        git branch other HEAD~3 && git checkout -q other && git checkout -q -
        git gc -q --aggressive && git fsck --strict
        cd .. && git clone -q one two && cd two && git fsck --strict
        [ -z "$(git status --porcelain)" ] && [ $(git log --oneline | wc -l) = 8 ]
        cmp ../one/d9/f8 d9/f8
        "#,
    );
    cluster.assert_sound();
}

/// This repository with its history; where only its files are here, as in an archive of them, one is made of those.
fn repository(cluster: &Cluster, source: &Path) -> PathBuf {
    if source.join(".git").exists() {
        return source.to_owned();
    }
    let made = cluster.beside("repository.git");
    let script = r#"
        export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@b HOME=$1
        git init -q --bare "$2"
        git --git-dir="$2" --work-tree=. add .
        git --git-dir="$2" --work-tree=. commit -q -m files
    "#;
    let mut command = Command::new("sh");
    command.args(["-euc", script, "sh"]).arg(cluster.beside("")).arg(&made).current_dir(source);
    run(&mut command, LONG).expect_ok();
    made
}

#[test]
fn git_clones_and_collects_this_repository() {
    clone_and_collect(&harness::checkout::file("../..").canonicalize().unwrap());
}

#[test]
fn git_clones_and_collects_what_is_no_checkout() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["Cargo.toml", "README.md"] {
        fs::copy(harness::checkout::file("../..").join(name), folder.path().join(name)).unwrap();
    }
    clone_and_collect(folder.path());
}

fn clone_and_collect(source: &Path) {
    let cluster = Cluster::start();
    let source = repository(&cluster, source);
    let root = cluster.folder("git");
    let script = r#"
        export HOME=$PWD GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@b
        git -c safe.directory='*' clone -q --no-local "$1" r && cd r
        [ -z "$(git status --porcelain)" ]
        echo more >> README.md && git commit -q -a -m more
        git gc -q && git fsck
        [ -z "$(git status --porcelain)" ] && [ "$(git show --name-only --format=%s)" = "more

README.md" ]
    "#;
    let mut command = Command::new("sh");
    command.args(["-euc", script, "sh"]).arg(source).current_dir(&root);
    run(&mut command, VERY_LONG).expect_ok();
    cluster.assert_sound();
}

#[test]
fn tar_brings_a_tree_out_and_back() {
    let cluster = Cluster::start();
    let root = cluster.folder("tar");
    let source = cluster.beside("source");
    tree::make(&source, 150, &mut Dice::new(seed())).unwrap();
    shell(
        &root,
        &format!("tar -C {} --format=pax -cf t.tar . && mkdir out && tar -C out -xpf t.tar", source.display()),
    );
    tree::assert_same(&root.join("out"), &source);
    shell(&root, "tar -C out --format=pax -cf again.tar . && mkdir again && tar -C again -xpf again.tar");
    tree::assert_same(&root.join("again"), &source);
    shell(&root, "rm -rf out again t.tar again.tar && [ -z \"$(ls -A)\" ]");
    cluster.assert_sound();
}

#[test]
fn a_c_project_is_built() {
    let cluster = Cluster::start();
    let root = cluster.folder("c");
    for part in 0..8 {
        fs::write(root.join(format!("part{part}.c")), format!("int part{part}(void) {{ return {part}; }}\n")).unwrap();
    }
    let calls: Vec<String> = (0..8).map(|part| format!("part{part}()")).collect();
    let declarations: String = (0..8).map(|part| format!("int part{part}(void);\n")).collect();
    fs::write(root.join("parts.h"), declarations).unwrap();
    let main = format!("#include \"parts.h\"\nint main(void) {{ return {}; }}\n", calls.join(" + "));
    fs::write(root.join("main.c"), main).unwrap();
    let makefile = "objects = main.o $(patsubst %.c,%.o,$(wildcard part*.c))\n\
        program: $(objects)\n\tcc -o $@ $(objects)\n%.o: %.c parts.h\n\tcc -c -o $@ $<\n";
    fs::write(root.join("Makefile"), makefile).unwrap();
    shell(&root, "make -s -j2 && set +e; ./program; [ $? = 28 ]");
    // Nothing is older than what it was made from; a touched file brings its own steps and no others.
    assert!(shell(&root, "make").stdout.contains("up to date"));
    let again = shell(&root, "sleep 0.1; touch part3.c; make").stdout;
    assert!(again.contains("part3.o part3.c") && !again.contains("part4.c"), "{again}");
    shell(&root, "ar rc parts.a part*.o && cc -o linked main.o parts.a && set +e; ./linked; [ $? = 28 ]");
    cluster.assert_sound();
}

/// The last number that the writer says to have committed, as far as that is read, and who reads it.
fn committed_as_said(output: ChildStdout) -> (Arc<AtomicU64>, JoinHandle<()>) {
    let done = Arc::new(AtomicU64::new(0));
    let last = Arc::clone(&done);
    let reader = thread::spawn(move || {
        // The end may be half a line.
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("done ").and_then(|number| number.parse().ok()) {
                last.fetch_max(number, Ordering::Relaxed);
            }
        }
    });
    (done, reader)
}

/// The writer is killed in the middle of transactions; what was committed is there, and the database is sound.
fn sqlite_survives(journal: &str) {
    let cluster = Cluster::start();
    let root = cluster.folder("db");
    shell(&root, &format!("sqlite3 a.db 'pragma journal_mode={journal}; create table t(n integer primary key, x);'"));
    let (mut committed, mut dice) = (0, Dice::new(seed()));
    for _ in 0..3 {
        let script = r#"while :; do
            n=$((n + 1))
            echo "begin; insert into t values ($n, randomblob(20000)); insert into t values (-$n, hex(randomblob(500)));"
            echo "commit; select 'done $n';"
        done | sqlite3 -cmd '.timeout 10000' a.db"#;
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("n={committed}\n{script}")).current_dir(&root);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().unwrap();
        let output = child.stdout.take().unwrap();
        let (done, reader) = committed_as_said(output);
        wait::until("some are committed", LONG, || (done.load(Ordering::Relaxed) >= committed + 5).then_some(()));
        // In the midst of any of them.
        thread::sleep(Duration::from_millis(dice.roll(500)));
        // The whole group: the shell and the database's program. A shell's child is no child of ours.
        // SAFETY: kill touches no memory.
        unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
        child.wait().unwrap();
        reader.join().unwrap();
        let last = done.load(Ordering::Relaxed);
        assert!(shell(&root, "sqlite3 a.db 'pragma integrity_check'").stdout.trim() == "ok");
        let count = shell(&root, "sqlite3 a.db 'select count(*) = 2 * max(n), max(n) from t'").stdout;
        let (whole, most) = count.trim().split_once('|').unwrap();
        let most: u64 = most.parse().unwrap();
        assert!(whole == "1" && most >= last, "{count} after {last} were committed");
        committed = most;
    }
    cluster.assert_sound();
}

#[test]
fn sqlite_with_a_rollback_journal() {
    sqlite_survives("delete");
}

#[test]
fn sqlite_with_a_write_ahead_log() {
    sqlite_survives("wal");
}

#[test]
fn a_python_environment_is_made_and_runs() {
    let cluster = Cluster::start();
    let root = cluster.folder("python");
    shell(&root, "python3 -m venv --without-pip v && mkdir p && echo 'x = 41' > p/__init__.py");
    let said = shell(
        &root,
        "unset PYTHONDONTWRITEBYTECODE; v/bin/python -c 'import sys, p, json; print(sys.prefix, p.x + 1, json.dumps([1]))'",
    );
    assert!(said.stdout.contains("/python/v 42 [1]"), "{said}");
    assert!(root.join("p/__pycache__").is_dir(), "compiled modules are kept");
    cluster.assert_sound();
}

#[test]
fn python_reads_and_writes_through_mmap() {
    let cluster = Cluster::start();
    let root = cluster.folder("mmap");
    let program = r#"
import mmap, os
with open('f', 'wb') as f: f.truncate(3_000_000)
with open('f', 'r+b') as f:
    m = mmap.mmap(f.fileno(), 0)
    for at in range(0, 3_000_000, 99_991): m[at:at + 5] = b'%05d' % (at % 99_999)
    m.flush(); m.close()
with open('f', 'rb') as f: data = f.read()
assert all(data[at:at + 5] == b'%05d' % (at % 99_999) for at in range(0, 3_000_000, 99_991))
with open('f', 'r+b') as f: f.seek(1_000_000); f.write(b'written')
with open('f', 'rb') as f:
    m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    assert m[1_000_000:1_000_007] == b'written' and len(m) == 3_000_000
"#;
    let script = root.join("m.py");
    fs::write(&script, program).unwrap();
    shell(&root, "python3 m.py");
    cluster.assert_sound();
}

#[test]
fn find_and_du_see_what_is_there() {
    let cluster = Cluster::start();
    let root = cluster.folder("find");
    shell(&root, "for a in 1 2 3 4 5; do for b in 1 2 3 4; do mkdir -p $a/$b; seq 30000 > $a/$b/f; done; done");
    assert_eq!(shell(&root, "find . -type f | wc -l").stdout.trim(), "20");
    assert_eq!(shell(&root, "find . -type d | wc -l").stdout.trim(), "26");
    assert_eq!(shell(&root, "find . -name f -size +100k -newermt 2000-01-01 | sort -u | wc -l").stdout.trim(), "20");
    let sizes = shell(&root, "find . -type f -printf '%s\\n'").stdout;
    let bytes = fs::metadata(root.join("1/1/f")).unwrap().len() * 20;
    assert_eq!(sizes.lines().map(|size| size.parse::<u64>().unwrap()).sum::<u64>(), bytes);
    let used: u64 = shell(&root, "du -s --block-size=1 . | cut -f1").stdout.trim().parse().unwrap();
    assert!(used >= bytes && used < bytes * 2, "du counts {used} bytes for {bytes}");
    let same = shell(&root, "find . -type f -exec md5sum {} + | cut -d' ' -f1 | sort -u | wc -l").stdout;
    assert_eq!(same.trim(), "1");
}

#[test]
fn rsync_has_nothing_to_do_the_second_time() {
    let cluster = Cluster::start();
    let root = cluster.folder("rsync");
    let source = cluster.beside("source");
    tree::make(&source, 150, &mut Dice::new(seed())).unwrap();
    let sync = |from: &Path, to: &Path| shell(&root, &format!("rsync -a -i {}/ {}/", from.display(), to.display()));
    let there = root.join("there");
    assert!(!sync(&source, &there).stdout.is_empty());
    assert_eq!(sync(&source, &there).stdout, "", "the second moves nothing");
    tree::assert_same(&there, &source);
    let back = cluster.beside("back");
    sync(&there, &back);
    assert_eq!(sync(&there, &back).stdout, "");
    tree::assert_same(&back, &source);
    cluster.assert_sound();
}

#[test]
fn cp_sparse_keeps_contents_and_saves_space() {
    let cluster = Cluster::start();
    let root = cluster.folder("sparse");
    shell(
        &root,
        "truncate -s 50M a && printf x | dd of=a bs=1 seek=20000000 conv=notrunc status=none
        cp --sparse=always a b && cp --sparse=auto a c && cp --sparse=never a d && cmp a b && cmp a c && cmp a d
        [ $(stat -c %s b) = 52428800 ]",
    );
    let used = |name: &str| -> u64 { shell(&root, &format!("stat -c %b {name}")).stdout.trim().parse().unwrap() };
    assert!(used("a") < 10_000 && used("b") < 10_000, "{} {} blocks", used("a"), used("b"));
    assert!(used("d") >= 50 << 11, "written zeros take space: {}", used("d"));
    cluster.assert_sound();
}

/// As containers have it: what the lower layer has is read from there, and all that is changed is on the mount.
#[test]
fn an_overlay_has_its_upper_layer_here() {
    let cluster = Cluster::start();
    let (lower, merged) = (cluster.beside("lower"), cluster.beside("merged"));
    let upper = cluster.folder("upper");
    fs::create_dir_all(lower.join("dir/sub")).unwrap();
    fs::create_dir(&merged).unwrap();
    for name in ["gone", "moved", "changed", "dir/file", "dir/sub/deep"] {
        fs::write(lower.join(name), name).unwrap();
    }
    shell(
        &upper,
        &format!(
            r#"
            mkdir up work
            mount -t overlay overlay -o lowerdir={lower},upperdir=$PWD/up,workdir=$PWD/work {merged}
            trap 'cd / && umount {merged}' EXIT
            cd {merged}
            rm gone && mv moved dir/here && echo more >> changed && rm -r dir/sub && mkdir dir/sub && echo new > dir/sub/new
            git init -q repository && cd repository && echo a > a && git add a
            git -c user.name=A -c user.email=a@b commit -q -m a && git fsck --strict && cd ..
            [ ! -e gone ] && [ ! -e moved ] && [ $(cat dir/here) = moved ] && [ "$(ls dir/sub)" = new ]
            grep -q more changed && ! grep -q more {lower}/changed && [ -c {upper}/up/gone ] && [ -c {upper}/up/moved ]
            "#,
            lower = lower.display(),
            merged = merged.display(),
            upper = upper.display(),
        ),
    );
    cluster.assert_sound();
}

#[test]
fn listing_10000_files_while_others_come_and_go() {
    const STABLE: usize = 10_000;
    let cluster = Cluster::start();
    let root = cluster.folder("many");
    thread::scope(|scope| {
        for part in 0..4 {
            let root = &root;
            scope.spawn(move || {
                for number in (part..STABLE).step_by(4) {
                    fs::File::create(root.join(format!("stable-{number}"))).unwrap();
                }
            });
        }
    });
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let churn = |who: &'static str| {
            let (root, stop) = (&root, &stop);
            move || {
                for number in 0.. {
                    let path = root.join(format!("{who}-{number}"));
                    fs::File::create(&path).unwrap();
                    if number >= 50 {
                        fs::remove_file(root.join(format!("{who}-{}", number - 50))).unwrap();
                    }
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        };
        scope.spawn(churn("early"));
        scope.spawn(churn("zate"));
        for listing in 0..5 {
            let mut seen: BTreeMap<PathBuf, u32> = BTreeMap::new();
            for entry in fs::read_dir(&root).unwrap() {
                *seen.entry(entry.unwrap().file_name().into()).or_default() += 1;
            }
            let twice = seen.iter().find(|(_, count)| **count != 1);
            assert_eq!(twice, None, "listing {listing}");
            let stable = seen.keys().filter(|name| name.to_str().unwrap().starts_with("stable-")).count();
            assert_eq!(stable, STABLE, "listing {listing}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    shell(&root, "find . -name 'stable-*' | wc -l | grep -qx 10000");
    cluster.assert_sound();
}

#[test]
fn fio_verifies_what_it_wrote() {
    let cluster = Cluster::start();
    let root = cluster.folder("fio");
    for direct in ["0", "1"] {
        for pattern in ["write", "randwrite"] {
            let mut command = Command::new("fio");
            command.current_dir(&root).args([
                "--name=v",
                "--size=24M",
                "--blockalign=4k",
                "--ioengine=psync",
                "--numjobs=2",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--do_verify=1",
                "--fsync=64",
                "--group_reporting",
                &format!("--direct={direct}"),
                &format!("--rw={pattern}"),
                "--bsrange=4k-256k",
            ]);
            let ended = run(&mut command, VERY_LONG).expect_ok();
            assert!(!ended.stdout.contains("verify: bad"), "{ended}");
        }
    }
    cluster.assert_sound();
}

/// The `fsx` crate's exerciser: random reads, writes, truncates and mappings of one file against a copy in memory.
/// `./dev test` installs it. `WEFT_TEST_FSX_SECONDS=600` for a run by hand.
#[test]
fn fsx_finds_no_difference() {
    let seconds = scale("WEFT_TEST_FSX_SECONDS", 30);
    let fsx = fsx_program();
    let cluster = Cluster::start();
    let root = cluster.folder("fsx");
    let artifacts = cluster.beside("artifacts");
    fs::create_dir(&artifacts).unwrap();
    let mut command = Command::new(&fsx);
    command.arg("-S").arg(seed().to_string()).arg("-P").arg(&artifacts).arg(root.join("file"));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let errors = child.stderr.take().unwrap();
    let ended = harness::run::wait(&mut child, Duration::from_secs(seconds));
    if ended.is_none() {
        process::signal(child.id() as i32, libc::SIGTERM);
        child.wait().unwrap();
    }
    let said = std::io::read_to_string(errors).unwrap();
    assert!(ended.is_none(), "it found something: {said}");
    cluster.assert_sound();
}

fn fsx_program() -> PathBuf {
    // target/release/deps/NAME-HASH
    let test = std::env::current_exe().unwrap();
    let beside = test.ancestors().nth(3).unwrap().join("tools/bin/fsx");
    let named = std::env::var_os("WEFT_FSX").map(PathBuf::from);
    let found = named.into_iter().chain([beside.clone()]).find(|path| path.exists());
    let folder = beside.ancestors().nth(2).unwrap();
    found.unwrap_or_else(|| {
        panic!("no fsx: ./dev test installs it, or: cargo install fsx --version 0.3.2 --root {}", folder.display())
    })
}
