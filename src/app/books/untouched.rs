//! Counterfactual costs: what requests would have cost without the gateway.
//!
//! For each provider two cache models are kept: one is fed what clients sent, the other what the gateway sent. The
//! difference between the two is applied to the provider's own figures; see [`usage::untouched`]. An observing
//! gateway feeds a third one what it would have sent, and compares that in the same way.

use std::sync::Arc;
use std::time::Instant;

use super::lacking::{Histories, Lacking};
use super::measure::{Measured, shares};
use super::named::{Figure, Named};
use super::sizes::{Figures, Sizes};
use super::thoughts::{Forms, Thoughts};
use super::{Ended, Reading};
use crate::conversation::PartId;
use crate::ledger::{Counterfactual, DoomLoop, Record, Shares};
use crate::protocol::{Prompt, Scale};
use crate::store::{Recent, Store, StoredLacking};
use crate::strategy::doom;
use crate::strategy::window::{Taken, history_budget};
use crate::usage::cache_model::{Block, CacheKind, CacheModel, CacheUse, Flight, PromptShape};
use crate::usage::{self, Catalogue, Tokens, Usage};

/// Cache models that are kept, one for each provider's cache. Each takes two or three megabytes at most.
const MOST: usize = 16;
/// Threads that are remembered: the most recently seen.
const THREADS: u64 = 4096;

/// The caches of the models in use.
pub(super) struct Untouched {
    observes: bool,
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

struct Caches {
    upstream: String,
    model: String,
    /// They work by marks.
    is_marked: bool,
    original: CacheModel,
    sent: CacheModel,
    /// Fed what an observing gateway would have sent.
    planned: Option<CacheModel>,
    /// The sizes of the blocks that go through these caches.
    sizes: Sizes,
    /// The threads whose whole past went through these caches.
    threads: Threads,
}

impl Untouched {
    /// `observes`: also models what would have been sent.
    pub(super) fn new(observes: bool, store: Arc<dyn Store>) -> Self {
        let (followed, histories) = (Threads::of_entries(THREADS), Histories::of(store));
        let begun_at = Instant::now();
        let (thoughts, named) = (Thoughts::default(), Named::default());
        Self { observes, begun_at, caches: Vec::new(), followed, histories, thoughts, named }
    }

    /// Takes what is to be stored with the records that were completed last.
    pub(super) fn lacking(&mut self) -> Vec<StoredLacking> {
        self.histories.fresh()
    }

    /// Follows the thread of a request that is its first: others of the thread may end before it.
    pub(super) fn left(&self, reading: &Reading) {
        let first = reading.thread.as_ref().filter(|_| reading.prior == 0);
        if let Some(thread) = first {
            self.followed.insert(thread.clone(), ());
        }
    }

