//! A thread as strategies see it: the parts in order, their sizes, and what tool calls did.
//!
//! A history grows with its thread. It is the same whether it was built at once or message by message, so it may be
//! kept between requests for speed and rebuilt at any time.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::clear::{self, Passed};
use super::lines::Lines;
use crate::conversation::PartId;

/// What a call does, as far as its name and arguments show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Class {
    /// Shows files as they are.
    View,
    /// Changes files.
    Edit,
    /// Lists or searches.
    Search,
    /// Shows changes to files, line by line.
    Diff,
    /// Runs something.
    Run,
    /// Anything else.
    #[default]
    Other,
}

/// A view of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct View {
    /// The path of the file as the call spells it, in lower case.
    pub path: Box<str>,
    /// The revision, if one is named; empty for the file as it is now.
    pub revision: Box<str>,
    /// The first line shown. If `last` is `u32::MAX`, `u32::MAX - n` stands for the last `n` lines.
    pub first: u32,
    /// The last line shown; `u32::MAX`: up to the end; 0: some lines, unknown which.
    pub last: u32,
}

impl View {
    /// The first and last line of a view of a whole file.
    pub const ALL: (u32, u32) = (1, u32::MAX);
    /// The first and last line of a view of unknown lines.
    pub const PART: (u32, u32) = (u32::MAX, 0);

    /// A view of these lines of a file as it is now.
    pub fn of(path: Box<str>, (first, last): (u32, u32)) -> Self {
        Self { path, first, last, ..Self::default() }
    }

    /// Whether it shows less than the whole file.
    pub fn is_range(&self) -> bool {
        self.first > 1 || self.last < u32::MAX
    }

    /// Whether it shows the current contents of this file, not a named revision.
    pub fn is_of_now(&self, path: &str) -> bool {
        self.revision.is_empty() && same_file(&self.path, path)
    }

    /// Whether it shows everything that `other` shows, as far as lines and names tell.
    pub fn covers(&self, other: &Self) -> bool {
        let covers = match (self.last, other.last) {
            (0, _) => false,
            (_, 0) => !self.is_range(),
            _ => self.first <= other.first && self.last >= other.last,
        };
        covers && self.revision == other.revision && same_file(&self.path, &other.path)
    }
}

/// What a call does, and to which files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Action {
    /// The kind of call.
    pub class: Class,
    /// The files that it shows.
    pub views: Box<[View]>,
    /// The files that it changes.
    pub edits: Box<[Box<str>]>,
    /// The files that it names.
    pub mentions: Box<[Box<str>]>,
    /// Whether a failed call has changed nothing. A script may have changed files before it failed.
    pub all_or_nothing: bool,
    /// A digest of the tool's name and arguments, equal for equal calls.
    pub call: u64,
}

/// Whether two spellings mean the same file: they are equal, or one is the end of the other.
pub fn same_file(a: &str, b: &str) -> bool {
    let (long, short) = if a.len() < b.len() { (b, a) } else { (a, b) };
    let short = short.trim_start_matches(['.', '~', '/']);
    long == short
        || (!short.is_empty()
            && long.strip_suffix(short).is_some_and(|head| head.is_empty() || head.ends_with('/')))
}

/// The last component of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A tool result.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolResult {
    /// What its call did.
    pub action: Arc<Action>,
    /// A digest of its contents.
    pub content: u128,
    /// The lines of files that it shows, as it was sent when new: all of them at first, a sample once it is in a
    /// history.
    pub lines: Lines,
    /// Whether the client says that the tool failed.
    pub is_error: bool,
    /// Its tokens as it was first sent, by a fixed estimate: a token for every four UTF-16 code units of text, or for
    /// every four bytes that its images and documents count as.
    pub tokens: u32,
    /// Whether it contains images or documents that may be removed.
    pub has_media: bool,
    /// Bytes of it that remain next to a placeholder: data other than its texts.
    pub stays: u32,
    /// Whether a placeholder may replace it: it consists of text, known images or both, its call is known, and no rule
    /// protects it.
    pub clearable: bool,
    /// The last request that named one of its files, pointed to it or first carried it.
    pub named: u32,
    /// The turn of that request.
    pub named_turn: u32,
    /// The last request that showed it: the one that first carried it, or one with a pointer to it.
    pub shown: u32,
    /// How many later requests named its files.
    pub references: u32,
    /// Whether a file that it shows was changed before it was read; for a diff, whether any file was.
    pub of_edited: bool,
    /// Whether a file that it shows was changed since.
    pub edited: bool,
    /// The last request that changed one of its files; meaningful only if `edited`.
    pub changed: u32,
    /// Whether a later result makes it redundant: one with the same text, or a view of the same lines. If the file was
    /// not changed in between, that view must also show the same text.
    pub superseded: bool,
    /// How much of it can be quoted, by the reckoning of [`clear::weight`]: a factor for its size and one for the kind
    /// of its file.
    pub weight: (f64, f64),
    /// What keeping it has cost beyond its worth, in bytes of plain input. The policy decides what counts.
    pub rent: f64,
    /// How many of the requests in the history's `passed` are included in `rent`.
    pub settled: usize,
}

