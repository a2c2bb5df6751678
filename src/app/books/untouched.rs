//! Completes the records of requests, above all with what they would have cost without the gateway.
//!
//! For each model of a provider two models of its cache are kept: one is fed what clients sent, the other what the
//! gateway sent. The difference between the two is applied to the provider's own figures; see
//! [`super::counterfactual`]. An observing gateway feeds a third one what it would have sent, and compares that in the
//! same way.

use std::sync::Arc;
use std::time::Instant;

use super::counterfactual::{
    Uses, complete_as_it_came, counterfactual, set_net_saved, withdraw_if_lacking, would_have_saved,
};
use super::lacking::{Histories, Lacking};
use super::measure::{Measured, shares};
use super::named::{Figure, Named};
use super::reliability::Reliability;
use super::resumed::{Before, Resumed};
use super::sizes::{Figures, Sizes};
use super::thoughts::{Forms, Thoughts};
use super::{Ended, Reading};
use crate::conversation::PartId;
use crate::ledger::{DoomLoop, Record};
use crate::protocol::{Prompt, Scale};
use crate::store::{Recent, Store, StoredLacking};
use crate::strategy::doom;
use crate::strategy::window::history_budget;
use crate::usage::cache_model::{Block, CacheKind, CacheModel, CacheUse, Flight, PromptShape};
use crate::usage::{self, Alike, Catalogue, Tokens, Usage};

/// How many models' caches are kept: the most recently used. Each takes two or three megabytes at most.
const MAX_CACHES: usize = 16;
/// How many threads are remembered: the most recently seen.
const MAX_THREADS: u64 = 4096;

/// The modelled caches of all models in use, and what else a counterfactual depends on.
pub(super) struct Untouched {
    observes: bool,
    store: Arc<dyn Store>,
    /// The zero of the clock by which requests are sent and answered.
    begun_at: Instant,
    /// The most recently used is the last.
    caches: Vec<Caches>,
    /// Threads that were followed from their first request on: all that any cache holds of them is in these models.
    followed: Threads,
    /// What is missing from histories that providers hold.
    histories: Histories,
    /// Reasoning, as far as providers read it.
    thoughts: Thoughts,
    /// What providers hold under names.
    named: Named,
}

/// Threads by id.
type Threads = Recent<String, ()>;

/// The caches of one model at one upstream.
struct Caches {
    upstream: String,
    model: String,
    /// Whether they work by marks.
    is_marked: bool,
    original: CacheModel,
    sent: CacheModel,
    /// Fed what an observing gateway would have sent.
    planned: Option<CacheModel>,
    /// The sizes of the blocks that go through these caches.
    sizes: Sizes,
    /// How much is read of what these caches hold: of prompts without a prefix that is cached under a name, and after
    /// such a prefix.
    reliability: [Reliability; 2],
    /// The threads whose whole past went through these caches.
    threads: Threads,
}

impl Untouched {
    /// `observes`: also models what would have been sent.
    pub(super) fn new(observes: bool, store: Arc<dyn Store>) -> Self {
        let (followed, histories) = (Threads::of_entries(MAX_THREADS), Histories::of(Arc::clone(&store)));
        let begun_at = Instant::now();
        let (thoughts, named) = (Thoughts::default(), Named::default());
        Self { observes, store, begun_at, caches: Vec::new(), followed, histories, thoughts, named }
    }

    /// Takes what is to be stored with the records that were completed last.
    pub(super) fn take_lacking(&mut self) -> Vec<StoredLacking> {
        self.histories.take_unstored()
    }

    /// Notes the thread of a request that leaves as followed if the request is its first one. A later request of the
    /// thread may end before this one.
    pub(super) fn left(&self, reading: &Reading) {
        let first = reading.thread.as_ref().filter(|_| reading.prior == 0);
        if let Some(thread) = first {
            self.followed.insert(thread.clone(), ());
        }
    }

