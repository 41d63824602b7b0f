//! The door: one binary that is every service and every command.

fn main() {}
