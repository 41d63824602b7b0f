//! Two hosts with a cluster (`hosts::Hosts`), whose rails tests cut and mend. Needs root.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ::hosts::{Host, MANAGEMENT, command};
use serde_json::Value;
use tempfile::TempDir;

use crate::run::{Ended, run};
use crate::{binary, wait};

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a packet that is not long. Handshakes, questions and short answers are shorter.
const SHORT: usize = 1000;

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
    /// Long packets vanish on the way to the client, or from there: the path takes less than both ends believe.
    LongToClient,
    LongFromClient,
}

/// A client and a server with a cluster of one metadata and one storage service, mounted at the client.
pub struct Hosts {
    // Before the folder under it goes.
    hosts: ::hosts::Hosts,
    _all: TempDir,
}

impl Hosts {
    /// `rate` as `tc` says it, of each rail and direction.
    ///
    /// # Panics
    /// Where this process may not do that, or the cluster does not come up.
    #[must_use]
    pub fn start(rails: usize, rate: &str) -> Self {
        Self::start_as(rails, rate, &[], &[])
    }

    /// The same with further flags of the metadata service and of the mount.
    ///
    /// # Panics
    /// As [`Self::start`].
    #[must_use]
    pub fn start_as(rails: usize, rate: &str, metadata: &[&str], mount: &[&str]) -> Self {
        let all = tempfile::Builder::new().prefix("weft-test-").tempdir().expect("a temporary directory");
        let hosts = ::hosts::Hosts::lay(binary::weft(), all.path(), rails, rate).expect("hosts");
        let mut hosts = Self { hosts, _all: all };
        hosts.make_rules();
        hosts.hosts.serve_as(metadata, mount).expect("a cluster");
        hosts
    }

    /// One more rail, also while all runs.
    ///
    /// # Panics
    /// Where it cannot be made.
    pub fn add_rail(&mut self) {
        self.hosts.add_rail().expect("a rail");
    }

    /// A table of rules that cut rails.
    fn make_rules(&self) {
        let client = self.client();
        self.at_client("nft add table inet cut");
        for (chain, hook) in [("in", "input"), ("out", "output")] {
            let kind = format!("{{ type filter hook {hook} priority 0 ; }}");
            let words = ["netns", "exec", &client, "nft", "add", "chain", "inet", "cut", chain, &kind];
            run(Command::new("ip").args(words), PATIENCE).expect_ok();
        }
    }

    fn client(&self) -> String {
        self.hosts.namespace(Host::Client)
    }

    /// A second client, on the server's host: a mount that no cut concerns.
    ///
    /// # Panics
    /// Where it does not mount.
    pub fn mount_at_server(&mut self) -> PathBuf {
        self.hosts.add_mount("mount-server", Host::Server).expect("a second mount")
    }

    /// The client hears of nobody and nobody of it, over rails and management alike, until [`Self::mend`].
    pub fn cut_off(&self) {
        self.at_client("nft add rule inet cut in iifname != lo drop");
        self.at_client("nft add rule inet cut out oifname != lo drop");
    }

    /// What the client sends arrives, and it hears of nobody, until [`Self::mend`].
    pub fn deafen(&self) {
        self.at_client("nft add rule inet cut in iifname != lo drop");
    }

    /// Directory of the storage target.
    #[must_use]
    pub fn target(&self) -> PathBuf {
        self.hosts.target("storaged")
    }

    /// A second storage service, `storaged-2`, on the client's host.
    ///
    /// # Panics
    /// Where it does not register.
    pub fn add_storage(&mut self) {
        let name = "storaged-2";
        self.hosts.add_storage(name, Host::Client, &[]).expect("a storage service");
        wait::until("the second storage service", PATIENCE, || {
            let list = self.weft_on_cluster(&["node", "list", "--json"]).expect_ok().stdout;
            let nodes: Value = serde_json::from_str(&list).ok()?;
            let is_there = |node: &Value| node["alias"] == name && node["state"] == "online";
            nodes.as_array()?.iter().any(is_there).then_some(())
        });
    }

