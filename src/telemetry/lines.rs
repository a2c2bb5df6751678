//! Writes log lines to standard error on a thread of its own. Logging never waits for a reader, since a pipe that
//! nobody reads or a paused terminal (Ctrl-S) would stop the gateway: if too many lines wait, further ones are dropped.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

/// The most lines that wait to be written.
const MAX_WAITING: usize = 512;
/// How long the process waits, before it ends, for lines to be written.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// A message to the writing thread.
enum Next {
    Line(Vec<u8>),
    /// Asks to be notified when everything queued before is written.
    Flush(SyncSender<()>),
}

/// Lines that are written by a separate thread.
pub(super) struct Lines {
    next: SyncSender<Next>,
    /// The number of lines dropped since the last one that was queued.
    lost: AtomicU64,
    /// Makes the line that reports how many were dropped.
    lost_line: fn(u64) -> String,
}

impl Lines {
    /// Starts a thread that writes lines to `there`; `lost_line` makes the line that reports how many were dropped.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(super) fn to(there: impl Write + Send + 'static, lost_line: fn(u64) -> String) -> io::Result<Self> {
        let (next, lines) = sync_channel(MAX_WAITING);
        thread::Builder::new().name("log".to_owned()).spawn(move || write(there, &lines))?;
        Ok(Self { next, lost: AtomicU64::new(0), lost_line })
    }

    /// Queues a line. Returns whether there was room.
    fn put(&self, line: Vec<u8>) -> bool {
        let full = |error| matches!(error, TrySendError::Full(_));
        !self.next.try_send(Next::Line(line)).is_err_and(full)
    }

    /// Reports how many lines were dropped, if any. Returns whether there was room for that.
    fn report_lost(&self) -> bool {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let is_reported = lost == 0 || self.put((self.lost_line)(lost).into_bytes());
        if !is_reported {
            self.lost.fetch_add(lost, Ordering::Relaxed);
        }
        is_reported
    }

    /// Waits until everything is written, for at most [`FINISH_TIMEOUT`].
    pub(super) fn finish(&self) {
        let (done, wait) = sync_channel(1);
        if self.report_lost() && self.next.try_send(Next::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(FINISH_TIMEOUT);
        }
    }
}

impl Write for &Lines {
    /// Queues the bytes as one line, or counts it as lost. Never fails.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.report_lost() || !self.put(line.to_vec()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(mut there: impl Write, lines: &Receiver<Next>) {
    for next in lines {
        match next {
            // There is nobody left to report a failure to.
            Next::Line(line) => drop(there.write_all(&line)),
            Next::Flush(done) => drop(done.send(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Reports that it has a line, and takes it as soon as it is allowed to.
    struct Held {
        has_one: SyncSender<()>,
        let_go: Receiver<()>,
        written: Arc<Mutex<String>>,
    }

    impl Write for Held {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // Fails if the other end was dropped, which releases everything.
            let _ = self.has_one.send(());
            let _ = self.let_go.recv();
            self.written.lock().unwrap().push_str(std::str::from_utf8(line).unwrap());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn logging_never_waits_and_reports_lost_lines() {
        let ((has_one, holds), (hold, let_go)) = (sync_channel(1), sync_channel(0));
        let written = Arc::new(Mutex::new(String::new()));
        let held = Held { has_one, let_go, written: Arc::clone(&written) };
        let lines = Lines::to(held, |lost| format!("{lost} lost\n")).unwrap();
        let say = |line: &str| (&lines).write_all(line.as_bytes()).unwrap();
        say("first\n");
        holds.recv().unwrap();
        (0..MAX_WAITING + 10).for_each(|at| say(&format!("{at}\n")));
        drop((holds, hold));
        // There is room as soon as the thread gets its turn.
        while !lines.report_lost() {
            thread::yield_now();
        }
        let (done, wait) = sync_channel(1);
        for next in [Next::Line(b"after\n".to_vec()), Next::Flush(done)] {
            lines.next.send(next).unwrap();
        }
        wait.recv().unwrap();
        let kept: Vec<String> = (0..MAX_WAITING).map(|at| at.to_string()).collect();
        let expected = format!("first\n{}\n10 lost\nafter\n", kept.join("\n"));
        assert_eq!(*written.lock().unwrap(), expected);
    }
}