    /// Adds the counterfactual to the record of a request, and what else follows from its measurements.
    pub(super) fn complete(&mut self, ended: &mut Ended, prices: &Catalogue) {
        let Some(slot) = ended.slot.clone() else { return self.complete_unread(ended) };
        let Some(measured) = slot.get() else {
            self.carry_lacking(ended);
            return;
        };
        let is_resent = ended.record.edits.original_resent;
        // What was sent, including reasoning that the provider left out.
        let whole = measured.sent.as_ref().filter(|_| !is_resent).unwrap_or(&measured.original);
        let forms = self.thoughts.read(ended, measured, whole);
        let size = self.size_of(ended, measured, &forms.sent);
        describe(&mut ended.record, measured);
        describe_prompt(&mut ended.record, &forms.sent, size.total);
        estimate_savings(&mut ended.record, measured, whole, size.scale);
        let is_followed = self.follow(ended, measured.prior);
        // A refused request is in no cache.
        if !is_answered(&ended.record) {
            return;
        }

        let before = self.histories.before(&ended.record, ended.continues.as_deref(), ended.at_ms);
        let lacking = before.unwrap_or_default();
        let flight = self.flight(ended);
        // A request sent as it came, continuing a history sent as it came, costs what it costs.
        let is_as_it_came = measured.sent.is_none()
            && !ended.record.breaks_prefix()
            && before.is_some_and(|before| before.sent == 0);
        let store = Arc::clone(&self.store);
        let caches = self.caches(ended, measured.reads_marks, prices);
        let has_whole_past = caches.follow(&ended.record) || is_followed;
        let is_whole = size.hidden == 0 && ended.continues.is_none();
        let resumed = (!has_whole_past && !is_as_it_came && is_whole)
            .then(|| Resumed::find(&*store, &ended.record, measured.prior))
            .flatten();
        let real = with_known_prompt(ended.usage.as_ref());
        let is_event = ended.record.breaks_prefix();
        let asked = Asked { forms: &forms, size, lacking, resumed, flight, real, is_event };
        let uses = caches.observe(&asked, measured.scope, ended.at_ms);
        let unseen = size.hidden.saturating_add(size.named_tokens()).saturating_add(lacking.sent);
        let is_cut = is_cut(measured, ended.usage.as_ref(), size.scale, unseen);
        // If the provider removes parts itself, it may have removed some of what is missing.
        let after = Some(uses.lacking()).filter(|after| !is_cut || *after == Lacking::NOTHING);
        self.keep_lacking(ended, before, before.and(after));

        // The size of what is referred to is unknown, and so is how much of it is read after a change before it.
        let has_past = has_whole_past || resumed.is_some();
        let is_known = has_past && !measured.refers && before.is_some();
        if !is_known && !is_as_it_came {
            return;
        }
        let Some(real) = real else { return };
        if is_known && has_whole_past && !is_resent && !is_cut {
            ended.record.would_have_saved_estimate = would_have_saved(ended, real, &uses, prices);
        }
        ended.record.counterfactual = counterfactual(ended, real, &uses, is_cut, prices);
        set_net_saved(&mut ended.record);
    }

    /// Completes the record of a request that was not read. If something is missing from its history, its original
    /// size is unknown.
    fn complete_unread(&mut self, ended: &mut Ended) {
        complete_as_it_came(&mut ended.record);
        let before = self.carry_lacking(ended);
        withdraw_if_lacking(&mut ended.record, before);
    }

    /// Carries forward what is missing before a request that was not measured, and returns it. If something is missing,
    /// or the request was edited, what is missing after it is unknown: the request may be a compaction.
    fn carry_lacking(&mut self, ended: &Ended) -> Option<Lacking> {
        let before = self.histories.before(&ended.record, ended.continues.as_deref(), ended.at_ms);
        let is_whole = before == Some(Lacking::NOTHING) && !ended.record.edits.were_sent();
        self.keep_lacking(ended, before, is_whole.then_some(Lacking::NOTHING));
        before
    }

