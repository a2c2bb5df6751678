//! Connections when the process may open no more files.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::support::{Gateway, read_message};

/// Much longer than a connection must have been idle to be closed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the gateway on which a request was answered, without any other file.
fn answered(gateway: &Gateway) -> Option<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: me\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let (head, _) = read_message(&mut reader)?;
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    Some(reader)
}

/// The number of the next file that the gateway opens.
fn next_file(gateway: &Gateway) -> u64 {
    let files = fs::read_dir(format!("/proc/{}/fd", gateway.id())).unwrap();
    let open: BTreeSet<u64> =
        files.map(|file| file.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    (0..=open.len() as u64).find(|number| !open.contains(number)).unwrap()
}

#[test]
fn an_idle_connection_is_closed_if_no_file_is_left_for_a_new_one() {
    let home = tempfile::tempdir().unwrap();
    let gateway = Gateway::configured(home.path(), "listen.admin = 'off'\n");
    let mut idle = [(); 2].map(|()| answered(&gateway).unwrap());
    // Numbers must be below the limit.
    let most = Some(next_file(&gateway));
    let limit = Rlimit { current: most, maximum: most };
    prlimit(Pid::from_raw(gateway.id().cast_signed()), Resource::Nofile, limit).unwrap();
    assert!(answered(&gateway).is_some());
    // The one that was idle longest.
    assert!(read_message(&mut idle[0]).is_none());
}