/// One part of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Its id.
    pub part: PartId,
    /// The request that first carried it, counted from 0.
    pub step: u32,
    /// The turn that it belongs to, counted from 0.
    pub turn: u32,
    /// Its size in bytes as it was first sent.
    pub bytes: u32,
    /// For a call: bytes of long texts in its arguments that can be removed; otherwise 0.
    pub long: u32,
    /// For a tool result: what it is.
    pub result: Option<Box<ToolResult>>,
}

/// The fewest and the most requests that a thread is expected to make after the current one.
const EXPECTED_REST: (u32, u32) = (5, 60);
/// Edits count as recent for this many requests.
const RECENT_REQUESTS: usize = 20;

/// The parts of a thread, in order, and what later calls tell about earlier results.
#[derive(Debug, Clone, Default)]
pub struct History {
    items: Vec<Item>,
    /// The places of the results, in order, including those that are no longer sent.
    results: Vec<usize>,
    /// Past requests that are not yet included in every result's rent.
    passed: Vec<Passed>,
    /// The places of the results that show a file, by the file's name without its directory.
    views: HashMap<Box<str>, Vec<usize>>,
    /// The paths of changed files, by the file's name without its directory.
    edited: HashMap<Box<str>, Vec<Box<str>>>,
    /// The place of the newest result with each content, by the digest of the content.
    texts: HashMap<u128, usize>,
    /// The place of the newest result of each call, by the digest of the call.
    calls: HashMap<u64, usize>,
    /// The number of calls that change files in each of the last answers, the newest last.
    edits: VecDeque<u32>,
    step: u32,
    turn: u32,
    /// The request with which each turn began, from the second turn on.
    turns: Vec<u32>,
}

impl Item {
    /// Its size in bytes after an event has removed it: that of a placeholder for a result, of the abridged call for a
    /// call with long texts, and 0 for reasoning.
    pub fn bytes_gone(&self) -> u32 {
        match (&self.result, self.long) {
            (Some(result), _) => self.bytes.min(clear::PLACEHOLDER.saturating_add(result.stays)),
            (None, 0) => 0,
            (None, long) => self.bytes.saturating_sub(long),
        }
    }
}

impl History {
    /// All parts.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The places of the results among them, in order. The items at some of them may have been forgotten.
    pub fn results(&self) -> &[usize] {
        &self.results
    }

    /// A result and its size in bytes, for a policy to update.
    pub fn result_mut(&mut self, at: usize) -> Option<(u32, &mut ToolResult)> {
        settle_result(&mut self.items, &self.passed, at)
    }

    /// Records that a request has passed. Its contribution to the rent of a result is computed when the result is about
    /// to change, or by [`Self::settle`].
    pub fn pass(&mut self, passed: Passed) {
        self.passed.push(passed);
    }

    /// Adds the contributions of past requests to the rents.
    pub fn settle(&mut self) {
        for &at in &self.results {
            if let Some((_, result)) = settle_result(&mut self.items, &self.passed, at) {
                result.settled = 0;
            }
        }
        self.passed.clear();
    }

    /// What keeping a result has cost beyond its worth so far, in bytes of plain input; `None` if this is no result.
    pub fn rent(&self, at: usize) -> Option<f64> {
        let item = &self.items[at];
        Some(clear::rent(item.result.as_deref()?, item.bytes, &self.passed))
    }

