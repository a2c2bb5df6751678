//! Replays a conversation, from a transcript or from what a gateway recorded.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use bytes::Bytes;

use super::Unplayed;
use super::bodies::{self, Marks};
use super::damage::Damage;
use super::price;
use super::quotes::Counts;
use super::recording::Recording;
use super::session::{Asked, Session, Tally, Thread};
use super::side::{BYTES_PER_TOKEN, Bill};
use super::transcript::{Request, Transcript};
use crate::ledger::{Entry, Record, ancestors};
use crate::planner::{Policy, RecallSentence};
use crate::protocol::{self, Protocol, Scale};
use crate::store::bodies::Form;
use crate::store::{Bodies, Books, StoreError};
use crate::usage::{BytesPerToken, Catalogue};

/// The settings of a replay.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) policy: &'a Policy,
    pub(super) catalogue: &'a Catalogue,
    /// The model whose prices replace those of the recorded one.
    pub(super) prices: Option<&'a str>,
    pub(super) marks: Marks,
    /// Milliseconds between requests, if a recording does not tell when they arrived.
    pub(super) pace_ms: u64,
    /// Where a gateway stores bodies.
    pub(super) bodies: &'a Bodies,
    /// The store, for other conversations.
    pub(super) store: &'a Path,
    /// How a full text is referred to.
    pub(super) recall: RecallSentence<'a>,
}

/// The results of a conversation.
#[derive(Default)]
pub(super) struct Played {
    pub(super) id: String,
    pub(super) model: Option<String>,
    /// The model whose prices were used.
    pub(super) priced_as: Option<String>,
    pub(super) tally: Tally,
    pub(super) direct: Bill,
    pub(super) gateway: Bill,
    pub(super) counts: Counts,
    /// The number of requests that a gateway recorded and sent with exactly the bytes that would be sent now; `None`
    /// for a transcript.
    pub(super) as_recorded: Option<u64>,
    /// The number of requests that a gateway recorded without their bodies, and that were left out.
    pub(super) without_body: u64,
    /// The parts of the file that were left out.
    pub(super) damage: Damage,
}

/// Replays a transcript.
///
/// # Errors
/// Why it cannot be replayed.
pub(super) fn transcript(transcript: &Transcript, setting: &Setting<'_>) -> Result<Played, String> {
    let header = &transcript.header;
    let bodies = bodies::Bodies::new(transcript, setting.marks)?;
    let protocol = dialect(&header.protocol)?;
    let model = setting.prices.or(header.model.as_deref()).unwrap_or_default();
    let found = price::find(setting.catalogue, model);
    let mut session = Session::new(protocol, setting.policy, model, found.as_ref());
    let (mut thread, mut tally, mut sent) = (Thread::default(), Tally::default(), 0);
    for (at, request) in header.requests.iter().enumerate() {
        let asked = Asked {
            sent,
            now_ms: at as u64 * setting.pace_ms,
            output: output_tokens(transcript, request),
            scale: Scale::Bytes(BYTES_PER_TOKEN),
            assumed: BYTES_PER_TOKEN,
            counted: None,
            answered: true,
            unrecorded_tokens: header.hidden_prefix_tokens_est,
            held_tokens: 0,
            recall: &unstored_reference,
            is_booked: true,
        };
        session.request(&bodies.body(request.n), &asked, &mut thread, &mut tally);
        sent = thread.measured.map_or(0, |(messages, _)| messages);
    }
    let (direct, gateway) = session.bills();
    Ok(Played {
        id: header.id.clone(),
        model: header.model.clone(),
        priced_as: found.map(|found| found.name),
        tally,
        direct,
        gateway,
        counts: thread.counts(),
        as_recorded: None,
        without_body: 0,
        damage: transcript.damage.clone(),
    })
}

fn dialect(name: &str) -> Result<&'static dyn Protocol, String> {
    protocol::named(name).ok_or_else(|| format!("unknown protocol `{name}`"))
}

