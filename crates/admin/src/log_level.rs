//! A running service's log level, over its HTTP endpoint.

use anyhow::Result;

use crate::endpoint::ask;

const PATH: &str = "/log-level";

/// What the service behind `endpoint` (`host:port`) logs now.
///
/// # Errors
/// Where it does not answer.
pub fn get(endpoint: &str) -> Result<String> {
    ask(endpoint, "GET", PATH, "")
}

/// Changes what it logs: a level, or levels by crate (`metad=debug,net=trace`). Answers what is in use then.
///
/// # Errors
/// Where it does not answer; a usage error where it does not understand `filter`.
pub fn set(endpoint: &str, filter: &str) -> Result<String> {
    ask(endpoint, "PUT", PATH, filter)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
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