    /// Records what is missing from the history after a request, and what was missing before it; `None`: unknown.
    fn keep_lacking(&mut self, ended: &Ended, before: Option<Lacking>, after: Option<Lacking>) {
        let grows = ended.grows && is_answered(&ended.record);
        let grown = ended.continues.as_deref().filter(|_| grows).map(|name| (name, before));
        self.histories.keep(&ended.record, grown, after, ended.at_ms);
    }

    /// Completes the record of a request whose figures were reported late.
    pub(super) fn complete_late(&self, record: &mut Record, now_ms: i64) {
        if let Some(answer) = &record.answer {
            withdraw_if_lacking(record, self.histories.lacking(&record.upstream, answer, now_ms));
        }
    }

    /// Sizes the prompt that was sent, without the reasoning that the provider left out.
    fn size_of(&self, ended: &Ended, measured: &Measured, sent: &Prompt) -> PromptSize {
        let usage = with_known_prompt(ended.usage.as_ref());
        let total = usage.map_or(0, Usage::asked_tokens);
        let figure = Figure { billed: total, read: read_by_name(sent, usage) };
        let named = self.named.of(&ended.record, measured.scope, sent, figure, measured.hides);
        let billed = total.saturating_sub(named.map_or(0, |named| named.tokens));
        let marked = usage.and_then(|usage| up_to_mark(usage, billed));
        let (scale, hidden) = sent.held(billed, measured.hides);
        PromptSize { total, named, billed, marked, scale, hidden }
    }

    /// Notes the thread of a request as followed if its whole past was, by whatever models. Returns whether it was.
    fn follow(&self, ended: &Ended, prior: u32) -> bool {
        let is_followed = prior == 0 || is_of(&ended.record, &self.followed);
        if is_followed {
            remember(&ended.record, &self.followed);
        }
        is_followed
    }

    /// When a request was sent and when its answer began, in microseconds.
    fn flight(&self, ended: &Ended) -> Flight {
        let since = |at: Instant| at.saturating_duration_since(self.begun_at).as_micros() as u64;
        let sent = since(ended.sent_at);
        Flight { sent, answered: ended.answered_at.map_or(sent, since) }
    }

    /// The caches of the model that a request was sent to.
    fn caches(&mut self, ended: &Ended, reads_marks: bool, prices: &Catalogue) -> &mut Caches {
        let (upstream, model) = (&ended.record.upstream, ended.record.model.as_deref().unwrap_or_default());
        let known = self.caches.iter().position(|one| one.upstream == *upstream && one.model == model);
        let caches = if let Some(at) = known {
            self.caches.remove(at)
        } else {
            if self.caches.len() >= MAX_CACHES {
                self.caches.remove(0);
                // For some threads, these caches are no longer modelled.
                self.followed = Threads::of_entries(MAX_THREADS);
            }
            let priced = prices.find(model, ended.vendor);
            let price = priced.as_ref().map(|priced| &*priced.price);
            let kind = CacheKind::of(&ended.record.protocol, reads_marks, model, price);
            Caches {
                upstream: upstream.clone(),
                model: model.to_owned(),
                is_marked: matches!(kind, CacheKind::Marked { .. }),
                original: CacheModel::new(kind),
                sent: CacheModel::new(kind),
                planned: self.observes.then(|| CacheModel::new(kind)),
                sizes: Sizes::new(),
                reliability: [Reliability::default(); 2],
                threads: Threads::of_entries(MAX_THREADS),
            }
        };
        self.caches.push(caches);
        self.caches.last_mut().expect("one was just pushed")
    }
}

impl Caches {
    /// Remembers the thread of a request. Returns whether the history that the request continues went through these
    /// caches before. If it did not, as after a restart, only the store can tell what would have been read without the
    /// gateway.
    fn follow(&self, record: &Record) -> bool {
        let is_known = is_of(record, &self.threads);
        remember(record, &self.threads);
        is_known
    }

