//! MooseFS: a master and two chunk servers.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::peer::{FusePeer, START, mount_point};
use super::process::{Daemon, find_program, free_port};

const CHUNK_SERVERS: u16 = 2;
/// What a master begins with that has no metadata yet.
const NO_METADATA: &[u8] = b"MFSM NEW";

/// Where the master listens.
struct Ports {
    loggers: u16,
    chunk_servers: u16,
    clients: u16,
}

pub(crate) fn start(folder: &Path) -> Result<FusePeer> {
    let address = own_address()?;
    let port = || free_port(address.into());
    let ports = Ports { loggers: port()?, chunk_servers: port()?, clients: port()? };
    let mut servers = vec![start_master(folder, address, &ports)?];
    for number in 1..=CHUNK_SERVERS {
        servers.push(start_chunk_server(folder, address, number, ports.chunk_servers, port()?)?);
    }
    let (program, at) = (find_program("mfsmount").context("no mfsmount")?, mount_point(folder));
    // Of the package there may be others, for another cluster.
    let config = folder.join("mfsmount.cfg");
    fs::write(&config, "")?;
    Ok(FusePeer::new(folder, servers, move || {
        let mut mount = Command::new(&program);
        mount.arg("-f").arg("-c").arg(&config);
        mount.args(["-H", &address.to_string(), "-P", &ports.clients.to_string()]).arg(&at);
        mount
    }))
}

fn start_master(folder: &Path, address: Ipv4Addr, ports: &Ports) -> Result<Daemon> {
    let dir = folder.join("master");
    fs::create_dir(&dir)?;
    fs::write(dir.join("metadata.mfs"), NO_METADATA)?;
    fs::write(dir.join("mfsexports.cfg"), format!("{address} / rw,alldirs,admin,maproot=0:0\n"))?;
    fs::write(dir.join("mfstopology.cfg"), "")?;
    let config = format!(
        "WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {dir}\nEXPORTS_FILENAME = {dir}/mfsexports.cfg\n\
         TOPOLOGY_FILENAME = {dir}/mfstopology.cfg\n\
         MATOML_LISTEN_HOST = {address}\nMATOML_LISTEN_PORT = {}\n\
         MATOCS_LISTEN_HOST = {address}\nMATOCS_LISTEN_PORT = {}\n\
         MATOCL_LISTEN_HOST = {address}\nMATOCL_LISTEN_PORT = {}\n",
        ports.loggers,
        ports.chunk_servers,
        ports.clients,
        dir = dir.display(),
    );
    let mut master = start_server("mfsmaster", &dir, &config)?;
    master.wait_for_listener((address, ports.chunk_servers).into(), START)?;
    master.wait_for_listener((address, ports.clients).into(), START)?;
    Ok(master)
}

fn start_chunk_server(folder: &Path, address: Ipv4Addr, number: u16, master: u16, port: u16) -> Result<Daemon> {
    let dir = folder.join(format!("chunks-{number}"));
    fs::create_dir_all(dir.join("data"))?;
    fs::write(dir.join("mfshdd.cfg"), format!("{}\n", dir.join("data").display()))?;
    let config = format!(
        "WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {dir}\nHDD_CONF_FILENAME = {dir}/mfshdd.cfg\n\
         MASTER_HOST = {address}\nMASTER_PORT = {master}\nBIND_HOST = {address}\n\
         CSSERV_LISTEN_HOST = {address}\nCSSERV_LISTEN_PORT = {port}\n",
        dir = dir.display(),
    );
    let mut server = start_server("mfschunkserver", &dir, &config)?;
    server.wait_for_listener((address, port).into(), START)?;
    Ok(server)
}

fn start_server(program: &str, dir: &Path, config: &str) -> Result<Daemon> {
    let file = dir.join("server.cfg");
    fs::write(&file, config)?;
    let mut command = Command::new(find_program(program).with_context(|| format!("no {program}"))?);
    Daemon::start(command.arg("-f").arg("-c").arg(&file).arg("start"), &dir.join("server.log"))
}

/// An address of this host that is not the loopback's: the master refuses chunk servers that come from there.
fn own_address() -> Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // Sends nothing: it only asks which way packets would go to the outside (an address that no host has, RFC 5737).
    let found = socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).and_then(|()| socket.local_addr());
    let Ok(IpAddr::V4(address)) = found.map(|address| address.ip()) else { anyhow::bail!("{NO_ADDRESS}") };
    ensure!(!address.is_loopback() && !address.is_unspecified(), "{NO_ADDRESS}");
    Ok(address)
}

const NO_ADDRESS: &str =
    "this host has no IPv4 address but that of the loopback, from which no chunk server is accepted";
