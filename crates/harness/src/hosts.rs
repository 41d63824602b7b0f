//! Two hosts in network namespaces, joined by rails: pairs of virtual interfaces whose rate is limited. Needs root.
//!
//! Processes of both share all but the network with this one, so mounts are seen here. Besides the rails there is one
//! network for management alone, which is never cut.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::run::{Ended, run};
use crate::{binary, mounts, process, wait};

const PATIENCE: Duration = Duration::from_secs(60);
/// All rails, and nothing else.
const RAILS: &str = "10.77.0.0/16";
const MANAGEMENT: &str = "10.78.0.1:9400";

/// How a rail is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// The client's interface is down.
    Down,
    /// The server's interface is down: the client's has no carrier.
    FarDown,
    /// Packets vanish, both ways.
    Blackhole,
    /// Connections are reset.
    Reset,
}

/// A client and a server with a cluster of one metadata and one storage service, mounted at the client.
pub struct Hosts {
    name: String,
    rate: String,
    rails: usize,
    processes: Vec<Child>,
    all: TempDir,
}

impl Hosts {
    /// `rate` as `tc` says it, of each rail and direction.
    ///
    /// # Panics
    /// Where this process may not do that, or the cluster does not come up.
    #[must_use]
    pub fn start(rails: usize, rate: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("weft{}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let all = tempfile::Builder::new().prefix("weft-test-").tempdir().expect("a temporary directory");
        let mut hosts = Self { name, rate: rate.to_owned(), rails: 0, processes: Vec::new(), all };
        hosts.lay();
        (0..rails).for_each(|_| hosts.add_rail());
        hosts.serve();
        hosts
    }

    fn server(&self) -> String {
        format!("{}s", self.name)
    }

    fn client(&self) -> String {
        format!("{}c", self.name)
    }

    /// One more, also while all runs.
    pub fn add_rail(&mut self) {
        let (rail, limit) = (self.rails, format!("tbf rate {} burst 256kb limit 2mb", self.rate));
        self.join(&rail.to_string(), &format!("10.77.{rail}"));
        for (host, device) in [(self.server(), 's'), (self.client(), 'c')] {
            command(&format!("tc -n {host} qdisc add dev {device}{rail} root {limit}"));
        }
        self.rails += 1;
    }

    fn join(&self, word: &str, network: &str) {
        let (server, client) = (self.server(), self.client());
        command(&format!("ip link add s{word} netns {server} type veth peer name c{word} netns {client}"));
        for (host, device, last) in [(&server, 's', 1), (&client, 'c', 2)] {
            command(&format!("ip -n {host} addr add {network}.{last}/24 dev {device}{word}"));
            command(&format!("ip -n {host} link set {device}{word} up"));
        }
    }

    /// Namespaces, the network for management, and a table of rules.
    fn lay(&self) {
        let (server, client) = (self.server(), self.client());
        for host in [&server, &client] {
            command(&format!("ip netns add {host}"));
            command(&format!("ip -n {host} link set lo up"));
        }
        self.join("m", "10.78.0");
        command(&format!("ip netns exec {client} nft add table inet cut"));
        for (chain, hook) in [("in", "input"), ("out", "output")] {
            let kind = format!("{{ type filter hook {hook} priority 0 ; }}");
            let words = ["netns", "exec", &client, "nft", "add", "chain", "inet", "cut", chain, &kind];
            run(Command::new("ip").args(words), PATIENCE).expect_ok();
        }
    }

    fn serve(&mut self) {
        let key = self.path("key");
        fs::write(&key, "ab".repeat(32)).expect("a key");
        command(&format!("chmod 600 {}", key.display()));
        fs::create_dir(self.mount_point()).expect("a mount point");
        let (server, client) = (self.server(), self.client());
        let dir = |name: &str| self.path(name).display().to_string();
        let known = ["--mgmtd", MANAGEMENT, "--interfaces", RAILS];
        let (mgmtd, metad, target) = (dir("mgmtd"), dir("metad"), dir("target"));
        let start = |host: &str, words: &[&str]| self.spawn(words[0], host, words);
        let mut processes = vec![start(&server, &["mgmtd", "--init", "--dir", &mgmtd, "--listen", MANAGEMENT])];
        let metrics = ["--metrics-listen", "10.78.0.1:0"];
        let metad = [&["metad", "--init", "--dir", &metad, "--alias", "metad"][..], &known, &metrics].concat();
        processes.push(start(&server, &metad));
        let storaged = ["storaged", "--init", "--targets", &target, "--alias", "storaged", "--lanes", "2"];
        processes.push(start(&server, &[&storaged[..], &known, &metrics].concat()));
        let point = self.mount_point().display().to_string();
        let mount = ["mount", &point, "--foreground", "--log-level", "info,net=debug"];
        processes.push(start(&client, &[&mount[..], &known].concat()));
        self.processes = processes;
        wait::until("the mount", PATIENCE, || mounts::is_mounted(&self.mount_point()).then_some(()));
    }

    fn spawn(&self, name: &str, host: &str, words: &[&str]) -> Child {
        let log = fs::File::create(self.path(&format!("{name}.log"))).expect("a log");
        let mut command = self.inside(host, words);
        command.arg("--key-file").arg(self.path("key")).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a descriptor")).stderr(log);
        command.spawn().expect("nsenter can be run")
    }

    fn inside(&self, host: &str, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{host}")).arg(binary::weft()).args(words);
        command
    }

    /// A second storage service, `storaged-2`, on the client's host.
    ///
    /// # Panics
    /// Where it does not register.
    pub fn add_storage(&mut self) {
        let (name, target) = ("storaged-2", self.path("target-2").display().to_string());
        let words = ["storaged", "--init", "--targets", &target, "--alias", name, "--lanes", "2"];
        let known = ["--mgmtd", MANAGEMENT, "--interfaces", RAILS];
        let child = self.spawn(name, &self.client(), &[&words[..], &known].concat());
        self.processes.push(child);
        wait::until("the second storage service", PATIENCE, || {
            let list = self.weft_on_cluster(&["node", "list", "--json"]).expect_ok().stdout;
            let nodes: Value = serde_json::from_str(&list).ok()?;
            let is_there = |node: &Value| node["alias"] == name && node["state"] == "online";
            nodes.as_array()?.iter().any(is_there).then_some(())
        });
    }

    /// A command of the client's host about this cluster.
    pub fn weft_on_cluster(&self, words: &[&str]) -> Ended {
        let key = self.path("key").display().to_string();
        self.weft(&[words, &["--mgmtd", MANAGEMENT, "--key-file", &key]].concat())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.all.path().join(name)
    }

    #[must_use]
    pub fn mount_point(&self) -> PathBuf {
        self.path("mnt")
    }

    /// On the mount.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.mount_point().join(name)
    }