    /// Feeds the forms of a prompt to their caches, after the part of the history that no body holds.
    fn observe(&mut self, asked: &Asked<'_>, scope: u64, at_ms: i64) -> Uses {
        let Asked { forms, size, lacking, flight, .. } = *asked;
        let now_ms = u64::try_from(at_ms).unwrap_or(0);
        let Shapes { original, sent, planned } = self.shapes(forms, size);
        if let Some(resumed) = asked.resumed {
            self.resume(scope, resumed.before(forms, [&original, &sent]), size.named);
        }
        let alike = asked.alike();
        // If something is missing from a history, there is a history, however much of it the body seems to hold.
        let hidden = if lacking == Lacking::NOTHING { size.hidden } else { size.hidden.max(1) };
        let use_of = |cache: &mut CacheModel, shape: &PromptShape, hidden: u64| {
            let hides = (hidden > 0).then(|| Block::hidden(hidden));
            let blocks = size.named.into_iter().chain(hides).chain(shape.blocks.iter().copied()).collect();
            let shape = PromptShape { blocks, automatic: shape.automatic, late: shape.late.clone() };
            let used = cache.observe_in_flight(scope, &shape, now_ms, flight);
            // The model cannot tell how long a history that it has never seen is kept. The same share of it is assumed
            // to have been kept as of the one that was sent.
            CacheUse { lapsed: used.lapsed.max(hidden.saturating_sub(used.read)), ..used }.behind(alike.named)
        };
        let original = use_of(&mut self.original, &original, hidden.saturating_add(lacking.sent));
        let sent_use = use_of(&mut self.sent, &sent, hidden);
        let planned = self.planned.as_mut().map(|cache| {
            // If it is unknown, the best guess is that it would have been sent as it was.
            let planned = planned.as_ref().unwrap_or(&sent);
            use_of(cache, planned, hidden.saturating_sub(lacking.planned))
        });
        let usually_read = self.reliability(asked, alike, sent_use);
        Uses { original, sent: sent_use, planned, alike, usually_read }
    }

    /// Feeds the caches what an earlier process sent, after the named prefix.
    fn resume(&mut self, scope: u64, before: Before, named: Option<Block>) {
        let Before { at_ms, original, sent } = before;
        for (cache, mut shape) in [(&mut self.original, original), (&mut self.sent, sent)] {
            shape.blocks.splice(..0, named);
            cache.observe(scope, &shape, at_ms);
        }
    }

    /// The share that is usually read of what these caches hold of such a prompt. It is learned from prompts that
    /// continue what was sent before.
    fn reliability(&mut self, asked: &Asked<'_>, alike: Alike, sent: CacheUse) -> f64 {
        let known = &mut self.reliability[usize::from(asked.forms.sent.named_is_cached)];
        let real = asked.real.filter(|_| !asked.is_event);
        if let Some(share) = real.and_then(|real| usage::share_read(real.tokens, alike, sent)) {
            known.learn(share);
        }
        known.share()
    }

    /// The forms of a prompt as their caches see them. If the figure for what was sent covers nothing but its blocks,
    /// each block has the size that it shows.
    fn shapes(&mut self, forms: &Forms<'_>, size: PromptSize) -> Shapes {
        let is_of_blocks = size.billed > 0 && size.hidden == 0;
        let scale = if is_of_blocks { forms.sent.scale(0) } else { size.scale };
        let mut sent = forms.sent.shape(scale);
        let mut original = forms.original.shape(scale);
        let mut planned = forms.planned.as_ref().map(|planned| planned.shape(scale));
        if is_of_blocks {
            let figures = Figures { billed: size.billed, marked: size.marked.filter(|_| self.is_marked) };
            let unsent = [Some(&mut original), planned.as_mut()].into_iter().flatten();
            self.sizes.size(size.named, &mut sent, figures, unsent);
        }
        // Instructions that were sent as two blocks are as large as both.
        if let Some(at) = forms.sent.splits(&forms.original) {
            original.blocks[at].tokens = sent.blocks[at..=at + 1].iter().map(|half| half.tokens).sum();
        }
        Shapes { original, sent, planned }
    }
}

