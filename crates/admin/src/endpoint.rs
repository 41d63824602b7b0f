//! A question to a running service's HTTP endpoint.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use conf::Fatal;

const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const ANSWER_MAX: u64 = 16 << 20;

/// # Errors
/// Where it does not answer; a usage error where it does not understand `body`.
pub(crate) fn ask(endpoint: &str, method: &str, path: &str, body: &str) -> Result<String> {
    let answer = exchange(endpoint, method, path, body).with_context(|| format!("{endpoint} does not answer"))?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| anyhow!("{endpoint} speaks no HTTP"))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    match status {
        "200" => Ok(body.trim().to_owned()),
        "400" => Err(Fatal::usage(format!("{endpoint} refuses it: {}", body.trim())).into()),
        _ => bail!("{endpoint} answers {status}: {}", body.trim()),
    }
}

/// One request on a connection of its own, without a client library: three headers each way.
fn exchange(endpoint: &str, method: &str, path: &str, body: &str) -> io::Result<String> {
    let address = endpoint.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {endpoint}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}