    /// The number of the current request, counted from 0: the number of answers so far.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// How many more requests the thread is expected to make: as many as it has made, within bounds.
    pub fn expected_rest(&self) -> f64 {
        f64::from(self.step.clamp(EXPECTED_REST.0, EXPECTED_REST.1))
    }

    /// The number of the user's turn, counted from 0.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// The number of calls that change files in the last answers.
    pub fn recent_edits(&self) -> u32 {
        self.edits.iter().sum()
    }

    /// Marks parts as no longer sent: they have no size and are no longer results. Returns the bytes that they had.
    pub fn forget(&mut self, gone: impl Fn(PartId) -> bool) -> u64 {
        let gone = self.items.iter_mut().filter(|item| gone(item.part));
        let bytes = gone.map(|item| {
            (item.result, item.long) = (None, 0);
            u64::from(std::mem::take(&mut item.bytes))
        });
        bytes.sum()
    }

    /// Records that an answer of the model begins. Parts that are added from now on come with the next request.
    pub fn begin_step(&mut self) {
        self.step += 1;
        if self.edits.len() == RECENT_REQUESTS {
            self.edits.pop_front();
        }
        self.edits.push_back(0);
    }

    /// Records the beginning of a user's turn.
    pub fn begin_turn(&mut self) {
        if !self.items.is_empty() {
            self.turn += 1;
            self.turns.push(self.step);
        }
    }

    /// How many requests have carried a turn after it was over, including the current one.
    pub fn since_turn(&self, turn: u32) -> u32 {
        self.turns.get(turn as usize).map_or(0, |began| 1 + self.step - began)
    }

    /// The place of a part, if it is in the history.
    pub fn place(&self, part: PartId) -> Option<usize> {
        let at = self.items.partition_point(|item| item.part < part);
        self.items.get(at).is_some_and(|item| item.part == part).then_some(at)
    }

    /// Adds a part of which only the size matters.
    pub fn add_part(&mut self, part: PartId, bytes: u32) {
        self.add_call(part, bytes, 0);
    }

    /// Adds a call; `long` is the number of bytes of long texts in it that can be removed.
    pub fn add_call(&mut self, part: PartId, bytes: u32, long: u32) {
        self.items.push(Item { part, step: self.step, turn: self.turn, bytes, long, result: None });
    }

    /// Records what a call does. Returns the newest result of the same call, if it was made before.
    pub fn record_call(&mut self, action: &Action) -> Option<PartId> {
        if action.class == Class::Edit
            && let Some(edits) = self.edits.back_mut()
        {
            *edits += 1;
        }
        let earlier = self.calls.get(&action.call).map(|at| self.items[*at].part);
        let (step, turn) = (self.step, self.turn);
        for path in action.mentions.iter().chain(&action.edits) {
            self.for_each_showing(path, |result| {
                result.references += u32::from(result.named < step);
                (result.named, result.named_turn) = (step, turn);
            });
        }
        earlier
    }

    /// Records the changes made by a call whose result has come: only the result tells whether the call has failed.
    /// Views of a named revision are not affected.
    pub fn record_changes(&mut self, action: &Action, is_error: bool) {
        if is_error && action.all_or_nothing {
            return;
        }
        let step = self.step;
        for path in &action.edits {
            self.for_each_showing(path, |result| {
                if result.action.views.iter().any(|view| view.is_of_now(path)) {
                    (result.edited, result.changed) = (true, step);
                }
            });
            let known = self.edited.entry(file_name(path).into()).or_default();
            if !known.iter().any(|other| same_file(other, path)) {
                known.push(path.clone());
            }
        }
    }

    /// Adds a result that is sent as a pointer to the newest earlier one with the same `content`.
    pub fn add_pointer(&mut self, part: PartId, bytes: u32, content: u128) {
        let (step, turn) = (self.step, self.turn);
        let earlier = self.texts.get(&content).copied();
        if let Some((_, result)) = earlier.and_then(|at| self.result_mut(at)) {
            (result.named, result.named_turn, result.shown) = (step, turn, step);
        }
        self.add_part(part, bytes);
    }

