//! The client core on a ring of this process, without kernel or mount. One operation at a time, as a system call is.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use client::{Caller, Client, Cluster, Connected, Durability, Looked};
use ring::buf::{Buf, Slice};
use types::attr::FileType;
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;

use super::{Entry, Free, Place, Store};
use crate::work::pattern::{BLOCK, Pages};

/// For the cluster to be there.
const PATIENCE: Duration = Duration::from_secs(10);
/// Entries of one page.
const PAGE: u32 = 1024;

pub(crate) struct Core {
    ring: ring::Ring,
    /// Until the end.
    client: Option<Rc<Client>>,
    folder: String,
    /// Nothing is kept back, or read ahead.
    direct: bool,
    /// By path, as a kernel would keep them.
    directories: BTreeMap<String, InodeId>,
    // Last: it keeps the session alive.
    _connected: Connected,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Open {
    inode: InodeId,
    writable: bool,
}

impl Core {
    /// In a folder of the root, which need not be there yet.
    ///
    /// # Errors
    /// Where the place is not in a cluster, or that does not answer.
    pub(crate) fn connect(place: &Place, direct: bool) -> Result<Self> {
        let Place::Core { management, key_file, folder, loopback } = place else { bail!("{place} is in no cluster") };
        let cluster = Cluster { management: management.clone(), key_file: key_file.clone(), patience: PATIENCE };
        let config = client::config::Config {
            description: "weft bench".into(),
            share_memory: !loopback,
            local_sockets: !loopback,
            ..Default::default()
        };
        let connected = client::connect(&cluster, config)?;
        let mut ring = ring::Ring::new(&ring::Config::default())?;
        let shared = Arc::clone(&connected.shared);
        let client = Some(ring.run(async move { Client::new(shared) }));
        let directories = BTreeMap::new();
        Ok(Self { ring, client, folder: folder.clone(), direct, directories, _connected: connected })
    }

    /// Runs one operation to its end.
    fn wait<T>(&mut self, operation: impl AsyncFnOnce(&Rc<Client>) -> Result<T, Errno>) -> io::Result<T> {
        let Some(client) = &self.client else { return Err(error(Errno::ENOTCONN)) };
        self.ring.run(async move { operation(client).await }).map_err(error)
    }

    /// The directory that a path leads to, and the name in it. The folder itself is a name in the root.
    fn parent(&mut self, path: &str) -> io::Result<(InodeId, Name)> {
        if path.is_empty() {
            return Ok((InodeId::ROOT, name(&self.folder)?));
        }
        let (directory, last) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.directory(directory)?, name(last)?))
    }

    /// However deep it is, in as many requests as shards are on the way.
    fn directory(&mut self, path: &str) -> io::Result<InodeId> {
        if let Some(&known) = self.directories.get(path) {
            return Ok(known);
        }
        // With the slash at the end it has to be one.
        let whole = format!("{}/{path}/", self.folder);
        let find =
            async |client: &Rc<Client>| client.lookup_path(&caller(), InodeId::ROOT, whole.as_bytes(), true).await;
        let inode = self.wait(find)?.attr.inode;
        self.directories.insert(path.to_owned(), inode);
        Ok(inode)
    }

    fn lookup(&mut self, parent: InodeId, name: Name) -> io::Result<types::attr::Attr> {
        self.wait(async |client| match client.lookup(&caller(), parent, name).await? {
            Looked::Found(named) => Ok(named.attr),
            Looked::Absent(_) => Err(Errno::ENOENT),
        })
    }

    fn open(&mut self, path: &str, writable: bool) -> io::Result<Open> {
        let (parent, name) = self.parent(path)?;
        let inode = self.lookup(parent, name)?.inode;
        self.wait(async |client| client.open(&caller(), inode, writable).await)?;
        Ok(Open { inode, writable })
    }
}

impl Core {
    fn read_parts(&mut self, file: &Open, len: usize, offset: u64) -> io::Result<Vec<Slice>> {
        let (inode, direct) = (file.inode, self.direct);
        let len = u32::try_from(len).map_err(|_| error(Errno::EINVAL))?;
        self.wait(async |client| client.read(&caller(), inode, offset, len, direct).await)
    }
}

/// A copy in memory that servers on this host may be lent.
fn shareable(bytes: &[u8]) -> Buf {
    let mut copy = Buf::shareable(bytes.len());
    copy.copy_from_slice(bytes);
    copy
}

/// Copies parts that follow each other; answers how many bytes there are.
fn gather(parts: &[Slice], into: &mut [u8]) -> usize {
    let mut done = 0;
    for part in parts {
        into[done..done + part.len()].copy_from_slice(part);
        done += part.len();
    }
    done
}

/// Where the parts lie, unless a block is spread over several of them.
fn look_at(
    parts: &[Slice],
    into: &mut [u8],
    offset: u64,
    mut look: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<usize> {
    let before_last = parts.len().saturating_sub(1);
    if !parts[..before_last].iter().all(|part| part.len().is_multiple_of(BLOCK)) {
        let read = gather(parts, into);
        look(&into[..read], offset)?;
        return Ok(read);
    }
    let mut read = 0;
    for part in parts {
        look(part, offset + read as u64)?;
        read += part.len();
    }
    Ok(read)
}

impl Drop for Core {
    /// What was closed is told to the servers, and the session ends.
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            self.ring.run(async move { client.shutdown().await });
        }
    }
}

fn caller() -> Caller<'static> {
    Caller::patient(Credentials::default())
}