    /// Adds the counterfactual to the record of a request.
    pub(super) fn complete(&mut self, ended: &mut Ended, prices: &Catalogue) {
        let Some(slot) = ended.slot.clone() else { return self.unread(ended) };
        let Some(measured) = slot.get() else {
            self.unmeasured(ended);
            return;
        };
        let resent = ended.record.edits.original_resent;
        let whole = measured.sent.as_ref().filter(|_| !resent).unwrap_or(&measured.original);
        let forms = self.thoughts.read(ended, measured, whole);
        let sent = &*forms.sent;
        let known = ended.usage.as_ref().filter(|usage| !usage.prompt_is_unknown);
        let billed = known.map_or(0, Usage::asked_tokens);
        describe(&mut ended.record, measured);
        let shares = shares(sent, sent.scale(billed), billed);
        ended.record.prompt = Some(shares);
        budget_of_history(&mut ended.record, shares);
        let figure = Figure { billed, read: read_by_name(sent, known) };
        let named = self.named.of(&ended.record, measured.scope, sent, figure, measured.hides);
        let held = named.map_or(0, |named| named.tokens);
        let billed = billed.saturating_sub(held);
        let (scale, hidden) = sent.held(billed, measured.hides);
        estimate_savings(&mut ended.record, measured, whole, scale);
        let is_followed = self.follows(ended, measured.prior);
        // A refused request is in no cache.
        if !is_answered(&ended.record) {
            return;
        }
        let continues = ended.continues.as_deref();
        let before = self.histories.before(&ended.record, continues, ended.at_ms);
        let lacking = before.unwrap_or_default();
        let flight = self.flight(ended);
        let caches = self.caches(ended, measured.reads_marks, prices);
        // The size of what is referred to is unknown, and so is how much of it is read after a change before it.
        let is_untold = measured.refers || before.is_none();
        let is_known = (caches.knows(&ended.record) || is_followed) && !is_untold;
        let marked = known.and_then(|usage| up_to_mark(usage, billed));
        let asked = Asked { forms: &forms, billed, marked, scale, hidden, lacking, named, flight };
        let uses = caches.observe(&asked, measured.scope, ended.at_ms);
        let unseen = hidden.saturating_add(held).saturating_add(lacking.sent);
        let is_cut = is_cut(measured, ended.usage.as_ref(), scale, unseen);
        // The provider may have removed some of what is missing by itself.
        let left = uses.lacking();
        let is_left = before.is_some() && (!is_cut || left == Lacking::NOTHING);
        let grown = ended.continues.as_deref().filter(|_| ended.grows).map(|name| (name, before));
        self.histories.keep(&ended.record, grown, is_left.then_some(left), ended.at_ms);
        // A request sent as it came, continuing a history sent as it came, costs what it costs.
        let goes_on = !ended.record.breaks_prefix() && before.is_some_and(|before| before.sent == 0);
        let has_figure = is_known || (measured.sent.is_none() && goes_on);
        let known = |usage: &&Usage| has_figure && !usage.prompt_is_unknown;
        let Some(real) = ended.usage.as_ref().filter(known) else { return };
        if is_known && !resent && !is_cut {
            ended.record.would_have_saved_estimate = would_have_saved(ended, real, &uses, prices);
        }
        ended.record.counterfactual = counterfactual(ended, real, &uses, is_cut, prices);
        net(&mut ended.record);
    }

    /// Completes the record of a request that was not read. If something is missing from its history, its original
    /// size is unknown.
    fn unread(&mut self, ended: &mut Ended) {
        as_it_came(&mut ended.record);
        let before = self.unmeasured(ended);
        doubt(&mut ended.record, before);
    }

    /// Carries forward what is missing before a request that was not measured, and returns it. If something is
    /// missing, or the request was edited, what is missing behind it is unknown: the request may be a compaction.
    fn unmeasured(&mut self, ended: &Ended) -> Option<Lacking> {
        let name = ended.continues.as_deref();
        let before = self.histories.before(&ended.record, name, ended.at_ms);
        let is_whole = before == Some(Lacking::NOTHING) && !ended.record.edits.were_sent();
        let grown = name.filter(|_| ended.grows && is_answered(&ended.record)).map(|name| (name, before));
        self.histories.keep(&ended.record, grown, is_whole.then_some(Lacking::NOTHING), ended.at_ms);
        before
    }

    /// Completes the record of a request whose figures were reported late.
    pub(super) fn told(&self, record: &mut Record, now_ms: i64) {
        if let Some(answer) = &record.answer {
            doubt(record, self.histories.lacking(&record.upstream, answer, now_ms));
        }
    }

    /// Whether a request's whole thread has been followed, by whatever models; from now on the thread counts as
    /// followed.
    fn follows(&self, ended: &Ended, prior: u32) -> bool {
        let follows = prior == 0 || is_of(&ended.record, &self.followed);
        if follows {
            remember(&ended.record, &self.followed);
        }
        follows
    }

    /// When a request was sent and when its answer began, in microseconds.
    fn flight(&self, ended: &Ended) -> Flight {
        let since = |at: Instant| at.saturating_duration_since(self.begun_at).as_micros() as u64;
        let sent = since(ended.sent_at);
        Flight { sent, answered: ended.answered_at.map_or(sent, since) }
    }