    /// A command of the client's host about this cluster.
    pub fn weft_on_cluster(&self, words: &[&str]) -> Ended {
        let key = self.hosts.key_file().display().to_string();
        self.weft(&[words, &["--mgmtd", MANAGEMENT, "--key-file", &key]].concat())
    }

    #[must_use]
    pub fn mount_point(&self) -> PathBuf {
        self.hosts.mount_point()
    }

    /// On the mount.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.mount_point().join(name)
    }

    /// Process of `storaged`, or of `metad`.
    ///
    /// # Panics
    /// Where there is no such service.
    #[must_use]
    pub fn service(&self, name: &str) -> i32 {
        let (_, pid) = self.hosts.processes().find(|(known, _)| *known == name).expect("it was started");
        pid
    }

    pub fn cut(&self, rail: usize, how: Cut) {
        match how {
            Cut::Down => self.at_client(&format!("ip link set c{rail} down")),
            Cut::FarDown => self.set_server(rail, "down"),
            Cut::Blackhole => {
                self.at_client(&format!("nft add rule inet cut in iifname c{rail} drop"));
                self.at_client(&format!("nft add rule inet cut out oifname c{rail} drop"));
            }
            Cut::LongToClient => {
                self.at_client(&format!("nft add rule inet cut in iifname c{rail} meta length > {SHORT} drop"));
            }
            Cut::LongFromClient => {
                self.at_client(&format!("nft add rule inet cut out oifname c{rail} meta length > {SHORT} drop"));
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
        self.set_server(rail, "up");
    }

    fn set_server(&self, rail: usize, state: &str) {
        command(&format!("ip -n {} link set s{rail} {state}", self.hosts.namespace(Host::Server)))
            .expect("it is there");
    }

    fn at_client(&self, line: &str) {
        command(&format!("nsenter --net=/run/netns/{} {line}", self.client())).expect("it can be done");
    }

    /// A command of the client's host.
    pub fn weft(&self, words: &[&str]) -> Ended {
        run(&mut self.hosts.inside(Host::Client, words), PATIENCE)
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

    /// Bytes that went over a rail, both ways, whoever sent them.
    ///
    /// # Panics
    /// Where it cannot be asked.
    #[must_use]
    pub fn carried(&self, rail: usize) -> u64 {
        let client = self.client();
        let words = ["-n", &client, "-s", "-j", "link", "show", &format!("c{rail}")];
        let ended = run(Command::new("ip").args(words), PATIENCE).expect_ok();
        let links: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"));
        let bytes = |way: &str| links[0]["stats64"][way]["bytes"].as_u64().unwrap_or_else(|| panic!("{ended}"));
        bytes("rx") + bytes("tx")
    }

    /// Whether each rail is healthy.
    #[must_use]
    pub fn healthy(&self) -> Vec<bool> {
        self.per_rail(|rail| Some(u64::from(rail["state"] == "healthy"))).iter().map(|&healthy| healthy > 0).collect()
    }

    /// What `weft net` says of each rail from the mount to the server.
    #[must_use]
    pub fn per_rail(&self, value: impl Fn(&Value) -> Option<u64>) -> Vec<u64> {
        let net = self.net();
        let rails = net[0]["rails"].as_array().cloned().unwrap_or_default();
        let of = |rail: usize| {
            let found = rails.iter().filter(|one| one["peer"] == format!("10.77.{rail}.1"));
            found.filter_map(&value).sum()
        };
        (0..self.hosts.rails()).map(of).collect()
    }

    /// What the service or the mount has logged.
    #[must_use]
    pub fn log(&self, name: &str) -> String {
        self.hosts.log(name)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "shown with the test that failed")]
            {
                eprintln!("{}", self.hosts.logs());
            }
        }
    }
}