/// Whether a request belongs to one of these threads, or branches from one.
fn is_of(record: &Record, threads: &Threads) -> bool {
    [&record.thread, &record.parent].into_iter().flatten().any(|id| threads.get(id).is_some())
}

/// Remembers a request's thread. If there are too many, the least recently seen is dropped.
fn remember(record: &Record, threads: &Threads) {
    if let Some(thread) = &record.thread {
        threads.insert(thread.clone(), ());
    }
}

/// A prompt in its forms, and what is known of the history that it continues.
struct Asked<'a> {
    forms: &'a Forms<'a>,
    size: PromptSize,
    /// What is missing from the history that no body holds.
    lacking: Lacking,
    /// The last request of its thread, if an earlier process made it.
    resumed: Option<Resumed>,
    flight: Flight,
    /// What was billed for it, if that shows the length of the prompt.
    real: Option<&'a Usage>,
    /// Whether an event has changed it.
    is_event: bool,
}

impl Asked<'_> {
    /// What is billed alike for all forms.
    fn alike(&self) -> Alike {
        let named = if self.forms.sent.named_is_cached { self.size.named_tokens() } else { 0 };
        Alike { beside: self.real.map_or(0, |real| real.beside_prompt), named }
    }
}

/// What is known of the size of a prompt that was sent.
#[derive(Clone, Copy)]
struct PromptSize {
    /// The tokens billed for it, those of the named prefix included; 0 if unknown.
    total: u64,
    /// The named prefix: what the provider holds under a name in the request and reads before the body.
    named: Option<Block>,
    /// The tokens billed for it, those of the named prefix excluded; 0 if unknown.
    billed: u64,
    /// The tokens up to the last mark, if the figures tell them.
    marked: Option<u64>,
    /// The scale for what the body holds.
    scale: Scale,
    /// The tokens of the history that no body holds.
    hidden: u64,
}

impl PromptSize {
    fn named_tokens(&self) -> u64 {
        self.named.map_or(0, |named| named.tokens)
    }
}

/// The forms of a prompt as their caches see them.
struct Shapes {
    original: PromptShape,
    sent: PromptShape,
    planned: Option<PromptShape>,
}

/// The usage of a request, if it shows the length of the prompt.
fn with_known_prompt(usage: Option<&Usage>) -> Option<&Usage> {
    usage.filter(|usage| !usage.prompt_is_unknown)
}

/// The tokens that were read from caches, if the prompt names a cache: at least all tokens of that one. 0: unknown.
fn read_by_name(prompt: &Prompt, usage: Option<&Usage>) -> u64 {
    usage.filter(|_| prompt.named_is_cached).map_or(0, |usage| usage.tokens.cache_read)
}

/// The tokens up to the last mark of a prompt that was billed for `billed` tokens: those that were read from the cache
/// or written to it. `None` if the usage covers other tokens than these, or if nothing was written. In that case, what
/// was read may end before the mark, as at servers that ignore marks or do not report writes.
fn up_to_mark(usage: &Usage, billed: u64) -> Option<u64> {
    let Tokens { input, .. } = usage.tokens;
    let is_told =
        usage.tokens.cache_write() > 0 && usage.tokens.prompt() == billed && usage.beside_prompt == 0;
    is_told.then(|| billed.saturating_sub(input))
}

/// Whether the provider itself removed parts of the prompt, as it was asked to, or would have removed some of the
/// original. What would have been left of the original is then unknown. `unseen`: the tokens of the original that are
/// not in the body.
fn is_cut(measured: &Measured, real: Option<&Usage>, scale: Scale, unseen: u64) -> bool {
    let came = measured.original.tokens(scale).saturating_add(unseen);
    let asked = real.map_or(0, Usage::asked_tokens);
    let is_told = real.is_some_and(|real| real.prompt_is_cut);
    is_told || measured.edits_from.is_some_and(|from| came.max(asked) > from)
}

