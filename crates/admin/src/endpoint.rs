//! A question to a running service's HTTP endpoint.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use conf::Fatal;

const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const ANSWER_MAX: u64 = 16 << 20;

/// # Errors
/// Where it does not answer; a usage error where it does not understand `body`.
pub(crate) fn ask(endpoint: &str, method: &str, path: &str, body: &str) -> Result<String> {
    let answer = exchange(endpoint, method, path, body).map_err(in_words);
    let answer = answer.with_context(|| format!("{endpoint} does not answer"))?;
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
    let mut stream = connect(endpoint.to_socket_addrs()?)?;
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

/// The kernel calls the end of a wait by another name.
fn in_words(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, format!("nothing came within {PATIENCE:?}"))
        }
        _ => error,
    }
}

/// To the first that takes it: a name may stand for addresses at which nobody listens.
fn connect(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_waited_in_vain_is_told_for_how_long() {
        let told = |kind: io::ErrorKind| in_words(kind.into()).to_string();
        assert_eq!(told(io::ErrorKind::WouldBlock), "nothing came within 5s");
        assert_eq!(told(io::ErrorKind::ConnectionReset), "connection reset");
    }

    #[test]
    fn all_addresses_of_a_name_are_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let here = listener.local_addr().expect("bound");
        let nobody = SocketAddr::from(([127, 0, 0, 2], here.port()));
        let stream = connect([nobody, here].into_iter()).expect("the second one listens");
        assert_eq!(stream.peer_addr().expect("connected"), here);
        assert_eq!(
            connect([nobody].into_iter()).expect_err("nobody is there").kind(),
            io::ErrorKind::ConnectionRefused
        );
        connect(std::iter::empty()).expect_err("nothing to try");
    }
}