fn name(text: &str) -> io::Result<Name> {
    Name::new(text.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(i32::from(errno.0))
}

impl Store for Core {
    type File = Open;
    type Filling = Buf;

    fn make_directory(&mut self, path: &str) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let made = self.wait(async |client| client.mkdir(&caller(), parent, name, 0o755).await)?;
        self.directories.insert(path.to_owned(), made.attr.inode);
        Ok(())
    }

    fn create(&mut self, path: &str) -> io::Result<Open> {
        let (parent, name) = self.parent(path)?;
        let made = self.wait(async |client| client.create(&caller(), parent, name, 0o644, true).await)?;
        Ok(Open { inode: made.attr.inode, writable: true })
    }

    fn open_to_write(&mut self, path: &str) -> io::Result<Open> {
        match self.create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.open(path, true),
            made => made,
        }
    }

    fn open_to_read(&mut self, path: &str) -> io::Result<Open> {
        self.open(path, false)
    }

    /// Copies the bytes to memory that can be shared with a server on this host: the kernel copies as much on a mount.
    fn write_at(&mut self, file: &Open, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (inode, direct) = (file.inode, self.direct);
        self.wait(async |client| client.write(&caller(), inode, offset, &shareable(bytes).freeze(), direct).await)
    }

    fn read_at(&mut self, file: &Open, into: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(gather(&self.read_parts(file, into.len(), offset)?, into))
    }

    fn filling(&mut self, pages: Pages, len: usize) -> Buf {
        shareable(&pages.bytes()[..len])
    }

    /// Nothing is copied as long as nobody holds the bytes when the write is over.
    fn write_filling(&mut self, file: &Open, filling: Buf, offset: u64) -> io::Result<Buf> {
        let (inode, direct, bytes) = (file.inode, self.direct, filling.freeze());
        self.wait(async |client| client.write(&caller(), inode, offset, &bytes, direct).await)?;
        Ok(bytes.try_into_buf().unwrap_or_else(|held| shareable(&held)))
    }

    fn read_in_place(
        &mut self,
        file: &Open,
        into: &mut [u8],
        offset: u64,
        look: impl FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<usize> {
        let parts = self.read_parts(file, into.len(), offset)?;
        look_at(&parts, into, offset, look)
    }

    fn sync(&mut self, file: &Open) -> io::Result<()> {
        let inode = file.inode;
        self.wait(async |client| client.fsync(&caller(), inode, Durability::All).await)
    }

    fn sync_data(&mut self, file: &Open) -> io::Result<()> {
        let inode = file.inode;
        self.wait(async |client| client.fsync(&caller(), inode, Durability::Data).await)
    }

    fn close(&mut self, file: Open) -> io::Result<()> {
        self.wait(async |client| {
            client.close(Credentials::default(), file.inode, file.writable);
            Ok(())
        })
    }

    fn size(&mut self, path: &str) -> io::Result<u64> {
        let (parent, name) = self.parent(path)?;
        let found = self.lookup(parent, name)?;
        if found.kind == FileType::Regular { Ok(found.size) } else { Err(error(Errno::EINVAL)) }
    }

    fn unlink(&mut self, path: &str) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        self.wait(async |client| client.unlink(&caller(), parent, name).await)
    }

    fn remove_directory(&mut self, path: &str) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        self.wait(async |client| client.rmdir(&caller(), parent, name).await)?;
        self.directories.remove(path);
        Ok(())
    }

    fn list(&mut self, path: &str) -> io::Result<Vec<Entry>> {
        let inode = self.directory(path)?;
        self.wait(async |client| {
            let (mut entries, mut cookie) = (Vec::new(), 0);
            loop {
                let page = client.readdir(&caller(), inode, cookie, PAGE, false).await?;
                for entry in page.entries {
                    cookie = entry.cookie;
                    let name = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
                    entries.push(Entry { name, is_directory: entry.kind == FileType::Directory });
                }
                if page.end {
                    return Ok(entries);
                }
            }
        })
    }

    fn free(&mut self) -> io::Result<Free> {
        let found = self.wait(async |client| client.statfs(&caller()).await)?;
        Ok(Free::new(found.free_bytes, found.free_inodes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths of the pieces that were looked at with their places, and whether they lie where they came.
    fn looked(lengths: &[usize]) -> (Vec<(usize, u64)>, bool) {
        let parts: Vec<Slice> = lengths.iter().map(|&len| Slice::from_vec(vec![7; len])).collect();
        let mut into = vec![0; lengths.iter().sum()];
        let mut seen = Vec::new();
        let read = look_at(&parts, &mut into, 100, |piece, at| {
            assert!(piece.iter().all(|&byte| byte == 7));
            seen.push((piece.len(), at));
            Ok(())
        });
        assert_eq!(read.expect("all is well"), into.len());
        (seen, into.iter().all(|&byte| byte == 0))
    }

    #[test]
    fn what_was_read_is_copied_only_where_a_block_is_spread() {
        assert_eq!(looked(&[8192, 4096, 5]), (vec![(8192, 100), (4096, 8292), (5, 12_388)], true));
        assert_eq!(looked(&[5000, 4096]), (vec![(9096, 100)], false));
        assert_eq!(looked(&[]), (Vec::new(), true));
    }

    #[test]
    fn what_was_sent_is_written_from_again() {
        let bytes = shareable(b"bytes").freeze();
        let at = bytes.as_ptr();
        let again = bytes.try_into_buf().expect("nobody holds it");
        assert_eq!((again.as_ptr(), &again[..]), (at, &b"bytes"[..]));
    }
}
