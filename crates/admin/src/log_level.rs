//! A running service's log level, over its HTTP endpoint.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use conf::Fatal;

const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const ANSWER_MAX: u64 = 64 << 10;

/// What the service behind `endpoint` (`host:port`) logs now.
///
/// # Errors
/// Where it does not answer.
pub fn get(endpoint: &str) -> Result<String> {
    ask(endpoint, "GET", "")
}

/// Changes what it logs: a level, or levels by crate (`metad=debug,net=trace`). Answers what is in use then.
///
/// # Errors
/// Where it does not answer; a usage error where it does not understand `filter`.
pub fn set(endpoint: &str, filter: &str) -> Result<String> {
    ask(endpoint, "PUT", filter)
}

fn ask(endpoint: &str, method: &str, body: &str) -> Result<String> {
    let answer = exchange(endpoint, method, body).with_context(|| format!("{endpoint} does not answer"))?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| anyhow!("{endpoint} speaks no HTTP"))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    match status {
        "200" => Ok(body.trim().to_owned()),
        "400" => Err(Fatal::usage(format!("{endpoint} refuses it: {}", body.trim())).into()),
        _ => bail!("{endpoint} answers {status}: {}", body.trim()),
    }
}

/// One request on a connection of its own, without a client library: three headers each way.
fn exchange(endpoint: &str, method: &str, body: &str) -> io::Result<String> {
    let address = endpoint.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!(
        "{method} /log-level HTTP/1.1\r\nhost: {endpoint}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener};

    use super::*;

    /// Answers one request with `answer`, and gives what was asked.
    fn serve(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let endpoint = listener.local_addr().expect("bound").to_string();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody connects");
            let mut request = [0; 1024];
            let count = stream.read(&mut request).expect("a request");
            stream.write_all(answer.as_bytes()).expect("still there");
            stream.shutdown(Shutdown::Write).expect("still there");
            // A request may come in several pieces: to close with one unread would break the connection, and the answer with
            // it. Whether it was read to its end is not the question here.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        (endpoint, thread)
    }

    #[test]
    fn asks_and_understands() {
        let (endpoint, server) = serve("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\ndebug\n");
        assert_eq!(get(&endpoint).expect("an answer"), "debug");
        assert!(server.join().expect("served").starts_with("GET /log-level HTTP/1.1\r\n"));
    }

    #[test]
    fn a_refusal_is_told() {
        let (endpoint, _server) = serve("HTTP/1.1 400 Bad Request\r\n\r\nlog level \"x\": write one of ...\n");
        let error = set(&endpoint, "x").expect_err("refused");
        assert!(error.to_string().contains("write one of"), "{error}");
        assert_eq!(conf::exit_code(error.as_ref()), 2);
        let (endpoint, _server) = serve("HTTP/1.1 500 Oh\r\n\r\nno\n");
        let error = get(&endpoint).expect_err("failed");
        assert!(error.to_string().contains("500"), "{error}");
        assert_eq!(conf::exit_code(error.as_ref()), 1);
    }
}