/// The tokens that the provider billed for the answer, or else an estimate from its size.
fn output_tokens(transcript: &Transcript, request: &Request) -> u64 {
    let billed = request.usage.as_ref().and_then(|usage| usage.output);
    billed.unwrap_or_else(|| (transcript.answer_bytes(request) as f64 / BYTES_PER_TOKEN) as u64)
}

/// The reference to a full text that a replay does not store. It is as long as a real one.
fn unstored_reference(id: &str) -> String {
    format!("full output: /home/user/.local/state/plimsoll/outputs/{id}.txt")
}

/// Replays what a gateway recorded.
///
/// # Errors
/// Why it cannot be replayed.
pub(super) fn recording(recording: &Recording, setting: &Setting<'_>) -> Result<Played, Unplayed> {
    let mut play = Play { setting, sessions: HashMap::new(), threads: HashMap::new() };
    let (mut tally, mut found, mut same, mut without_body) = (Tally::default(), 0, 0, 0);
    let own = || recording.requests.iter().map(|one| &one.record);
    let inherited = inherited(setting.store, &recording.id, &own().collect::<Vec<_>>());
    let inherited = inherited.map_err(|error| format!("{}: {error}", setting.store.display()))?;
    // What other conversations sent before was in the provider's cache, so it is replayed, too, but not billed.
    let others = inherited.iter();
    let others =
        others.map(|one| Step { at_ms: one.at_ms.max(0) as u64, record: &one.record, is_own: false });
    let billed = recording.requests.iter();
    let billed = billed.map(|one| Step { at_ms: one.at_ms, record: &one.record, is_own: true });
    let mut steps: Vec<Step<'_>> = others.chain(billed).collect();
    steps.sort_by_key(|step| step.at_ms);
    for Step { at_ms, record, is_own } in steps {
        if let Some(is_same) = play.request(record, at_ms, is_own.then_some(&mut tally))? {
            found += 1;
            same += u64::from(is_same);
        } else {
            without_body += u64::from(is_own && record.thread.is_some() && record.own.is_none());
        }
    }
    if found == 0 {
        return Err(Unplayed::NoBodies(setting.bodies.dir().display().to_string()));
    }
    let mut asked = own().filter(|record| record.own.is_none());
    let model = asked.rfind(|record| record.model_asked.is_some()).and_then(|one| one.model_asked.clone());
    let mut played = Played { id: recording.id.clone(), as_recorded: Some(same), ..Played::default() };
    played.without_body = without_body;
    (played.model, played.tally, played.damage) = (model, tally, recording.damage.clone());
    let threads: BTreeSet<&str> = own().filter_map(|record| record.thread.as_deref()).collect();
    for (_, thread) in play.threads.iter().filter(|(name, _)| threads.contains(name.as_str())) {
        played.counts += thread.counts();
    }
    let mut bills = play.sessions.into_values().filter(|priced| priced.is_asked);
    if let Some(first) = bills.next() {
        (played.direct, played.gateway) = first.session.bills();
        played.priced_as = first.name;
    }
    for more in bills {
        let (direct, gateway) = more.session.bills();
        (played.direct, played.gateway) = (played.direct.and(direct), played.gateway.and(gateway));
    }
    Ok(played)
}

/// A request to replay.
struct Step<'r> {
    /// When it arrived, in milliseconds since 1970.
    at_ms: u64,
    record: &'r Record,
    /// Whether it belongs to the conversation itself, rather than to one that it was forked from.
    is_own: bool,
}

/// The records of the conversations that some records were forked from, from the store. It need not exist if there are
/// none.
fn inherited(store: &Path, id: &str, records: &[&Record]) -> Result<Vec<Entry>, StoreError> {
    let has_parent = records.iter().any(|record| record.parent.is_some());
    let books = if has_parent { Books::open(store)? } else { None };
    books.map_or_else(|| Ok(Vec::new()), |books| ancestors(&books, id, &mut records.iter().copied()))
}

