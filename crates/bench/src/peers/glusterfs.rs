//! GlusterFS: one management daemon, and a volume that is distributed over two bricks.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::peer::{COMMAND, FusePeer, START, mount_point};
use super::process::{Daemon, ask, find_program};

/// Of the loopback, and no other cluster's. As `localhost`, it would be refused.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 24, 0, 7);
/// Which bricks and mounts ask.
const PORT: u16 = 24007;
const VOLUME: &str = "bench";
/// Of `sockaddr_un`.
const SOCKET_NAME_MAX: usize = 108;
/// The daemons of bricks.
const BRICK: &str = "glusterfsd";

pub(crate) fn start(folder: &Path) -> Result<FusePeer> {
    let management = start_management(folder)?;
    let (program, at) = (find_program("glusterfs").context("no glusterfs")?, mount_point(folder));
    let log = folder.join("client.log");
    let mount = move || {
        let mut mount = Command::new(&program);
        mount.arg("--no-daemon").args(["--process-name", "fuse"]).arg(format!("--volfile-server={ADDRESS}"));
        mount.arg(format!("--volfile-id={VOLUME}")).arg(format!("--log-file={}", log.display())).arg(&at);
        mount
    };
    // From here on, whatever fails, the bricks are ended too.
    let peer = FusePeer::new(folder, vec![management], mount).with_strays(BRICK);
    let mut create = gluster(folder)?;
    create.args(["volume", "create", VOLUME, "transport", "tcp"]);
    for number in 1..=2 {
        let brick = folder.join(format!("brick-{number}"));
        fs::create_dir(&brick)?;
        create.arg(format!("{ADDRESS}:{}", brick.display()));
    }
    // `force`: bricks are not the roots of disks of their own.
    ask(create.arg("force"), COMMAND).context("cannot make a volume")?;
    ask(gluster(folder)?.args(["volume", "start", VOLUME]), COMMAND).context("cannot start the volume")?;
    Ok(peer)
}

fn start_management(folder: &Path) -> Result<Daemon> {
    ensure!(
        socket(folder).len() < SOCKET_NAME_MAX,
        "the path of {} is too long for a socket: give another place with --dir",
        folder.display()
    );
    let [state, run, logs] = ["state", "run", "logs"].map(|name| folder.join(name));
    for dir in [&state, &run, &logs] {
        fs::create_dir(dir)?;
    }
    // As the package has it, but for the places and the address.
    let options = [
        format!("working-directory {}", state.display()),
        format!("run-directory {}", run.display()),
        format!("logging-directory {}", logs.display()),
        format!("glusterd-sockfile {}", socket(folder)),
        format!("transport.socket.bind-address {ADDRESS}"),
        format!("transport.socket.listen-port {PORT}"),
        "transport-type socket".into(),
        "transport.socket.keepalive-time 10".into(),
        "transport.socket.keepalive-interval 2".into(),
        "transport.socket.read-fail-log off".into(),
        "ping-timeout 0".into(),
        "event-threads 1".into(),
        "max-port 60999".into(),
    ];
    let options: String = options.iter().map(|option| format!("    option {option}\n")).collect();
    let config = folder.join("glusterd.vol");
    fs::write(&config, format!("volume management\n    type mgmt/glusterd\n{options}end-volume\n"))?;
    let mut management = Command::new(find_program("glusterd").context("no glusterd")?);
    management.arg("--no-daemon").arg(format!("--volfile={}", config.display()));
    management.arg(format!("--log-file={}", folder.join("glusterd.log").display()));
    management.arg(format!("--pid-file={}", folder.join("glusterd.pid").display()));
    let mut management = Daemon::start(&mut management, &folder.join("glusterd.out"))?;
    management.wait_for_listener((ADDRESS, PORT).into(), START)?;
    let sock = socket(folder);
    management.wait("listening at its socket", START, || Path::new(&sock).exists())?;
    Ok(management)
}

fn socket(folder: &Path) -> String {
    folder.join("glusterd.sock").display().to_string()
}

fn gluster(folder: &Path) -> Result<Command> {
    let mut gluster = Command::new(find_program("gluster").context("no gluster")?);
    gluster.args(["--mode=script", &format!("--glusterd-sock={}", socket(folder))]);
    gluster.arg(format!("--log-file={}", folder.join("cli.log").display()));
    Ok(gluster)
}
