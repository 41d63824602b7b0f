//! Whether the kernel offers FUSE over io_uring: an administrator's switch, off by default.

use std::fs;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Switches it on for connections to come, where that is needed and allowed. Whether it worked shows in the kernel's
/// offer.
pub(crate) fn switch_on() {
    if !fs::read_to_string(SWITCH).is_ok_and(|state| state.trim() == "N") {
        return;
    }
    match fs::write(SWITCH, "Y") {
        Ok(()) => tracing::info!("FUSE over io_uring was off in this kernel: switched on ({SWITCH})"),
        Err(error) => tracing::debug!(%error, "{SWITCH} stays off"),
    }
}

/// Why a mount that insists on it does not begin.
pub(crate) fn missing() -> String {
    format!("the kernel does not offer FUSE over io_uring (Linux 6.14, and as root: echo Y > {SWITCH})")
}
