//! Looks up the names of servers.
//!
//! The system's resolver blocks a thread, for many seconds if no name server answers, and cannot be interrupted. Large
//! bodies are read on the same threads. So a name is looked up once at a time in the whole process, however many
//! connections wait for it, and only few names are looked up at a time.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::{io, vec};

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::{Semaphore, watch};
use tower_service::Service;

use super::BoxError;

/// The most names that are looked up at a time: half of the threads that a worker has for such work.
const MAX_LOOKUPS: usize = 4;
/// How often a lookup that others began and could not finish is begun again.
const MAX_ATTEMPTS: usize = 3;

/// Makes TCP connections.
pub(super) type Tcp = HttpConnector<Resolver>;

/// Resolves names as the system does.
#[derive(Clone)]
pub(super) struct Resolver(Arc<Lookups>);

/// A name could not be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub(super) struct LookupError {
    words: Arc<str>,
    /// The code of the system, if it was no answer that made it fail: the limit of open files may have been reached.
    code: Option<i32>,
}

type Found = Result<Arc<[SocketAddr]>, LookupError>;

/// The lookups of the process.
struct Lookups {
    room: Arc<Semaphore>,
    under_way: Mutex<Vec<(Box<str>, watch::Receiver<Option<Found>>)>>,
    look_up: Box<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>,
}

/// A lookup under way, for as long as it can still have a result: not if the runtime ends that it runs on.
struct Lookup {
    name: Box<str>,
    result: watch::Sender<Option<Found>>,
    all: Arc<Lookups>,
}

impl Resolver {
    pub(super) fn new() -> Self {
        static LOOKUPS: LazyLock<Arc<Lookups>> =
            LazyLock::new(|| Lookups::by(|name| Ok((name, 0).to_socket_addrs()?.collect())));
        Self(Arc::clone(&LOOKUPS))
    }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let lookups = Arc::clone(&self.0);
        Box::pin(async move {
            let found = lookups.find(name.as_str()).await.map_err(LookupError::into_cause)?;
            Ok(found.to_vec().into_iter())
        })
    }
}

impl LookupError {
    pub(super) fn new(words: &str) -> Self {
        Self { words: words.into(), code: None }
    }

    fn of(error: &io::Error) -> Self {
        Self { code: error.raw_os_error(), ..Self::new(&error.to_string()) }
    }

    fn into_cause(self) -> BoxError {
        self.code.map_or_else(|| self.clone().into(), |code| io::Error::from_raw_os_error(code).into())
    }
}

impl Lookups {
    fn by(look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Arc<Self> {
        let room = Arc::new(Semaphore::new(MAX_LOOKUPS));
        Arc::new(Self { room, under_way: Mutex::default(), look_up: Box::new(look_up) })
    }

    async fn find(self: &Arc<Self>, name: &str) -> Found {
        for _ in 0..MAX_ATTEMPTS {
            let mut result = self.join(name);
            if let Ok(found) = result.wait_for(Option::is_some).await
                && let Some(found) = &*found
            {
                return found.clone();
            }
        }
        Err(LookupError::new("the lookup of its name was interrupted"))
    }

    /// The coming result of the lookup of this name, which is begun if it is not under way.
    fn join(self: &Arc<Self>, name: &str) -> watch::Receiver<Option<Found>> {
        let mut under_way = self.under_way();
        if let Some((_, result)) = under_way.iter().find(|(other, _)| **other == *name) {
            return result.clone();
        }
        let (sender, result) = watch::channel(None);
        under_way.push((name.into(), result.clone()));
        // A runtime that is ending drops the lookup at once, which takes the lock.
        drop(under_way);
        tokio::spawn(Lookup { name: name.into(), result: sender, all: Arc::clone(self) }.run());
        result
    }

    fn under_way(&self) -> MutexGuard<'_, Vec<(Box<str>, watch::Receiver<Option<Found>>)>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lookup {
    async fn run(self) {
        // No name server is asked for this one, so that it does not wait behind those that are.
        let is_local = self.name.eq_ignore_ascii_case("localhost");
        let permit = if is_local { None } else { Arc::clone(&self.all.room).acquire_owned().await.ok() };
        tokio::task::spawn_blocking(move || {
            let found = (self.all.look_up)(&self.name);
            let found = found.map(Arc::from).map_err(|error| LookupError::of(&error));
            self.result.send_replace(Some(found));
            drop(permit);
        });
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.all.under_way().retain(|(name, _)| *name != self.name);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::io::Errno;
    use tokio::runtime::Builder;
    use tokio::task::JoinSet;

    use super::*;
    use crate::upstream::SendError;

    const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    /// No name server answers, and the threads would not suffice for all.
    #[test]
    fn pending_lookups_leave_threads_for_others() {
        let runtime =
            Builder::new_current_thread().enable_time().max_blocking_threads(MAX_LOOKUPS + 1).build();
        let (answer, answers) = mpsc::channel();
        let (asked, names) = mpsc::channel();
        let answers = Mutex::new(answers);
        let lookups = Lookups::by(move |name| {
            asked.send(name.to_owned()).unwrap();
            if name != "localhost" {
                answers.lock().unwrap().recv().unwrap();
            }
            if name == "c" { Err(io::Error::other("no such name")) } else { Ok(vec![HERE]) }
        });
        let found = runtime.unwrap().block_on(async {
            let mut waiting = JoinSet::new();
            for name in ["a", "a", "b", "a", "c", "d", "e", "f"] {
                let lookups = Arc::clone(&lookups);
                waiting.spawn(async move { (name, lookups.find(name).await) });
            }
            let local = tokio::time::timeout(Duration::from_secs(60), lookups.find("localhost")).await;
            (0..6).for_each(|_| answer.send(()).unwrap());
            let mut found = waiting.join_all().await;
            found.sort_by_key(|(name, _)| *name);
            assert_eq!(local.unwrap(), Ok(Arc::from([HERE])));
            found
        });
        for (name, found) in &found {
            let failed = Err(LookupError::new("no such name"));
            assert_eq!(*found, if *name == "c" { failed } else { Ok(Arc::from([HERE])) }, "{name}");
        }
        assert_eq!(found.len(), 8);
        drop(lookups);
        let mut names: Vec<_> = names.iter().collect();
        names.sort();
        assert_eq!(names, ["a", "b", "c", "d", "e", "f", "localhost"]);
    }

    #[test]
    fn a_lookup_that_found_no_room_for_a_file_says_so() {
        for (error, expected) in [
            (Errno::MFILE.into(), "too many open files for one more connection"),
            (io::Error::other("no such name"), "cannot connect: no such name"),
        ] {
            let cause = LookupError::of(&error).into_cause();
            assert_eq!(SendError::from_connecting(&*cause).to_string(), expected);
        }
    }

    /// Each worker has a runtime of its own, and may end while others wait.
    #[test]
    fn a_lookup_whose_runtime_ends_is_begun_again() {
        let runtime = || Builder::new_current_thread().enable_time().build().unwrap();
        let lookups = Lookups::by(|_| Ok(vec![HERE]));
        let no_room = Arc::clone(&lookups.room).try_acquire_many_owned(MAX_LOOKUPS as u32).unwrap();
        let (first, second) = (runtime(), runtime());
        first.block_on(async {
            lookups.join("a");
        });
        let waiting = second.block_on(async {
            let lookups = Arc::clone(&lookups);
            let waiting = tokio::spawn(async move { lookups.find("a").await });
            tokio::task::yield_now().await;
            waiting
        });
        drop(first);
        drop(no_room);
        assert_eq!(second.block_on(waiting).unwrap(), Ok(Arc::from([HERE])));
    }
}
