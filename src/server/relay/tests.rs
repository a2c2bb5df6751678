//! Which pieces of an answer are passed on, and when.

use std::collections::VecDeque;
use std::task::Waker;

use tokio::runtime::Builder;

use super::*;
use crate::upstream::Settings;

/// An upstream's answer: the frames in order; `None` if nothing is available at that moment.
struct Scripted(VecDeque<Option<Frame<Bytes>>>);

impl Body for Scripted {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.0.pop_front() {
            None => Poll::Ready(None),
            Some(None) => Poll::Pending,
            Some(Some(frame)) => Poll::Ready(Some(Ok(frame))),
        }
    }
}

/// An answer in short: `7*3` three pieces of seven bytes, `-` nothing yet, `t` trailers.
fn scripted(short: &str) -> (Scripted, Vec<u8>) {
    let (mut frames, mut all) = (VecDeque::new(), Vec::new());
    for word in short.split_whitespace() {
        match word.split_once('*') {
            None if word == "-" => frames.push_back(None),
            None => frames.push_back(Some(Frame::trailers(HeaderMap::new()))),
            Some((bytes, times)) => {
                for at in 0..times.parse().unwrap() {
                    let piece = vec![b'a' + (at % 26) as u8; bytes.parse().unwrap()];
                    all.extend_from_slice(&piece);
                    frames.push_back(Some(Frame::data(piece.into())));
                }
            }
        }
    }
    (Scripted(frames), all)
}

/// What each poll gives: the bytes of a piece, `-` nothing yet, `t` trailers, `.` the end.
fn left(short: &str) -> String {
    let (source, all) = scripted(short);
    let stats = Arc::new(Stats::default());
    let settings = Settings::new("test", "http://upstream.test".parse().unwrap());
    let upstream = Arc::new(Upstream::new(settings));
    let mut relay = Relay::new(Replay::streaming(source), Tap::none(), &upstream, &stats);
    let (mut told, mut sent) = (Vec::new(), Vec::new());
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        told.push(match relay.poll(&mut cx) {
            Poll::Pending => "-".to_owned(),
            Poll::Ready(None) => break,
            Poll::Ready(Some(frame)) => match frame.unwrap().into_data() {
                Ok(piece) => {
                    sent.extend_from_slice(&piece);
                    piece.len().to_string()
                }
                Err(_) => "t".to_owned(),
            },
        });
        assert!(told.len() < 1_000, "{short}: no end: {told:?}");
    }
    assert_eq!(sent, all, "{short}");
    told.join(" ") + " ."
}

#[test]
fn pieces_available_together_are_merged_within_limits() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let _in = runtime.enter();
    for (short, expected) in [
        ("", " ."),
        ("5*1", "5 ."),
        ("5*3", "15 ."),
        ("5*1 - 5*1", "5 5 ."),
        ("5*2 - - 5*2 t", "10 - 10 t ."),
        // At most 64 pieces are merged; the rest of a burst follows one turn later.
        ("2*64", "128 - ."),
        ("2*65", "128 - 2 ."),
        ("2*130", "128 - 128 - 4 ."),
        ("2*64 t", "128 - t ."),
        ("2*64 - 2*1", "128 - - 2 ."),
        // At most about 16 KiB are merged.
        ("8192*5", "16384 16384 8192 ."),
        ("300*60", "16500 1500 ."),
        // A large piece is not merged, which would copy it.
        ("9*1 20000*2 9*1", "9 20000 20000 9 ."),
        ("20000*1", "20000 ."),
    ] {
        assert_eq!(left(short), expected, "{short}");
    }
}
