//! Two hosts on one machine, in network namespaces: joined by rails, pairs of virtual interfaces whose rate is limited.
//! Needs root, and iproute2.
//!
//! Processes of both share all but the network with this one, so mounts are seen here. Besides the rails there is one
//! network for management alone. What tests do to the rails, and what is measured over them, is not decided here.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// All rails, and nothing else.
const RAILS: &str = "10.77.0.0/16";
/// mgmtd's address.
pub const MANAGEMENT: &str = "10.78.0.1:9400";

/// One of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    Server,
    Client,
}

impl Host {
    /// Begins the names of its interfaces.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Host::Server => 's',
            Host::Client => 'c',
        }
    }
}

/// A client and a server, and the processes that were started there: all gone when dropped, but for the folder.
pub struct Hosts {
    name: String,
    rate: String,
    rails: usize,
    weft: PathBuf,
    folder: PathBuf,
    processes: Vec<(String, Child)>,
    mounts: Vec<PathBuf>,
}

impl Hosts {
    /// Bare hosts, which will run `weft` and keep their data in `folder`. `rate` as `tc` says it, of each rail and direction.
    ///
    /// # Errors
    /// Where this process may not do that, or iproute2 is missing.
    pub fn lay(weft: &Path, folder: &Path, rails: usize, rate: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("weft{}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let (weft, folder, rate) = (weft.to_owned(), folder.to_owned(), rate.to_owned());
        let mut hosts = Self { name, rate, rails: 0, weft, folder, processes: Vec::new(), mounts: Vec::new() };
        for host in [Host::Server, Host::Client] {
            command(&format!("ip netns add {}", hosts.namespace(host)))?;
            command(&format!("ip -n {} link set lo up", hosts.namespace(host)))?;
        }
        hosts.join("m", "10.78.0")?;
        (0..rails).try_for_each(|_| hosts.add_rail())?;
        Ok(hosts)
    }

    /// The name under which `ip netns` knows it.
    #[must_use]
    pub fn namespace(&self, host: Host) -> String {
        format!("{}{}", self.name, host.letter())
    }

    /// One more, also while all runs. Interfaces are called by the host's letter and the rail's number from 0 on.
    ///
    /// # Errors
    /// What `ip` and `tc` say.
    pub fn add_rail(&mut self) -> Result<()> {
        let (rail, limit) = (self.rails, format!("tbf rate {} burst 256kb limit 2mb", self.rate));
        self.join(&rail.to_string(), &format!("10.77.{rail}"))?;
        for host in [Host::Server, Host::Client] {
            let (namespace, letter) = (self.namespace(host), host.letter());
            command(&format!("tc -n {namespace} qdisc add dev {letter}{rail} root {limit}"))?;
        }
        self.rails += 1;
        Ok(())
    }

    #[must_use]
    pub fn rails(&self) -> usize {
        self.rails
    }

    fn join(&self, word: &str, network: &str) -> Result<()> {
        let (server, client) = (self.namespace(Host::Server), self.namespace(Host::Client));
        command(&format!("ip link add s{word} netns {server} type veth peer name c{word} netns {client}"))?;
        for (host, device, last) in [(&server, 's', 1), (&client, 'c', 2)] {
            command(&format!("ip -n {host} addr add {network}.{last}/24 dev {device}{word}"))?;
            command(&format!("ip -n {host} link set {device}{word} up"))?;
        }
        Ok(())
    }

    /// A cluster of one metadata and one storage service on the server, mounted at the client.
    ///
    /// # Errors
    /// Where it does not come up in a minute: the logs are in the folder.
    pub fn serve(&mut self) -> Result<()> {
        self.serve_as(&[], &[])
    }

    /// The same with further flags of the metadata service and of the mount.
    ///
    /// # Errors
    /// As of [`Self::serve`].
    pub fn serve_as(&mut self, metadata: &[&str], mount: &[&str]) -> Result<()> {
        fs::write(self.key_file(), "ab".repeat(32)).context("cannot write a key")?;
        fs::set_permissions(self.key_file(), Permissions::from_mode(0o600))?;
        fs::create_dir(self.mount_point()).context("cannot make a mount point")?;
        let known = ["--mgmtd", MANAGEMENT, "--interfaces", RAILS];
        let metrics = ["--metrics-listen", "10.78.0.1:0"];
        let dir = self.text("mgmtd");
        self.spawn("mgmtd", Host::Server, &["mgmtd", "--init", "--dir", &dir, "--listen", MANAGEMENT])?;
        let dir = self.text("metad");
        let metad = ["metad", "--init", "--dir", &dir, "--alias", "metad"];
        self.spawn("metad", Host::Server, &[&metad[..], &known, &metrics, metadata].concat())?;
        self.add_storage("storaged", Host::Server, &metrics)?;
        let flags = ["--log-level", "info,net=debug"];
        self.mount("mount", Host::Client, &self.mount_point(), &[&flags[..], mount].concat())
    }

    /// A mount that is called `name`; its mount point.
    ///
    /// # Errors
    /// Where it does not mount in a minute: the logs are in the folder.
    pub fn add_mount(&mut self, name: &str, host: Host) -> Result<PathBuf> {
        let point = self.path(&format!("{name}-mnt"));
        fs::create_dir(&point).context("cannot make a mount point")?;
        self.mount(name, host, &point, &[])?;
        Ok(point)
    }

    fn mount(&mut self, name: &str, host: Host, point: &Path, flags: &[&str]) -> Result<()> {
        self.mounts.push(point.to_owned());
        let known = ["--mgmtd", MANAGEMENT, "--interfaces", RAILS];
        let words = ["mount", &point.display().to_string(), "--foreground"];
        self.spawn(name, host, &[&words[..], &known, flags].concat())?;
        let begin = Instant::now();
        while !is_mounted(point) {
            ensure!(begin.elapsed() < PATIENCE, "{name} is not there after {} s", PATIENCE.as_secs());
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// A storage service of two lanes. It is not waited for.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn add_storage(&mut self, name: &str, host: Host, flags: &[&str]) -> Result<()> {
        let target = self.target(name).display().to_string();
        let words = ["storaged", "--init", "--targets", &target, "--alias", name, "--lanes", "2"];
        let known = ["--mgmtd", MANAGEMENT, "--interfaces", RAILS];
        self.spawn(name, host, &[&words[..], &known, flags].concat())
    }

    /// Directory of the target of a storage service.
    #[must_use]
    pub fn target(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}-target"))
    }

    fn spawn(&mut self, name: &str, host: Host, words: &[&str]) -> Result<()> {
        let log = File::create(self.path(&format!("{name}.log"))).context("cannot make a log")?;
        let mut command = self.inside(host, words);
        command.arg("--key-file").arg(self.key_file()).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        self.processes.push((name.to_owned(), child));
        Ok(())
    }

    /// `weft` with these arguments, as it would be run on this host.
    #[must_use]
    pub fn inside(&self, host: Host, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace(host))).arg(&self.weft).args(words);
        command
    }

    /// Process id of each that was started, by its name.
    pub fn processes(&self) -> impl Iterator<Item = (&str, i32)> {
        self.processes.iter().filter_map(|(name, child)| Some((name.as_str(), i32::try_from(child.id()).ok()?)))
    }

    /// What a process has logged.
    #[must_use]
    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    /// The ends of all logs, for whoever has to find out why.
    #[must_use]
    pub fn logs(&self) -> String {
        let tail = |name: &str| {
            let text = self.log(name);
            let lines: Vec<&str> = text.lines().collect();
            format!("--- {name}\n{}\n", lines[lines.len().saturating_sub(40)..].join("\n"))
        };
        self.processes.iter().map(|(name, _)| tail(name)).collect()
    }

    #[must_use]
    pub fn key_file(&self) -> PathBuf {
        self.path("key")
    }

    #[must_use]
    pub fn mount_point(&self) -> PathBuf {
        self.path("mnt")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Whatever is in the way.
    fn unmount(&self) {
        let paths = self.mounts.iter().filter_map(|point| CString::new(point.as_os_str().as_bytes()).ok());
        for path in paths {
            // SAFETY: a terminated string that lives through the call.
            unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        }
    }
}

/// Runs it to its end.
///
/// # Errors
/// What it says where it fails.
pub fn command(line: &str) -> Result<()> {
    let words: Vec<&str> = line.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {}", words[0]))?;
    ensure!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter_map(|line| line.split(' ').nth(4)).any(|point| Path::new(point) == path)
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.unmount();
        for (_, child) in self.processes.iter_mut().rev() {
            if let Ok(pid) = i32::try_from(child.id()) {
                // SAFETY: a plain system call; the child has not been waited for, so the number is its own.
                unsafe { libc::kill(pid, libc::SIGCONT) };
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        for host in [Host::Server, Host::Client] {
            let _ = Command::new("ip").args(["netns", "del", &self.namespace(host)]).stderr(Stdio::null()).status();
        }
        self.unmount();
    }
}