    fn caches(&mut self, ended: &Ended, reads_marks: bool, prices: &Catalogue) -> &mut Caches {
        let (upstream, model) = (&ended.record.upstream, ended.record.model.as_deref().unwrap_or_default());
        let known = self.caches.iter().position(|one| one.upstream == *upstream && one.model == model);
        let caches = if let Some(at) = known {
            self.caches.remove(at)
        } else {
            if self.caches.len() >= MOST {
                self.caches.remove(0);
                self.followed = Threads::of_entries(THREADS);
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
                threads: Threads::of_entries(THREADS),
            }
        };
        self.caches.push(caches);
        self.caches.last_mut().expect("one was just pushed")
    }
}

impl Caches {
    /// Whether the history that a request continues went through these caches. If not, as after a restart, what would
    /// have been read without the gateway is unknown.
    fn knows(&self, record: &Record) -> bool {
        let is_known = is_of(record, &self.threads);
        remember(record, &self.threads);
        is_known
    }

    /// Feeds the forms of a prompt to their caches, behind the part of the history that no body holds.
    fn observe(&mut self, asked: &Asked<'_>, scope: u64, at_ms: i64) -> Uses {
        let Asked { forms, billed, marked, scale, hidden, lacking, named, flight } = *asked;
        let now_ms = u64::try_from(at_ms).unwrap_or(0);
        // A figure that covers more than the body says nothing about single blocks.
        let billed = if hidden == 0 { billed } else { 0 };
        let scale = if billed > 0 { forms.sent.scale(0) } else { scale };
        let mut sent = forms.sent.shape(scale);
        let mut original = forms.original.shape(scale);
        let mut planned = forms.planned.as_ref().map(|planned| planned.shape(scale));
        if billed > 0 {
            let marked = marked.filter(|_| self.is_marked);
            let unsent = [Some(&mut original), planned.as_mut()].into_iter().flatten();
            self.sizes.size(named, &mut sent, Figures { billed, marked }, unsent);
        }
        // Instructions that were sent as two blocks are as large as both.
        if let Some(at) = forms.sent.splits(&forms.original) {
            original.blocks[at].tokens = sent.blocks[at..=at + 1].iter().map(|half| half.tokens).sum();
        }
        // If something is missing from a history, there is a history, however much of it the body seems to hold.
        let hidden = if lacking == Lacking::NOTHING { hidden } else { hidden.max(1) };
        let use_of = |cache: &mut CacheModel, shape: &PromptShape, hidden: u64| {
            let mut shape = shape.clone();
            let hides = (hidden > 0).then(|| Block::hidden(hidden));
            shape.blocks.splice(..0, named.into_iter().chain(hides));
            let used = cache.observe_in_flight(scope, &shape, now_ms, flight);
            // The model cannot tell how long a history that it has never seen is kept: assumed as for what was sent,
            // in proportion.
            CacheUse { lapsed: used.lapsed.max(hidden.saturating_sub(used.read)), ..used }
        };
        Uses {
            original: use_of(&mut self.original, &original, hidden.saturating_add(lacking.sent)),
            sent: use_of(&mut self.sent, &sent, hidden),
            planned: self.planned.as_mut().map(|cache| {
                // If it is unknown, the best guess is that it would have been sent as it was.
                let planned = planned.as_ref().unwrap_or(&sent);
                use_of(cache, planned, hidden.saturating_sub(lacking.planned))
            }),
        }
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

/// A prompt in its forms, and what is known of its size.
struct Asked<'a> {
    forms: &'a Forms<'a>,
    /// The tokens billed for what was sent; 0 if unknown.
    billed: u64,
    /// The tokens up to the last mark, if the provider caches by marks.
    marked: Option<u64>,
    /// The scale for what the bodies hold.
    scale: Scale,
    /// The tokens of the history that no body holds.
    hidden: u64,
    /// What is missing from that history, compared with the original's.
    lacking: Lacking,
    /// What the provider reads before everything in the body because the request names it.
    named: Option<Block>,
    flight: Flight,
}

/// The tokens read from a cache that a prompt names, which are at least all that is held in it; 0: unknown.
fn read_by_name(prompt: &Prompt, usage: Option<&Usage>) -> u64 {
    usage.filter(|_| prompt.named_is_cached).map_or(0, |usage| usage.tokens.cache_read)
}

/// The tokens that were read and written by marks, of a prompt billed for `billed` tokens. Where nothing was written,
/// what was read may be all that the request before left, as at servers that honour no marks, or do not tell of writes.
fn up_to_mark(usage: &Usage, billed: u64) -> Option<u64> {
    let Tokens { input, .. } = usage.tokens;
    let is_told =
        usage.tokens.cache_write() > 0 && usage.tokens.prompt() == billed && usage.beside_prompt == 0;
    is_told.then(|| billed.saturating_sub(input))
}

/// How the caches would serve each form of the prompt.
struct Uses {
    original: CacheUse,
    sent: CacheUse,
    planned: Option<CacheUse>,
}

impl Uses {
    /// What is missing from a history that ends with these prompts.
    fn lacking(&self) -> Lacking {
        let tokens = |said: CacheUse| said.with_output(0, 0).prompt();
        let [original, sent, planned] =
            [self.original, self.sent, self.planned.unwrap_or(self.sent)].map(tokens);
        Lacking { sent: original.saturating_sub(sent), planned: sent.saturating_sub(planned) }
    }
}

/// Withdraws the counterfactual of a request that was booked as it came, if something is missing from its history, or
/// may be.
fn doubt(record: &mut Record, lacking: Option<Lacking>) {
    if lacking.is_none_or(|lacking| lacking.sent > 0) {
        (record.counterfactual, record.net_saved) = (None, None);
    }
}

/// Books a request for what it cost: it was sent as it came.
pub(super) fn as_it_came(record: &mut Record) {
    let cost = record.cost.as_ref().map(|cost| cost.total);
    let tokens = record.tokens.filter(|_| !record.prompt_is_unknown);
    record.counterfactual = tokens.map(|tokens| Counterfactual { tokens, cost, estimated: false });
    net(record);
}

/// The usage as it would have been with these tokens.
fn untouched(real: &Usage, tokens: Tokens) -> Usage {
    let share = tokens.prompt() as f64 / real.tokens.prompt().max(1) as f64;
    let last_prompt = real.last_prompt.map(|last| (last as f64 * share).round() as u64);
    Usage { tokens, last_prompt, ..real.clone() }
}

/// Whether the provider has itself removed parts of the prompt, as it was asked to, or would have done so with the
/// original: then what would have been left of that is unknown.
fn is_cut(measured: &Measured, real: Option<&Usage>, scale: Scale, hidden: u64) -> bool {
    let came = measured.original.tokens(scale).saturating_add(hidden);
    let asked = real.map_or(0, Usage::asked_tokens);
    let is_told = real.is_some_and(|real| real.prompt_is_cut);
    is_told || measured.edits_from.is_some_and(|from| came.max(asked) > from)
}

/// Whether the original is longer than the model's window: what the client would have done then is unknown. If even
/// what was sent is longer, the catalogue is wrong about the window; a prompt that was refused even in a shorter form
/// is certainly too long.
fn is_refused(ended: &Ended, real: &Usage, untouched: &Usage, prices: &Catalogue) -> bool {
    let model = ended.record.model.as_deref().unwrap_or_default();
    let listed = || prices.find(model, ended.vendor).and_then(|priced| priced.price.context_window);
    let window = ended.window.or_else(listed);
    let is_longer = |window| (real.context_tokens()..untouched.context_tokens()).contains(&window);
    ended.record.attempt > 0 || window.is_some_and(is_longer)
}

/// The counterfactual cost: the real cost plus the difference at list prices, in proportion if the provider states a
/// cost of its own.
fn cost(ended: &Ended, real: &Usage, untouched: &Usage, prices: &Catalogue) -> Option<i64> {
    let known = ended.record.cost.as_ref()?.total;
    // What the provider did not charge for, it would not have charged for either.
    if untouched.tokens == real.tokens || (real.provider_cost.is_some() && known == 0) {
        return Some(known);
    }
    let model = ended.record.model.as_deref().unwrap_or_default();
    let listed = |usage: &Usage| -> Option<i128> {
        let total = match usage.provider_cost {
            None => usage::bill(prices, usage, model, ended.vendor)?.total,
            // For a proportion it matters little whose price list it is.
            Some(_) => usage::cost(usage, &prices.in_proportion(model, ended.vendor)?.price)?.total(),
        };
        Some(total.picodollars())
    };
    let (before, after) = (listed(real)?, listed(untouched)?);
    let more = match real.provider_cost {
        None => after - before,
        Some(_) => (after - before).checked_mul(i128::from(known))?.checked_div(before)?,
    };
    i64::try_from(more).ok().map(|more| known.saturating_add(more))
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

/// Adds the figures of a request that do not depend on the provider's cache.
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

/// How much less a request would have cost in the form that an observing gateway would have sent; `None` if the
/// gateway does not observe, or if either cost is unknown.
fn would_have_saved(ended: &Ended, real: &Usage, uses: &Uses, prices: &Catalogue) -> Option<i64> {
    let would = usage::untouched(real.tokens, real.beside_prompt, uses.sent, uses.planned?, false);
    let cost = cost(ended, real, &untouched(real, would), prices)?;
    Some(ended.record.cost.as_ref()?.total.saturating_sub(cost))
}

/// What a request would have cost without the gateway; `None` if that is unknown. `is_cut`: the provider removed parts
/// of the prompt itself, or would have removed some of the original.
fn counterfactual(
    ended: &Ended,
    real: &Usage,
    uses: &Uses,
    is_cut: bool,
    prices: &Catalogue,
) -> Option<Counterfactual> {
    if ended.asked_again {
        // The first answer would have been the only one.
        return Some(Counterfactual { tokens: Tokens::default(), cost: Some(0), estimated: false });
    }
    let is_event = ended.record.breaks_prefix();
    let tokens = usage::untouched(real.tokens, real.beside_prompt, uses.sent, uses.original, is_event);
    let estimated = tokens != real.tokens;
    // A summary that was requested alone is billed beside the prompt, of which nothing is left to measure by.
    let is_taken_up = real.tokens.prompt() == 0 && uses.lacking().sent > 0;
    let untouched = untouched(real, tokens);
    if is_taken_up || (estimated && (is_cut || is_refused(ended, real, &untouched, prices))) {
        return None;
    }
    let cost = cost(ended, real, &untouched, prices);
    Some(Counterfactual { tokens: untouched.billed_tokens(), cost, estimated })
}

fn net(record: &mut Record) {
    let untouched = record.counterfactual.as_ref().and_then(|one| one.cost);
    let cost = record.cost.as_ref().map(|cost| cost.total);
    record.net_saved = untouched.zip(cost).map(|(untouched, cost)| untouched.saturating_sub(cost));
}

/// The tokens of the window left for the history, after instructions, tools, a summary and the answer.
fn budget_of_history(record: &mut Record, shares: Shares) {
    let summary = record.memory();
    if let Some(window) = &mut record.window
        && let (Some(tokens), Some(reserved)) = (window.tokens, window.reserved)
    {
        let taken = Taken { system: shares.system, summary, tools: shares.tools, answer: reserved };
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

    /// Where the books had no room to look at it.
    #[test]
    fn what_was_edited_unseen_leaves_what_nobody_knows() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        let store = Arc::new(Sqlite::open(&at("db"), Outputs::new(at("outputs")), at("logs"), 8).unwrap());
        let mut untouched = Untouched::new(false, store);
        let mut book = |answer: &str, continues: Option<&str>, grows: bool, state: State| {
            let edits = Edits { state: state.into(), ..Edits::default() };
            let record =
                Record { answer: Some(answer.to_owned()), status: Some(200), edits, ..Record::default() };
            let mut ended = Ended { continues: continues.map(Into::into), grows, ..ended(record) };
            let unseen = lacking::unseen(&ended).len();
            untouched.complete(&mut ended, &Catalogue::embedded());
            let stored = untouched.lacking().len();
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
            assert_eq!(untouched.follows(&ended, 1), expected, "{what}");
        }
    }

    #[test]
    fn the_prompt_up_to_its_last_mark_is_told_where_something_was_written() {
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
    fn a_thread_that_goes_on_is_known_however_many_others_there_are() {
        let threads = Threads::of_entries(THREADS);
        let record = |id: String| Record { thread: Some(id), ..Record::default() };
        let (ours, first) = (record("ours".to_owned()), record("0".to_owned()));
        remember(&ours, &threads);
        for other in 0..2 * THREADS {
            remember(&record(other.to_string()), &threads);
            assert!(is_of(&ours, &threads), "{other}");
        }
        assert!(!is_of(&first, &threads));
    }
}
