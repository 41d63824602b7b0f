//! JuiceFS with Redis for its names, and a local directory for its data.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::peer::{COMMAND, FusePeer, START, mount_point};
use super::process::{Daemon, ask, find_program, free_port};

pub(crate) fn start(folder: &Path) -> Result<FusePeer> {
    let program = find_program("juicefs").context("no juicefs")?;
    let port = free_port(Ipv4Addr::LOCALHOST.into())?;
    let redis = start_redis(folder, port)?;
    let meta = format!("redis://127.0.0.1:{port}/1");
    let mut format = Command::new(&program);
    format.args(["format", "--storage", "file", "--bucket"]).arg(folder.join("data/"));
    ask(format.args([&meta, "bench"]), COMMAND).context("cannot make a volume")?;
    let (cache, at) = (folder.join("cache"), mount_point(folder));
    Ok(FusePeer::new(folder, vec![redis], move || {
        let mut mount = Command::new(&program);
        // Its defaults, but that it tells nobody of us, and keeps what it caches here.
        mount.args(["mount", "--no-usage-report", "--no-syslog", "--cache-dir"]).arg(&cache).arg(&meta).arg(&at);
        mount
    }))
}

fn start_redis(folder: &Path, port: u16) -> Result<Daemon> {
    let dir = folder.join("redis");
    fs::create_dir(&dir)?;
    let mut redis = Command::new(find_program("redis-server").context("no redis-server")?);
    redis.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"]).arg(&dir);
    let mut redis = Daemon::start(&mut redis, &folder.join("redis.log"))?;
    redis.wait_for_listener((Ipv4Addr::LOCALHOST, port).into(), START)?;
    Ok(redis)
}