/// Adds the tools of the results that were edited.
fn name_tools(record: &mut Record, tools: &[(PartId, Box<str>)]) {
    for made in &mut record.edits.made {
        let id = PartId { message: made.message, part: made.part };
        made.tool = tools.iter().find(|(part, _)| *part == id).map(|(_, tool)| tool.to_string());
    }
}

fn doom_loop(found: &doom::DoomLoop) -> DoomLoop {
    DoomLoop { tool: found.tool.to_string(), calls: found.calls, same_results: found.same_results }
}

/// Adds what was measured and depends neither on the provider's figures nor on its cache.
fn describe(record: &mut Record, measured: &Measured) {
    let resent = record.edits.original_resent;
    (record.turn, record.step, record.prior) = (measured.turn, measured.step, measured.prior);
    name_tools(record, &measured.tools);
    record.calls = Some(measured.calls_sent.filter(|_| !resent).unwrap_or(measured.calls));
    record.files.clone_from(&measured.files);
    record.doom_loop = measured.doom_loop.as_ref().map(doom_loop);
}

/// Estimates the tokens that were saved, or would have been, if any bytes were; `sent` is the prompt that was sent.
fn estimate_savings(record: &mut Record, measured: &Measured, sent: &Prompt, scale: Scale) {
    let tokens = sent.tokens(scale);
    let bytes = &mut record.bytes;
    if bytes.saved > 0 {
        bytes.saved_tokens_estimate = measured.original.tokens(scale).saturating_sub(tokens);
    }
    if let Some(planned) = measured.planned.as_ref().filter(|_| bytes.would_have_saved > 0) {
        bytes.would_have_saved_tokens_estimate = tokens.saturating_sub(planned.tokens(scale));
    }
}

/// Whether the provider answered the request with a status of success.
fn is_answered(record: &Record) -> bool {
    record.status.is_some_and(|status| (200..300).contains(&status))
}

