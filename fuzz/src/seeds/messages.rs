//! A seed for each message of the protocol: the golden bytes of its type.

use std::collections::BTreeMap;

use wire::op::Op;

use super::Seed;

/// `module::Type HEX`, one a line.
const GOLDEN: &str = include_str!("../../../crates/wire/tests/golden/messages.txt");
/// Which types an operation has is in its list alone.
const OPERATIONS: &str = include_str!("../../../crates/wire/src/op.rs");

/// Request and reply of each operation.
///
/// # Panics
/// Where the list of operations or the golden file has another form than this reads.
#[must_use]
pub fn messages() -> Vec<Seed> {
    let golden: BTreeMap<&str, &str> = GOLDEN.lines().map(|line| line.split_once(' ').unwrap_or((line, ""))).collect();
    let mut seeds = Vec::new();
    for (name, number, types) in operations() {
        for (reply, (kind, of_type)) in ["request", "reply"].into_iter().zip(types).enumerate() {
            let hex = golden.get(of_type.as_str()).unwrap_or_else(|| panic!("{of_type} has no golden bytes"));
            let mut bytes = number.to_le_bytes().to_vec();
            bytes.push(reply as u8);
            bytes.extend(unhex(hex));
            seeds.push(Seed::new("message", format!("{number:04x}-{name}-{kind}"), bytes));
        }
    }
    assert_eq!(seeds.len(), 2 * Op::ALL.len(), "every operation is a line of the list");
    seeds
}

/// Name, number, and the types of request and reply as the golden file calls them. A line of the list is
/// `Name = 0x0001: module::Request => module::Reply;`.
fn operations() -> Vec<(String, u16, [String; 2])> {
    let (_, list) = OPERATIONS.split_once("\nops! {\n").expect("a list of operations");
    let (list, _) = list.split_once("\n}\n").expect("its end");
    let lines = list.lines().map(str::trim).filter(|line| line.ends_with(';'));
    lines
        .map(|line| {
            let (name, rest) = line.split_once(" = 0x").expect("a name");
            let (number, rest) = rest.split_once(": ").expect("a number");
            let (request, reply) = rest.trim_end_matches(';').split_once(" => ").expect("two types");
            let number = u16::from_str_radix(number, 16).expect("hexadecimal digits");
            (name.to_lowercase(), number, [of_golden(request), of_golden(reply)])
        })
        .collect()
}

fn of_golden(path: &str) -> String {
    let path = path.strip_prefix("Box<").and_then(|path| path.strip_suffix('>')).unwrap_or(path);
    // Those of the list's own module are named without it.
    if path.contains("::") { path.to_owned() } else { format!("op::{path}") }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits =
        |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal digits");
    text.as_bytes().chunks(2).map(digits).collect()
}
