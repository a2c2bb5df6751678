//! The newest prompt of a conversation: what it consists of, and how it fills the window.

use crate::cli::figures;
use crate::cli::history::History;
use crate::cli::table::{Align, Table};
use crate::ledger::told::{left_out, rules, spliced};
use crate::ledger::{Calls, Entry, Fill, Limit, Region, Shares};
use crate::planner::decision::REASONING;

/// What the conversation's newest prompt consists of, and what of it is sent in another form.
pub(super) fn made_of(history: &History) -> Vec<String> {
    let last =
        history.found.entries.iter().enumerate().rev().find(|(_, entry)| entry.record.prompt.is_some());
    let Some((at, Entry { record, .. })) = last else { return Vec::new() };
    let Some(prompt) = &record.prompt else { return Vec::new() };
    let all: u64 = shares(prompt).iter().map(|(_, tokens)| tokens).sum();
    let mut table =
        Table::new(&[("the prompt as sent", Align::Left), ("tokens", Align::Right), ("", Align::Right)]);
    for (name, tokens) in shares(prompt) {
        let percent = figures::percent(tokens.into(), all.into());
        table.row(&[name.to_owned(), format!("~{}", figures::count(tokens)), percent]);
    }
    let mut lines = vec![String::new()];
    lines.extend(table.lines());
    lines.extend(record.calls.and_then(states));
    let standing = history.standing(at);
    if record.edits.were_sent() && !standing.is_empty() {
        let freed: u64 = standing.iter().map(|one| one.made.before.saturating_sub(one.made.after)).sum();
        let rules = rules(standing.iter().map(|one| one.made.rules.as_str()));
        lines.push(format!("in another form: {rules}; {} bytes less", figures::count(freed)));
    }
    if record.edits.were_sent() {
        lines.extend(record.edits.splice.as_ref().map(spliced));
        let omitted = record.edits.parts.get(REASONING).copied().unwrap_or(0);
        lines.extend((omitted > 0).then(|| left_out(omitted)));
        lines.extend(record.edits.marked.then(|| "marked for the provider's cache".to_owned()));
    }
    lines
}

/// The states of its calls, if there are any.
fn states(calls: Calls) -> Option<String> {
    let all = [
        (calls.pending, "pending"),
        (calls.completed, "completed"),
        (calls.error, "error"),
        (calls.cleared, "cleared"),
    ];
    let told = all.map(|(count, state)| format!("{} {state}", figures::count(count.into())));
    all.iter().any(|(count, _)| *count > 0).then(|| format!("calls of tools: {}", told.join(", ")))
}

/// How that prompt fills the window, and for how long there is room.
pub(super) fn filled(fill: &Fill) -> Vec<String> {
    let mut table = Table::new(&[
        ("of the window", Align::Left),
        ("tokens", Align::Right),
        ("", Align::Right),
        ("limit", Align::Right),
        ("", Align::Left),
    ]);
    for Region { name, tokens, limit, state } in fill.regions {
        let share = figures::percent(tokens.into(), fill.window.into());
        let state = if state == Limit::Ok { "" } else { state.as_str() };
        let tokens = format!("~{}", figures::count(tokens));
        table.row(&[name.to_owned(), tokens, share, figures::count(limit), state.to_owned()]);
    }
    let mut lines = vec![String::new()];
    lines.extend(table.lines());
    lines.extend(fill.burn.map(|burn| {
        format!(
            "~{} tokens come with a turn: {} until the window is full ({})",
            figures::count(burn.tokens_per_turn),
            figures::counted(burn.turns_left as u64, "turn", "turns"),
            burn.urgency.as_str()
        )
    }));
    lines
}

fn shares(prompt: &Shares) -> [(&'static str, u64); 6] {
    [
        ("tools", prompt.tools),
        ("system", prompt.system),
        ("user", prompt.user),
        ("assistant", prompt.assistant),
        ("reasoning", prompt.reasoning),
        ("tool results", prompt.results),
    ]
}
