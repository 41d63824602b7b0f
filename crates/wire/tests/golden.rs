//! The bytes of protocol version 1, frozen: a change here is a change of the protocol, and needs a new version.
//!
//! Each line is a message with systematic field values. A new message: run this test, copy its line from the output.

mod samples;

use std::collections::BTreeSet;

use samples::{Dice, Sample, Visitor, decoded, encoded, visit_all};
use types::error::Errno;
use types::id::{Epoch, Generation, GroupId, InodeId};
use types::walk::WalkEnd;
use wire::codec::{Bytes, Wire};
use wire::frame::{Header, Status, flags};
use wire::op::Op;
use wire::v1::transaction::Promise;

const MESSAGES: &str = include_str!("golden/messages.txt");
const OPERATIONS: &str = include_str!("golden/operations.txt");
const CLASSES: &str = include_str!("golden/classes.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal"))
        .collect()
}

#[derive(Default)]
struct Table {
    lines: String,
    names: BTreeSet<&'static str>,
}

impl Visitor for Table {
    fn visit<T: Wire + Sample + PartialEq + std::fmt::Debug>(&mut self, name: &'static str) {
        let message = T::sample(&mut Dice::Systematic(0));
        let bytes = hex(&encoded(&message));
        self.lines.push_str(format!("{name} {bytes}").trim_end());
        self.lines.push('\n');
        assert!(self.names.insert(name), "{name} is there twice");
        assert_eq!(decoded::<T>(&unhex(&bytes)), Ok(message));
    }
}

#[test]
fn messages_are_frozen() {
    let mut table = Table::default();
    visit_all(&mut table);
    assert!(table.lines == MESSAGES, "the encoding changed. It is now:\n{}", table.lines);
}

#[test]
fn operation_numbers_are_frozen() {
    let table: String = Op::ALL.iter().map(|op| format!("{:#06x} {}\n", *op as u16, op.name())).collect();
    assert!(table == OPERATIONS, "the operations changed. They are now:\n{table}");
}

/// What the list calls it, and the rule.
type Class = (&'static str, fn(Op) -> bool);

/// No bytes, but what a new operation shows up in: whoever adds one decides here what kind it is.
#[test]
fn every_operation_is_classified() {
    let classes: [Class; 7] = [
        ("changes_objects", Op::changes_objects),
        ("changes_files", Op::changes_files),
        ("is_done_once", Op::is_done_once),
        ("grows_metadata", Op::grows_metadata),
        ("changes_metadata", Op::changes_metadata),
        ("is_numbered", Op::is_numbered),
        ("is_open_to_all", Op::is_open_to_all),
    ];
    let words = |op: Op| classes.iter().filter(move |class| class.1(op)).map(|class| format!(" {}", class.0));
    let line = |&op: &Op| format!("{}{}\n", op.name(), words(op).collect::<String>());
    let table: String = Op::ALL.iter().map(line).collect();
    assert!(table == CLASSES, "the classes changed. They are now:\n{table}");
}

/// No message is missing from the list of samples: their declarations are counted in the sources.
#[test]
fn every_declared_message_has_golden_bytes() {
    let mut table = Table::default();
    visit_all(&mut table);
    let sources = [
        ("hello", include_str!("../src/hello.rs")),
        ("op", include_str!("../src/op.rs")),
        ("session", include_str!("../src/v1/session.rs")),
        ("storage", include_str!("../src/v1/storage.rs")),
        ("meta", include_str!("../src/v1/meta.rs")),
        ("transaction", include_str!("../src/v1/transaction.rs")),
        ("lock", include_str!("../src/v1/lock.rs")),
        ("bench", include_str!("../src/v1/bench.rs")),
        ("netbench", include_str!("../src/v1/netbench.rs")),
        ("scrub", include_str!("../src/v1/scrub.rs")),
    ];
    let mut declared = BTreeSet::new();
    for (module, source) in sources {
        let (_, after) = source.split_once("messages! {\n").expect("a source with messages");
        let (block, _) = after.split_once("\n}\n").expect("their end");
        for line in block.lines() {
            let Some(rest) = line.strip_prefix("    ") else { continue };
            if rest.starts_with(|first: char| first.is_ascii_uppercase()) {
                let name = rest.split_whitespace().next().expect("a name");
                declared.insert(format!("{module}::{name}"));
            }
        }
    }
    let listed: BTreeSet<String> = table.names.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(listed, declared);
}

#[test]
fn the_header_is_frozen() {
    let header = Header {
        version: 1,
        op: Op::Write,
        flags: flags::REPLY | flags::CHECKED,
        status: Status::Errno(Errno::ENOSPC),
        group: GroupId(0x0403_0201),
        request: 0x1817_1615_1413_1211,
        generation: Generation(0x2827_2625_2423_2221),
        epoch: Epoch(0x3837_3635_3433_3231),
        body_len: 0x0001_4241,
        payload_len: 0x0002_5251,
        body_crc: 0x6463_6261,
        payload_crc: 0x7473_7271,
    };
    let golden = "57454654010001020300\
                  1c0001020304111213141516171821222324252627283132333435363738\
                  414201005152020061626364717273740000000004106b49";
    assert_eq!(hex(&header.encode(0x0a0b_0c0d)), golden);
    let bytes = unhex(golden).try_into().expect("64 bytes");
    assert_eq!(Header::decode(&bytes, 0x0a0b_0c0d, 1), Ok(header));
}

#[test]
fn statuses_are_frozen() {
    let frozen = [
        (Status::Ok, 0),
        (Status::Errno(Errno::ENOENT), 2),
        (Status::Errno(Errno(4095)), 4095),
        (Status::StaleMap, 0x8001),
        (Status::NoSession, 0x8002),
        (Status::Busy, 0x8003),
    ];
    for (status, number) in frozen {
        assert_eq!(status.to_u16(), number);
        assert_eq!(Status::from_u16(number), Some(status));
    }
    for unknown in [4096, 0x8000, 0x8004, 0xffff] {
        assert_eq!(Status::from_u16(unknown), None);
    }
}

#[test]
fn ends_of_walks_are_frozen() {
    let frozen = [
        (WalkEnd::Found, "00"),
        (WalkEnd::GoOn(InodeId(0x0807_0605_0403_0201)), "010102030405060708"),
        (WalkEnd::Absent, "02"),
        (WalkEnd::NotDirectory, "03"),
        (WalkEnd::Symlink, "04"),
    ];
    for (end, bytes) in frozen {
        assert_eq!(hex(&encoded(&end)), bytes);
        assert_eq!(decoded(&unhex(bytes)), Ok(end));
    }
    assert!(decoded::<WalkEnd>(&[5]).is_err());
}

#[test]
fn promises_are_frozen() {
    let frozen = [
        (Promise::Given(Bytes(vec![7, 8])), "00020000000708"),
        (Promise::Refused(Errno(0x0201)), "010102"),
        (Promise::Again, "02"),
        (Promise::Waits, "03"),
    ];
    for (promise, bytes) in frozen {
        assert_eq!(hex(&encoded(&promise)), bytes);
        assert_eq!(decoded(&unhex(bytes)), Ok(promise));
    }
    assert!(decoded::<Promise>(&[4]).is_err());
}