/// Adds what the prompt was made of when it was sent, and how many tokens of the window that leaves for the history.
/// `billed`: the tokens that were billed for it.
fn describe_prompt(record: &mut Record, sent: &Prompt, billed: u64) {
    let shares = shares(sent, sent.scale(billed), billed);
    record.prompt = Some(shares);
    let summary = record.memory();
    if let Some(window) = &mut record.window
        && let (Some(tokens), Some(reserved)) = (window.tokens, window.reserved)
    {
        let taken = [shares.system, summary, shares.tools, reserved];
        window.history_budget_estimate = Some(history_budget(tokens, taken));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::{Slot, lacking};
    use super::*;
    use crate::conversation::{Chain, NoMemo};
    use crate::ledger::Edits;
    use crate::ledger::words::State;
    use crate::protocol;
    use crate::store::{Outputs, Sqlite};

    /// A request that was not measured, with this record.
    fn ended(record: Record) -> Ended {
        Ended {
            record: Box::new(record),
            at_ms: 0,
            sent_at: Instant::now(),
            answered_at: None,
            usage: None,
            vendor: None,
            window: None,
            slot: Some(Slot::default()),
            continues: None,
            grows: false,
            unbound: 0,
            asked_again: false,
        }
    }

    /// The books had no room to look at these requests.
    #[test]
    fn histories_edited_without_being_measured_are_unknown() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        let store = Arc::new(Sqlite::open(&at("db"), Outputs::new(at("outputs")), at("logs"), 8).unwrap());
        let mut untouched = Untouched::new(false, store);
        let mut book = |answer: &str, continues: Option<&str>, grows: bool, state: State| {
            let edits = Edits { state: state.into(), ..Edits::default() };
            let record =
                Record { answer: Some(answer.to_owned()), status: Some(200), edits, ..Record::default() };
            let mut ended = Ended { continues: continues.map(Into::into), grows, ..ended(record) };
            let unseen = lacking::of_unmeasured(&ended).len();
            untouched.complete(&mut ended, &Catalogue::embedded());
            let stored = untouched.take_lacking().len();
            let known = |name: &str| untouched.histories.lacking("", name, 0).is_some();
            (known(answer), known(continues.unwrap_or_default()), stored, unseen)
        };
        for (answer, continues, grows, state, expected) in [
            ("a", None, false, State::Unchanged, (true, true, 0, 0)),
            ("b", Some("a"), false, State::Unchanged, (true, true, 0, 1)),
            ("c", Some("b"), false, State::Edited, (false, true, 1, 1)),
            ("d", Some("c"), false, State::Unchanged, (false, false, 1, 1)),
            ("e", Some("b"), false, State::Unchanged, (true, true, 0, 1)),
            ("f", Some("conv"), true, State::Unchanged, (true, true, 0, 1)),
            ("g", Some("conv"), true, State::Edited, (false, false, 2, 2)),
        ] {
            assert_eq!(book(answer, continues, grows, state), expected, "{answer}");
        }
    }

    /// Of requests sent at the same moment, any may end first.
    #[test]
    fn a_thread_is_followed_once_its_first_request_has_left() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        let store = Arc::new(Sqlite::open(&at("db"), Outputs::new(at("outputs")), at("logs"), 8).unwrap());
        let protocol = protocol::named("anthropic").unwrap();
        let body = Bytes::from(r#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#);
        for (what, thread, prior, expected) in [
            ("its first", Some("ours"), 0, true),
            ("a later one", Some("ours"), 1, false),
            ("another thread's", Some("other"), 0, false),
            ("of no thread", None, 0, false),
        ] {
            let untouched = Untouched::new(false, Arc::<Sqlite>::clone(&store));
            untouched.left(&Reading {
                protocol,
                conversation: protocol.index(&body, &NoMemo).unwrap(),
                frame: None,
                edited: None,
                applied: Arc::default(),
                fresh: 0,
                splice: None,
                root: Chain::root("anthropic", b""),
                prior,
                thread: thread.map(str::to_owned),
                planned: None,
            });
            let ended = ended(Record { thread: Some("ours".to_owned()), ..Record::default() });
            assert_eq!(untouched.follow(&ended, 1), expected, "{what}");
        }
    }

    #[test]
    fn the_prompt_size_up_to_the_last_mark_is_known_after_a_cache_write() {
        let usage = |input, cache_read, cache_write_5m, beside_prompt| Usage {
            tokens: Tokens { input, cache_read, cache_write_5m, ..Tokens::default() },
            beside_prompt,
            ..Usage::default()
        };
        for (what, usage, billed, expected) in [
            ("written", usage(100, 0, 900, 0), 1000, Some(900)),
            ("read and written", usage(100, 600, 300, 0), 1000, Some(900)),
            ("all of it", usage(0, 600, 400, 0), 1000, Some(1000)),
            ("only read", usage(100, 900, 0, 0), 1000, None),
            ("neither", usage(1000, 0, 0, 0), 1000, None),
            ("part of it is held under a name", usage(100, 600, 300, 0), 800, None),
            ("more beside it", usage(100, 600, 300, 50), 1000, None),
        ] {
            assert_eq!(up_to_mark(&usage, billed), expected, "{what}");
        }
    }

    #[test]
    fn an_active_thread_is_not_evicted_by_others() {
        let threads = Threads::of_entries(MAX_THREADS);
        let record = |id: String| Record { thread: Some(id), ..Record::default() };
        let (ours, first) = (record("ours".to_owned()), record("0".to_owned()));
        remember(&ours, &threads);
        for other in 0..2 * MAX_THREADS {
            remember(&record(other.to_string()), &threads);
            assert!(is_of(&ours, &threads), "{other}");
        }
        assert!(!is_of(&first, &threads));
    }
}