/// A recording that is being replayed.
struct Play<'a> {
    setting: &'a Setting<'a>,
    /// By dialect and model.
    sessions: HashMap<(String, String), Priced<'a>>,
    threads: HashMap<String, Thread>,
}

struct Priced<'a> {
    session: Session<'a>,
    name: Option<String>,
    /// Whether the conversation itself asks for this model, rather than one it was forked from.
    is_asked: bool,
    learned: BytesPerToken,
}

impl Play<'_> {
    /// Replays a request, and returns whether the same bytes would be sent; `None` if it was not read, its body was not
    /// stored, or it belongs to another conversation, which has no tally.
    fn request(
        &mut self,
        record: &Record,
        at_ms: u64,
        tally: Option<&mut Tally>,
    ) -> Result<Option<bool>, String> {
        let Some(name) = record.thread.as_deref() else { return Ok(None) };
        let body = |form| {
            let read = self.setting.bodies.read(&record.conversation, &record.id, form);
            read.map(|body| body.map(Bytes::from)).map_err(|error| format!("{}: {error}", record.id))
        };
        let Some(came) = body(Form::Came)? else { return Ok(None) };
        let sent = body(Form::Sent)?.unwrap_or_else(|| came.clone());
        if !self.threads.contains_key(name) {
            let parent = record.parent.as_ref().and_then(|parent| self.threads.get(parent));
            let thread = parent.map(|parent| parent.branch(record.prior as usize)).unwrap_or_default();
            self.threads.insert(name.to_owned(), thread);
        }
        let Some(thread) = self.threads.get_mut(name) else { return Ok(None) };
        let priced = priced(&mut self.sessions, self.setting, record)?;
        let (counted, is_own) = (record.prompt_tokens(), tally.is_some());
        priced.is_asked |= is_own;
        let (scale, held) = priced
            .session
            .scale(&sent, counted.unwrap_or(0))
            .unwrap_or((Scale::Bytes(BYTES_PER_TOKEN), None));
        let asked = Asked {
            sent: record.prior as usize,
            now_ms: at_ms,
            output: record.tokens.map_or(0, |tokens| tokens.output),
            scale,
            assumed: priced.learned.value(),
            counted,
            answered: record.status.is_some_and(|status| (200..300).contains(&status)),
            unrecorded_tokens: None,
            held_tokens: held.unwrap_or(0),
            recall: self.setting.recall,
            is_booked: is_own,
        };
        let mut unbooked = Tally::default();
        let tally = tally.unwrap_or(&mut unbooked);
        let edited = priced.session.request(&came, &asked, thread, tally);
        if let Some(tokens) = counted.filter(|tokens| *tokens > 0) {
            thread.measured = Some((record.messages as usize, tokens));
            // A history that is not in the body does not tell the bytes per token.
            if held.is_none() {
                priced.learned.learn(sent.len() as u64, tokens);
            }
        } else {
            thread.measured = None;
        }
        Ok(is_own.then(|| edited.as_ref().unwrap_or(&came) == &sent))
    }
}

fn priced<'m, 'a>(
    sessions: &'m mut HashMap<(String, String), Priced<'a>>,
    setting: &Setting<'a>,
    record: &Record,
) -> Result<&'m mut Priced<'a>, String> {
    let asked = record.model_asked.as_deref().or(record.model.as_deref()).unwrap_or_default();
    let model = setting.prices.unwrap_or(asked);
    let protocol = dialect(&record.protocol)?;
    Ok(sessions.entry((record.protocol.to_string(), model.to_owned())).or_insert_with(|| {
        let found = price::find(setting.catalogue, model);
        let session = Session::new(protocol, setting.policy, model, found.as_ref());
        let learned = BytesPerToken::default();
        Priced { session, name: found.map(|found| found.name), is_asked: false, learned }
    }))
}