    /// Adds a tool result.
    pub fn add_result(&mut self, part: PartId, bytes: u32, mut result: ToolResult) {
        let at = self.items.len();
        (result.named, result.named_turn, result.shown) = (self.step, self.turn, self.step);
        result.settled = self.passed.len();
        let earlier = self.texts.insert(result.content, at);
        if let Some((_, earlier)) = earlier.and_then(|at| self.result_mut(at)) {
            earlier.superseded = true;
        }
        self.calls.insert(result.action.call, at);
        let sample = result.lines.sample();
        let lines = std::mem::replace(&mut result.lines, sample).sorted();
        if !result.is_error {
            self.supersede_covered(&result, &lines);
            self.index_views(&result.action.views, at);
        }
        result.of_edited |= self.is_of_edited(&result);
        let result = Some(Box::new(result));
        let item = Item { part, step: self.step, turn: self.turn, bytes, long: 0, result };
        self.results.push(at);
        self.items.push(item);
    }

    /// Marks the earlier views as superseded that `result` covers, if their file was changed since or `lines`, those
    /// of the result, repeat what they show.
    fn supersede_covered(&mut self, result: &ToolResult, lines: &Lines) {
        for view in &result.action.views {
            self.for_each_showing(&view.path, |earlier| {
                let all = &earlier.action.views;
                let covers = !earlier.superseded && all.len() == 1 && view.covers(&all[0]);
                let has_images = result.has_media || !earlier.has_media;
                let shows_the_same = || has_images && earlier.lines.stand_in(lines);
                earlier.superseded |= covers && (earlier.edited || shows_the_same());
            });
        }
    }

    /// Records that the result at this place shows these files.
    fn index_views(&mut self, views: &[View], at: usize) {
        for view in views {
            let places = self.views.entry(file_name(&view.path).into()).or_default();
            if places.last() != Some(&at) {
                places.push(at);
            }
        }
    }

    /// Whether a file that a new result shows was changed before; for a diff, whether any file was.
    fn is_of_edited(&self, result: &ToolResult) -> bool {
        if result.action.class == Class::Diff && !self.edited.is_empty() {
            return true;
        }
        let is_edited = |view: &View| {
            let paths = self.edited.get(file_name(&view.path));
            paths.is_some_and(|paths| paths.iter().any(|path| view.is_of_now(path)))
        };
        !result.is_error && result.action.views.iter().any(is_edited)
    }

    /// Calls `each` with every result that shows a file.
    fn for_each_showing(&mut self, path: &str, mut each: impl FnMut(&mut ToolResult)) {
        let Some(places) = self.views.get(file_name(path)) else { return };
        for &at in places {
            let result = self.items[at].result.as_deref();
            let shows =
                |result: &ToolResult| result.action.views.iter().any(|view| same_file(&view.path, path));
            if result.is_some_and(shows)
                && let Some((_, result)) = settle_result(&mut self.items, &self.passed, at)
            {
                each(result);
            }
        }
    }
}

