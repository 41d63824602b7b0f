//! One file per command: its flags, and what it does with them.

pub(crate) mod down;
pub(crate) mod service;
pub(crate) mod supervise;
pub(crate) mod umount;
pub(crate) mod up;
