//! A read-only connection: the store may be on a read-only file system, or belong to somebody else.
//!
//! SQLite reads a database with a write-ahead log through an index file next to it, and creates that file if necessary.
//! If there is no log, nobody has the store open. Then only the database file is read: no lock is taken, and no file is
//! created.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::{StoreError, schema};

/// The most files that are open for a database at the same time: its own, the log, the index and their folder.
const FILES: usize = 4;

/// A read-only store.
#[derive(Debug)]
pub(super) struct Reader {
    connection: Connection,
    /// The file, if it is read without a log and an index.
    still: Option<Still>,
}

/// A database file that nobody had open.
#[derive(Debug)]
struct Still {
    path: PathBuf,
    /// Its length and its modification time when it was opened.
    seen: (u64, SystemTime),
}

impl Reader {
    /// Opens an existing store.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        // The log is next to the file itself, not next to a link to it.
        let path = &fs::canonicalize(path)?;
        let still = Still::find(path)?;
        let opened = match &still {
            Some(still) => still.open(),
            None => open_shared(path),
        };
        let connection = opened.map_err(|error| explain(error, path))?;
        Ok(Self { connection, still })
    }

    /// Runs a query.
    ///
    /// # Errors
    /// Returns the error of the query, or [`StoreError::Changed`] if the file has changed in the meantime, which makes
    /// the result useless.
    pub(super) fn ask<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let answer = query(&self.connection);
        if self.still.as_ref().is_some_and(Still::has_changed) {
            return Err(StoreError::Changed);
        }
        answer
    }
}

impl Still {
    /// The file at an absolute path, if nobody has it open. Whoever has it open keeps a log and an index next to it; an
    /// empty log without an index was left by a copy.
    fn find(path: &Path) -> io::Result<Option<Self>> {
        let log = match fs::metadata(beside(path, "-wal")) {
            Ok(found) => Some(found.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if log.is_some_and(|bytes| bytes > 0 || beside(path, "-shm").exists()) {
            return Ok(None);
        }
        Ok(Some(Self { seen: seen(path)?, path: path.to_owned() }))
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let mut uri = b"file://".to_vec();
        for &byte in self.path.as_os_str().as_bytes() {
            match byte {
                b'?' | b'#' | b'%' => uri.extend(format!("%{byte:02X}").bytes()),
                _ => uri.push(byte),
            }
        }
        uri.extend(b"?immutable=1");
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(OsString::from_vec(uri), flags)?;
        schema::tune(&connection)?;
        Ok(connection)
    }

    /// Whether somebody has written to the file.
    fn has_changed(&self) -> bool {
        seen(&self.path).ok() != Some(self.seen)
    }
}

fn seen(path: &Path) -> io::Result<(u64, SystemTime)> {
    let found = fs::metadata(path)?;
    Ok((found.len(), found.modified()?))
}

/// Opens a database that others may have open, for writing if possible: whoever closes it last tidies it up, and needs
/// to write for that. If the file is not writable, SQLite opens it read-only by itself. Queries cannot write.
fn open_shared(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    schema::tune(&connection)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// Finds out why a file could not be opened, and which one: SQLite does not say.
fn explain(error: rusqlite::Error, path: &Path) -> StoreError {
    if error.sqlite_error_code() != Some(ErrorCode::CannotOpen) {
        return error.into();
    }
    // Opening a file and closing it again would release the locks that the process holds on it, and a serving gateway
    // holds some.
    let refused = |file: &Path| access(file, Access::READ_OK).err().map(io::Error::from);
    if let Some(why) = refused(path).or_else(|| refused(&beside(path, "-wal"))) {
        return why.into();
    }
    match lack_of_descriptors(path) {
        Some(why) => StoreError::NoDescriptors(why),
        None => StoreError::Unindexed,
    }
}

/// Why not as many files as a database takes can be opened, if that is for want of descriptors.
fn lack_of_descriptors(path: &Path) -> Option<io::Error> {
    // No lock is on the folder. All are opened at once, as the database needs them at once.
    let opened = [(); FILES].map(|()| fs::File::open(path.parent().unwrap_or(path)));
    let is_lack = |error: &io::Error| {
        [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error())).contains(&error.raw_os_error())
    };
    opened.into_iter().filter_map(Result::err).find(is_lack)
}

/// The path of a file with the same name and an additional ending.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