    /// Process of the storage service.
    #[must_use]
    pub fn storaged(&self) -> i32 {
        self.processes[2].id() as i32
    }

    pub fn cut(&self, rail: usize, how: Cut) {
        match how {
            Cut::Down => self.at_client(&format!("ip link set c{rail} down")),
            Cut::FarDown => command(&format!("ip -n {} link set s{rail} down", self.server())),
            Cut::Blackhole => {
                self.at_client(&format!("nft add rule inet cut in iifname c{rail} drop"));
                self.at_client(&format!("nft add rule inet cut out oifname c{rail} drop"));
            }
            Cut::Reset => {
                // Both ends hear of it.
                self.at_client(&format!(
                    "nft add rule inet cut out oifname c{rail} meta l4proto tcp reject with tcp reset"
                ));
                self.at_client(&format!(
                    "nft add rule inet cut in iifname c{rail} meta l4proto tcp reject with tcp reset"
                ));
            }
        }
    }

    /// Two bytes in the midst of one packet in `among` become others, both ways. Nothing below notices: virtual interfaces
    /// do not compare TCP's checksums. Until [`Self::mend`].
    pub fn corrupt(&self, rail: usize, among: u32) {
        let hit = format!("meta length > 1400 numgen random mod {among} == 0 @th,8000,16 set 0x5a5a");
        self.at_client(&format!("nft add rule inet cut in iifname c{rail} {hit}"));
        self.at_client(&format!("nft add rule inet cut out oifname c{rail} {hit}"));
    }

    pub fn mend(&self, rail: usize) {
        self.at_client("nft flush table inet cut");
        self.at_client(&format!("ip link set c{rail} up"));
        command(&format!("ip -n {} link set s{rail} up", self.server()));
    }

    fn at_client(&self, line: &str) {
        command(&format!("nsenter --net=/run/netns/{} {line}", self.client()));
    }

    /// A command of the client's host.
    pub fn weft(&self, words: &[&str]) -> Ended {
        run(&mut self.inside(&self.client(), words), PATIENCE)
    }

    /// What `weft net` says of the mount.
    ///
    /// # Panics
    /// Where it fails.
    #[must_use]
    pub fn net(&self) -> Value {
        let point = self.mount_point();
        let ended = self.weft_on_cluster(&["net", "--json", point.to_str().expect("a plain path")]).expect_ok();
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
    }

    /// Bytes that the mount has sent and received over each rail.
    #[must_use]
    pub fn bytes(&self) -> Vec<u64> {
        self.per_rail(|rail| Some(rail["sent"].as_u64()? + rail["received"].as_u64()?))
    }

    /// Whether each rail is healthy.
    #[must_use]
    pub fn healthy(&self) -> Vec<bool> {
        self.per_rail(|rail| Some(u64::from(rail["state"] == "healthy"))).iter().map(|&healthy| healthy > 0).collect()
    }

    fn per_rail(&self, value: impl Fn(&Value) -> Option<u64>) -> Vec<u64> {
        let net = self.net();
        let rails = net[0]["rails"].as_array().cloned().unwrap_or_default();
        let of = |rail: usize| {
            let found = rails.iter().filter(|one| one["peer"] == format!("10.77.{rail}.1"));
            found.filter_map(&value).sum()
        };
        (0..self.rails).map(of).collect()
    }

    /// What the service or the mount has logged.
    #[must_use]
    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    fn logs(&self) -> String {
        let tail = |name: &str| {
            let text = self.log(name);
            let lines: Vec<&str> = text.lines().collect();
            format!("--- {name}\n{}\n", lines[lines.len().saturating_sub(40)..].join("\n"))
        };
        ["mgmtd", "metad", "storaged", "mount"].map(tail).concat()
    }
}

fn command(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    run(Command::new(words[0]).args(&words[1..]), PATIENCE).expect_ok();
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "shown with the test that failed")]
            {
                eprintln!("{}", self.logs());
            }
        }
        let _ = mounts::unmount(&self.mount_point(), true);
        for child in self.processes.iter_mut().rev() {
            process::signal(child.id() as i32, libc::SIGCONT);
            let _ = child.kill();
            let _ = child.wait();
        }
        for host in [self.server(), self.client()] {
            let _ = Command::new("ip").args(["netns", "del", &host]).status();
        }
        let _ = mounts::unmount(&self.mount_point(), true);
    }
}
