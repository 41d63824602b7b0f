//! Requests of the kernel.

/// The first byte says what was agreed on, the rest is a message; its length is made right, as the kernel's always is.
pub fn kernel(data: &[u8]) {
    asked(data);
}

/// What the message asks for, if anything.
pub(crate) fn asked(data: &[u8]) -> Option<&'static str> {
    let [extended, message @ ..] = data else { return None };
    let mut message = message.to_vec();
    if let Some(len) = message.get(..4).map(|_| message.len() as u32) {
        message[..4].copy_from_slice(&len.to_le_bytes());
    }
    fuse::asked(&message, extended & 1 == 1)
}
