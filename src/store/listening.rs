//! Which gateways that share this store are running, and where they listen.
//!
//! Each of them keeps a file that is named after its address, locked as long as it lives, so that a gateway that
//! forwards to another one with the same books is noticed. For notices and the set-up of agents only: nothing fails if
//! a file is missing, and then a gateway is not recognised.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process;

/// How the names of the files begin. The address and the id of the process follow.
const PREFIX: &str = "plimsoll.db-listening-";

/// The file of a running gateway; removed with this value.
#[derive(Debug)]
pub struct Listening {
    path: PathBuf,
    _locked: File,
}

impl Listening {
    /// Lets others know that this process listens at an address. `state` is the directory of the store.
    ///
    /// # Errors
    /// If the file cannot be written or locked.
    pub fn at(address: SocketAddr, state: &Path) -> io::Result<Self> {
        for (_, path) in files(state).filter(|(_, path)| !is_locked(path)) {
            // Another gateway that starts may have done so.
            let _ = fs::remove_file(path);
        }
        let path = state.join(format!("{PREFIX}{address}-{}", process::id()));
        let mut options = OpenOptions::new();
        // A pipe that is opened for writing alone would block.
        options.create(true).read(true).write(true).truncate(true).mode(0o600);
        let file = options.open(&path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
        }
        file.try_lock()?;
        Ok(Self { path, _locked: file })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The next gateway removes it if this fails.
        let _ = fs::remove_file(&self.path);
    }
}

/// The addresses of the running gateways whose store is in this directory.
pub fn listening(state: &Path) -> Vec<SocketAddr> {
    let running = files(state).filter(|(_, path)| is_locked(path));
    running.map(|(address, _)| address).collect()
}

fn files(state: &Path) -> impl Iterator<Item = (SocketAddr, PathBuf)> {
    let files = fs::read_dir(state).into_iter().flatten().flatten();
    // Opening a pipe would block.
    let files = files.filter(|file| file.file_type().is_ok_and(|kind| kind.is_file()));
    files.filter_map(|file| {
        let name = file.file_name();
        Some((name.to_str()?.strip_prefix(PREFIX)?.rsplit_once('-')?.0.parse().ok()?, file.path()))
    })
}

/// Whether a process has locked the file, and so lives.
fn is_locked(path: &Path) -> bool {
    let locked = File::open(path).map(|file| file.try_lock_shared());
    matches!(locked, Ok(Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_are_listed_while_they_live() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(listening(state.path()), []);
        let [one, other] = ["127.0.0.1:8787", "[::1]:80"].map(|address| address.parse().unwrap());
        let first = Listening::at(one, state.path()).unwrap();
        assert_eq!(listening(state.path()), [one]);
        // Files of killed gateways, and what is no such file.
        for name in ["127.0.0.1:9-1", "127.0.0.1:8787-0", "notes"] {
            fs::write(state.path().join(format!("{PREFIX}{name}")), "").unwrap();
        }
        assert_eq!(listening(state.path()), [one]);
        let pipe = state.path().join(format!("{PREFIX}127.0.0.1:9-2"));
        assert!(process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let second = Listening::at(other, state.path()).unwrap();
        let mut all = listening(state.path());
        all.sort_unstable();
        assert_eq!(all, [one, other]);
        drop((first, second));
        assert_eq!(listening(state.path()), []);
        let own = state.path().join(format!("{PREFIX}{one}-{}", process::id()));
        assert!(process::Command::new("mkfifo").arg(&own).status().unwrap().success());
        assert!(Listening::at(one, state.path()).is_err());
        fs::remove_file(own).unwrap();
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 2);
    }
}
