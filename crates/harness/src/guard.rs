//! Cleans up where the test's process itself was killed.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A shell that waits for a word from this process, and takes everything away where the end comes first.
pub(crate) struct Guard {
    shell: Child,
}

/// $0: weft, $1: directory of the cluster, $2: directory of everything.
const SCRIPT: &str = r#"
read word && exit 0
"$0" down --force --timeout 20 --dir "$1" >/dev/null 2>&1
for pid in $(grep -l -a -- "$2" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3); do
    [ "$pid" = $$ ] || kill -9 "$pid"
done
for point in $(cut -d' ' -f5 /proc/self/mountinfo | grep "^$2/" | sort -r); do
    umount -l "$point"
done
rm -rf "$2"
"#;

impl Guard {
    pub(crate) fn new(weft: &Path, dir: &Path, all: &Path) -> Self {
        let mut command = Command::new("sh");
        command.arg("-c").arg(SCRIPT).arg(weft).arg(dir).arg(all);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C is for the test.
        command.process_group(0);
        Self { shell: command.spawn().expect("a shell") }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.shell.id() as i32
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(stdin) = &mut self.shell.stdin {
            let _ = stdin.write_all(b"done\n");
        }
        let _ = self.shell.wait();
    }
}
