//! What is kept back of a file, for those who only read it.

use std::ops::Range;

use types::error::Errno;
use types::id::InodeId;

use crate::caller::Caller;
use crate::file::File;
use crate::router::Client;

impl Client {
    /// As [`Self::write_out`], for who only reads `range` of the file: `fsync` and `close` tell what stood in the way, and what
    /// is still here of other ranges does not concern them.
    ///
    /// # Errors
    /// `EINTR`, or else `EIO`.
    pub(crate) async fn write_out_to_read(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        range: &Range<u64>,
    ) -> Result<(), Errno> {
        let Err(errno) = self.write_out(caller, inode).await else { return Ok(()) };
        let is_elsewhere =
            |file: &mut File| file.draft.is_none() && !file.unwritten.lost && !file.unwritten.has_some_of(range);
        if errno != Errno::EINTR && self.shared.with_file(inode, is_elsewhere) == Some(true) {
            return Ok(());
        }
        Err(errno_of_reader(errno))
    }
}

/// What who reads is told where what was kept back could not be written.
pub(super) fn errno_of_reader(errno: Errno) -> Errno {
    if errno == Errno::EINTR { errno } else { Errno::EIO }
}