/// A result and its size in bytes, after adding all past requests to its rent. This must be done before the result
/// changes, because the rent depends on what was known of the result when each request passed.
fn settle_result<'a>(
    items: &'a mut [Item],
    passed: &[Passed],
    at: usize,
) -> Option<(u32, &'a mut ToolResult)> {
    let item = &mut items[at];
    let result = item.result.as_deref_mut()?;
    result.rent = clear::rent(result, item.bytes, passed);
    result.settled = passed.len();
    Some((item.bytes, result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_as_suffixes_at_segment_boundaries() {
        for (a, b, same) in [
            ("src/a.rs", "src/a.rs", true),
            ("/w/src/a.rs", "src/a.rs", true),
            ("./src/a.rs", "/w/src/a.rs", true),
            ("a.rs", "/w/src/a.rs", true),
            ("a.rs", "/w/src/ba.rs", false),
            ("src/b.rs", "src/a.rs", false),
            ("", "src/a.rs", false),
        ] {
            assert_eq!(same_file(a, b), same, "{a} {b}");
            assert_eq!(same_file(b, a), same, "{b} {a}");
        }
    }

    #[test]
    fn a_view_covers_another_of_the_same_file_and_revision_by_its_lines() {
        const END: u32 = u32::MAX;
        let view = |(path, revision, lines): (&str, &str, (u32, u32))| View {
            revision: revision.into(),
            ..View::of(path.into(), lines)
        };
        for (later, earlier, expected) in [
            (("a", "", View::ALL), ("a", "", View::ALL), true),
            (("a", "", View::ALL), ("a", "", (5, 9)), true),
            (("a", "", View::ALL), ("a", "", View::PART), true),
            (("a", "", View::ALL), ("a", "", (END - 5, END)), true),
            (("a", "", View::ALL), ("b", "", View::ALL), false),
            (("a", "", (5, 9)), ("a", "", (6, 9)), true),
            (("a", "", (5, 9)), ("a", "", (4, 9)), false),
            (("a", "", (5, 9)), ("a", "", View::PART), false),
            (("a", "", (END - 9, END)), ("a", "", (END - 5, END)), true),
            (("a", "", (END - 5, END)), ("a", "", View::ALL), false),
            (("a", "", (END - 5, END)), ("a", "", View::PART), false),
            (("a", "", View::PART), ("a", "", View::ALL), false),
            (("a", "", View::PART), ("a", "", (5, 9)), false),
            (("a", "", View::PART), ("a", "", View::PART), false),
            (("a", "v1", View::ALL), ("a", "v1", (5, 9)), true),
            (("a", "v2", View::ALL), ("a", "v1", View::ALL), false),
            (("a", "", View::ALL), ("a", "v1", View::ALL), false),
            (("a", "v1", View::ALL), ("a", "", View::ALL), false),
        ] {
            assert_eq!(view(later).covers(&view(earlier)), expected, "{later:?} {earlier:?}");
        }
    }

    /// A file with some lines, and a later view of it; whether that leaves nothing of the first that is needed.
    #[test]
    fn a_view_is_superseded_if_its_lines_are_seen_again() {
        const FILE: &str = "fn the_first_one() {}\nfn the_second_one() {}\nfn the_third_one() {}\n";
        const STUB: &str = "File unchanged since last read, see the earlier result.";
        let image = |has_media| ToolResult { has_media, ..ToolResult::default() };
        let error = ToolResult { is_error: true, ..ToolResult::default() };
        for (later, between, expected) in [
            ((FILE, image(false)), None, true),
            ((STUB, image(false)), None, false),
            (("fn the_first_one() {}\n", image(false)), None, false),
            ((FILE, error), None, false),
            // After a change the lines are different.
            (("fn the_only_one() {}\n", image(false)), Some(Class::Edit), true),
            (("fn the_only_one() {}\n", image(false)), Some(Class::Run), false),
        ] {
            for has_media in [false, true] {
                let (text, outcome) = &later;
                let mut history = History::default();
                let view = |text: &str, like: &ToolResult| ToolResult {
                    action: action(Class::View, "a.rs", View::ALL).into(),
                    content: u128::from(text.len() as u64),
                    lines: Lines::of(text),
                    ..like.clone()
                };
                let part = |message| PartId { message, part: 0 };
                history.add_result(part(0), 100, view(&format!("{FILE}\n"), &image(has_media)));
                if let Some(class) = between {
                    let action = action(class, "a.rs", View::ALL);
                    history.record_call(&action);
                    history.record_changes(&action, false);
                }
                history.add_result(part(1), 100, view(text, outcome));
                let earlier = history.items()[0].result.as_deref().unwrap();
                let is_seen_again = !has_media || between == Some(Class::Edit);
                assert_eq!(earlier.superseded, expected && is_seen_again, "{text} {between:?} {has_media}");
                assert!(earlier.lines == Lines::of(FILE).sample());
            }
        }
    }

    fn action(class: Class, path: &str, lines: (u32, u32)) -> Action {
        let path: Box<str> = path.into();
        let views = vec![View::of(path.clone(), lines)];
        Action {
            class,
            views: if class == Class::View { views.into() } else { Box::default() },
            edits: if class == Class::Edit { [path.clone()].into() } else { Box::default() },
            mentions: [path].into(),
            all_or_nothing: true,
            call: u64::from(lines.0) << 8 | class as u64,
        }
    }

    /// Plays calls, one per step, and returns what is recorded about the results of the views.
    fn notes(calls: &[(Class, &str, (u32, u32))]) -> Vec<String> {
        let mut history = History::default();
        for (at, (class, path, lines)) in calls.iter().enumerate() {
            history.begin_step();
            let action = Arc::new(action(*class, path, *lines));
            history.record_call(&action);
            history.record_changes(&action, false);
            let part = PartId { message: at as u32, part: 0 };
            let result = ToolResult { action, content: at as u128, clearable: true, ..ToolResult::default() };
            history.add_result(part, 100, result);
        }
        let mut out = Vec::new();
        let shows_code = |result: &ToolResult| matches!(result.action.class, Class::View | Class::Diff);
        let results = history.items().iter().filter_map(|item| Some((item.step, item.result.as_deref()?)));
        for (step, result) in results.filter(|(_, result)| shows_code(result)) {
            let edited = format!("edited at {}", result.changed);
            let flags = [
                (result.superseded, "superseded"),
                (result.edited, &edited),
                (result.of_edited, "of edited"),
            ];
            let flags: Vec<&str> = flags.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
            out.push(format!("{step}-{} x{} {}", result.named, result.references, flags.join(" ")));
        }
        out
    }

    /// A failed edit leaves what was read as it is, and no edit changes a revision.
    #[test]
    fn a_failed_edit_or_a_fixed_revision_does_not_make_a_view_stale() {
        for (all_or_nothing, is_error, revision, expected) in [
            (true, false, "", true),
            (true, true, "", false),
            // It is unknown how much of a script was run.
            (false, true, "", true),
            (false, false, "", true),
            (true, false, "v1", false),
        ] {
            let mut history = History::default();
            let read = || {
                let view = View { revision: revision.into(), ..View::of("a.rs".into(), View::ALL) };
                let action = Action { class: Class::View, views: [view].into(), ..Action::default() };
                ToolResult { action: action.into(), ..ToolResult::default() }
            };
            let edit = Action { all_or_nothing, ..action(Class::Edit, "/w/a.rs", View::ALL) };
            history.add_result(PartId { message: 0, part: 0 }, 100, read());
            history.record_call(&edit);
            history.record_changes(&edit, is_error);
            history.add_result(PartId { message: 2, part: 0 }, 100, read());
            let results: Vec<_> = history.items().iter().filter_map(|item| item.result.as_deref()).collect();
            let found = results.iter().map(|result| (result.edited, result.of_edited)).collect::<Vec<_>>();
            assert_eq!(
                found,
                [(expected, false), (false, expected)],
                "{all_or_nothing} {is_error} {revision}"
            );
            assert_eq!(results[0].references, 0);
        }
    }

    #[test]
    fn later_calls_mark_earlier_results_as_edited_or_superseded() {
        const ALL: (u32, u32) = (1, u32::MAX);
        for (calls, expected) in [
            (&[(Class::View, "a.rs", ALL)][..], &["1-1 x0 "][..]),
            (&[(Class::View, "a.rs", ALL), (Class::Run, "b.rs", ALL)], &["1-1 x0 "]),
            (&[(Class::View, "a.rs", ALL), (Class::Run, "/w/a.rs", ALL)], &["1-2 x1 "]),
            (&[(Class::View, "a.rs", ALL), (Class::Edit, "a.rs", ALL)], &["1-2 x1 edited at 2"]),
            (&[(Class::View, "a.rs", (5, 9)), (Class::View, "a.rs", ALL)], &["1-2 x1 superseded", "2-2 x0 "]),
            (&[(Class::View, "a.rs", ALL), (Class::View, "a.rs", (5, 9))], &["1-2 x1 ", "2-2 x0 "]),
            (&[(Class::View, "a.rs", ALL), (Class::View, "a.rs", ALL)], &["1-2 x1 superseded", "2-2 x0 "]),
            (&[(Class::Edit, "a.rs", ALL), (Class::View, "a.rs", ALL)], &["2-2 x0 of edited"]),
            (&[(Class::Edit, "b.rs", ALL), (Class::View, "a.rs", ALL)], &["2-2 x0 "]),
            (
                &[(Class::View, "a.rs", ALL), (Class::Edit, "a.rs", ALL), (Class::Run, "a.rs", ALL)],
                &["1-3 x2 edited at 2"],
            ),
            // Only its contents tell which files a diff shows: any file that was changed before may be in it.
            (&[(Class::Diff, "a.rs", ALL)], &["1-1 x0 "]),
            (&[(Class::Edit, "b.rs", ALL), (Class::Diff, "a.rs", ALL)], &["2-2 x0 of edited"]),
            (&[(Class::Diff, "a.rs", ALL), (Class::Edit, "a.rs", ALL)], &["1-1 x0 "]),
        ] {
            assert_eq!(notes(calls), expected, "{calls:?}");
        }
    }
}
