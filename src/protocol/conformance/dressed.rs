//! Streams in other forms: however a server or a proxy writes the lines of a stream, the same is read from it. From a
//! stream that breaks off, everything before the break is read.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::fixtures::streams;
use super::{SUBJECTS, Subject, for_all};
use crate::protocol::{Answer, Framing};

/// How the lines of a stream look.
#[derive(Debug, Clone)]
struct Dress {
    mark: &'static str,
    line_end: &'static str,
    field: &'static str,
    /// What precedes each event, in turn.
    between: Vec<&'static str>,
    is_apart: bool,
    is_pretty: bool,
}

impl Dress {
    fn of(&self, events: &[String]) -> String {
        let mut out = self.mark.to_owned();
        let mut line = |line: &str| {
            out.push_str(line);
            out.push_str(self.line_end);
        };
        for (event, between) in events.iter().zip(self.between.iter().cycle()) {
            if !between.is_empty() {
                line(between);
            }
            let value = serde_json::from_str::<serde_json::Value>(event).ok().filter(|_| self.is_pretty);
            let event = value.map_or_else(|| event.clone(), |value| format!("{value:#}"));
            event.lines().for_each(|data| line(&format!("{}{data}", self.field)));
            if self.is_apart {
                line("");
            }
        }
        out
    }
}

fn dresses() -> impl Strategy<Value = Dress> {
    const BETWEEN: &[&str] = &["", ": comment", ": {}", "event: x", "id: 7", "retry: 1000"];
    (
        select(&["", "\u{feff}"][..]),
        select(&["\n", "\r\n", "\r"][..]),
        select(&["data:", "data: ", "data:  "][..]),
        prop::collection::vec(select(BETWEEN), 1..5),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(mark, line_end, field, between, is_apart, is_pretty)| Dress {
            mark,
            line_end,
            field,
            between,
            is_apart,
            is_pretty,
        })
}

fn read(subject: &dyn Subject, framing: Framing, stream: &str, cuts: &[Index]) -> Answer {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    let mut reader = subject.protocol().answer(framing);
    cuts.windows(2).for_each(|cut| reader.push(&stream.as_bytes()[cut[0]..cut[1]]));
    reader.finish()
}

fn plain(events: &[String]) -> String {
    events.iter().fold(String::new(), |stream, event| stream + "data: " + event + "\n\n")
}

/// An event in which a stream breaks off is ignored.
#[test]
fn a_partial_last_event_is_ignored() {
    let strategy = |subject: &'static dyn Subject| {
        (select(streams(subject.protocol().name())), any::<Index>(), any::<Index>()).boxed()
    };
    for_all(192, strategy, |subject, (mut events, end, cut)| {
        let broken = events.split_off(end.index(events.len())).swap_remove(0);
        let cuts = broken.char_indices().map(|(at, _)| at).collect::<Vec<_>>();
        let stream = format!("{}data: {}", plain(&events), &broken[..*cut.get(&cuts)]);
        let expected = read(subject, Framing::Events, &plain(&events), &[]);
        prop_assert_eq!(read(subject, Framing::Events, &stream, &[]), expected, "{}", &stream);
        Ok(())
    });
}

/// No sooner and no later.
#[test]
fn a_stream_ends_exactly_with_its_final_event() {
    for subject in SUBJECTS {
        let protocol = subject.protocol();
        let mut ends = 0;
        for events in streams(protocol.name()) {
            for end in 0..=events.len() {
                let stream = plain(&events[..end]);
                for framing in [Framing::Events, Framing::Document] {
                    let mut reader = protocol.answer(framing);
                    reader.push(stream.as_bytes());
                    let is_over = reader.is_over();
                    assert_eq!(is_over, reader.finish().complete, "{stream}");
                    ends += usize::from(is_over);
                }
            }
        }
        assert!(ends > 1, "{}: streams that end", protocol.name());
    }
}

#[test]
fn streams_are_read_in_any_formatting_and_chunking() {
    let strategy = |subject: &'static dyn Subject| {
        let streams = streams(subject.protocol().name());
        assert!(streams.len() > 1, "there are fixtures");
        (select(streams), any::<Index>(), dresses(), prop::collection::vec(any::<Index>(), 0..9)).boxed()
    };
    for_all(192, strategy, |subject, (events, end, dress, cuts)| {
        let events = &events[..=end.index(events.len())];
        let expected = read(subject, Framing::Events, &plain(events), &[]);
        let dressed = dress.of(events);
        for framing in [Framing::Events, Framing::Document] {
            prop_assert_eq!(&read(subject, framing, &dressed, &cuts), &expected, "{}", &dressed);
        }
        Ok(())
    });
}
