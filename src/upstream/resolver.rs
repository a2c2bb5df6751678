//! Looks up the names of servers.
//!
//! The system's resolver blocks a thread, for many seconds if no name server answers, and cannot be interrupted. Large
//! bodies are read on the same threads. So connections to one name share its lookup, and few lookups are under way at a
//! time, in the whole process. One that began a while ago is not shared if it can be helped: it may be asking a name
//! server of a network that this machine has left.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{io, vec};

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::{Semaphore, watch};
use tower_service::Service;

use super::BoxError;

/// The most lookups at a time: some of the threads that a worker has for such work are left for other work.
const MAX_LOOKUPS: usize = 12;
/// The most lookups of one name at a time.
const MAX_OF_ONE_NAME: usize = 2;
/// How long others may join a lookup that has begun, unless the name is being looked up often enough.
const JOINED_FOR: Duration = Duration::from_secs(2);
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

type Found = Result<Vec<SocketAddr>, LookupError>;
type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The lookups of the process.
struct Lookups {
    room: Arc<Semaphore>,
    joined_for: Duration,
    /// The newest are at the end.
    under_way: Mutex<Vec<UnderWay>>,
    look_up: Box<LookUp>,
}

/// A lookup as others see it.
struct UnderWay {
    name: Box<str>,
    since: Instant,
    result: watch::Receiver<Option<Found>>,
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
            LazyLock::new(|| Lookups::by(JOINED_FOR, |name| Ok((name, 0).to_socket_addrs()?.collect())));
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
            Ok(found.into_iter())
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
    fn by(
        joined_for: Duration,
        look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let room = Arc::new(Semaphore::new(MAX_LOOKUPS));
        Arc::new(Self { room, joined_for, under_way: Mutex::default(), look_up: Box::new(look_up) })
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

    /// The coming result of a lookup of this name, which is begun unless there is one to join.
    #[expect(
        clippy::disallowed_methods,
        reason = "it ends by itself, and a name has few; nothing depends on its end"
    )]
    fn join(self: &Arc<Self>, name: &str) -> watch::Receiver<Option<Found>> {
        let mut under_way = self.under_way();
        let mut same_name = under_way.iter().filter(|other| *other.name == *name);
        let (count, newest) = (same_name.clone().count(), same_name.next_back());
        if let Some(newest) = newest
            && (count >= MAX_OF_ONE_NAME || newest.since.elapsed() < self.joined_for)
        {
            return newest.result.clone();
        }
        let (sender, result) = watch::channel(None);
        under_way.push(UnderWay { name: name.into(), since: Instant::now(), result: result.clone() });
        // A runtime that is ending drops the lookup at once, which takes the lock.
        drop(under_way);
        tokio::spawn(Lookup { name: name.into(), result: sender, all: Arc::clone(self) }.run());
        result
    }

    fn under_way(&self) -> MutexGuard<'_, Vec<UnderWay>> {
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
            let found = found.map_err(|error| LookupError::of(&error));
            self.result.send_replace(Some(found));
            drop(permit);
        });
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        let own = self.result.subscribe();
        self.all.under_way().retain(|other| !other.result.same_channel(&own));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rustix::io::Errno;
    use tokio::runtime::Builder;
    use tokio::task::JoinSet;

    use super::*;
    use crate::upstream::SendError;

    const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    /// No name server answers, and the threads would not suffice for all.
    #[test]
    fn pending_lookups_are_few_and_leave_threads_for_others() {
        const ASKED: [&str; 16] =
            ["a", "a", "b", "a", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"];
        for (joined_for, of_a) in [(Duration::MAX, 1), (Duration::ZERO, 2)] {
            let threads = MAX_LOOKUPS + 1;
            let runtime = Builder::new_current_thread().enable_time().max_blocking_threads(threads).build();
            let (answer, answers) = mpsc::channel();
            let (asked, names) = mpsc::channel();
            let answers = Mutex::new(answers);
            let lookups = Lookups::by(joined_for, move |name| {
                asked.send(name.to_owned()).unwrap();
                if name != "localhost" {
                    answers.lock().unwrap().recv().unwrap();
                }
                if name == "c" { Err(io::Error::other("no such name")) } else { Ok(vec![HERE]) }
            });
            let found = runtime.unwrap().block_on(async {
                let mut waiting = JoinSet::new();
                for name in ASKED {
                    let lookups = Arc::clone(&lookups);
                    waiting.spawn(async move { (name, lookups.find(name).await) });
                }
                let local = tokio::time::timeout(Duration::from_secs(60), lookups.find("localhost")).await;
                for _ in ASKED {
                    answer.send(()).unwrap();
                }
                assert_eq!(local.unwrap(), Ok(vec![HERE]));
                waiting.join_all().await
            });
            for (name, found) in &found {
                let failed = Err(LookupError::new("no such name"));
                assert_eq!(*found, if *name == "c" { failed } else { Ok(vec![HERE]) }, "{name}");
            }
            assert_eq!(found.len(), ASKED.len());
            drop(lookups);
            let names: Vec<_> = names.iter().collect();
            assert_eq!(names.iter().filter(|name| *name == "a").count(), of_a);
            assert_eq!(names.len(), of_a + "bcdefghijklmn".len() + 1);
        }
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
        let lookups = Lookups::by(Duration::MAX, |_| Ok(vec![HERE]));
        let no_room = Arc::clone(&lookups.room).try_acquire_many_owned(MAX_LOOKUPS as u32).unwrap();
        let (first, second) = (runtime(), runtime());
        first.block_on(async {
            lookups.join("a");
        });
        let waiting = second.block_on(async {
            let (mut waiting, lookups) = (JoinSet::new(), Arc::clone(&lookups));
            waiting.spawn(async move { lookups.find("a").await });
            tokio::task::yield_now().await;
            waiting
        });
        drop(first);
        drop(no_room);
        assert_eq!(second.block_on(waiting.join_all()), [Ok(vec![HERE])]);
    }
}
