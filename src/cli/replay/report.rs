//! The output of a replay: JSON for programs, a table for human readers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::played::Played;
use super::quotes::Counts;
use crate::cli::figures;
use crate::cli::table::{Align, Table};
use crate::usage::{Money, Tokens};

/// The description of transcripts and of the JSON, for `--help`.
pub(super) const SCHEMA: &str = "\
A transcript is one conversation in a file of JSON lines, plain or compressed with gzip. The first line describes it:
  {\"id\", \"protocol\", \"model\", \"system\", \"tools\": [], \"requests\": [{\"n\", \"resp\", \"usage\": {\"output\"}}]}
    protocol  anthropic, openai-chat or openai-responses
    system    the text of the instructions; may be missing
    tools     the definitions of tools, in the form of the protocol; may be missing
    hidden_prefix_tokens_est  the estimated tokens of missing instructions and tools
    requests  model calls: each sends the first n messages; the next resp messages are its answer; usage is what was
              billed for it
Each further line is one message, as in `messages` of the protocol, or an item of `input`.

A gateway's recording is not a transcript: name its log in `ledger.dir`. It must have been made with `ledger.record =
\"full\"`, and the gateway's `state.dir` must still be there.

JSON:
  {\"files\": [FILE], \"total\": TOTAL}
  FILE and TOTAL
    requests         model calls
    direct_usd       what the prompts cost without the gateway, in dollars; null without a known price
    gateway_usd      what they cost with the gateway
    ratio            gateway_usd / direct_usd
    output_usd       what the answers cost, on either side
    events           the number of events (changes of messages that were sent before), by reason
    invalid          edited requests that the provider would refuse, although it accepts the original
    untouched        requests that could not be read, or whose edits could not be verified: they are sent as they came
    beyond_window    requests of a gateway's recording that were answered although, as the client sent them, they are
                     longer than the model's window. How they would have ended without the gateway is unknown: they are
                     in no sum of money or tokens. 0 for transcripts, whose requests all count as answered as they were
    prefixes_broken  {direct, gateway}: requests that do not continue the one before from its end
    calls            tool calls
    quoting          calls that quote an earlier result
    lost_quotes      calls that quote text that was not sent any more
    recalls          calls that were made again while their result was cleared
    tokens           {direct, gateway}: prompt and output tokens by kind
    as_recorded      recorded requests that would be sent with exactly the same bytes again; null for transcripts
    unreadable       damaged lines (neither records nor messages), which were left out
    missing          messages that the requests of a transcript refer to and that it does not have
    unplayed         requests that were left out because of that
    without_body     requests of a gateway's recording that were left out because their bodies are not there
  FILE
    id, model, priced_as   the recording, its model, and the model whose prices were used
    damaged                the numbers of its damaged lines, counted from 1
  TOTAL
    worst_ratio, worst_id  the largest ratio of a file, and which file has it
    unpriced               the number of files without a known price; they are not in the sums of money
  With --sweep: [{\"setting\", \"total\": TOTAL}]

How it estimates: a token has 4 bytes of text or, if a gateway recorded the provider's figures, as many as these say; an
image has at most 1,600 tokens; the provider's cache works as documented. Instructions and tools that a transcript lacks
are added to the prompts of both sides. The answers are the recorded ones, whatever was sent.";

/// The results of a replay.
#[derive(Default, Serialize)]
pub(super) struct Report {
    pub(super) files: Vec<File>,
    pub(super) total: Total,
}

/// The figures of a recording, or of all.
#[derive(Serialize, Default)]
pub(super) struct Figures {
    pub(super) requests: u64,
    #[serde(serialize_with = "usd")]
    pub(super) direct_usd: Option<Money>,
    #[serde(serialize_with = "usd")]
    pub(super) gateway_usd: Option<Money>,
    pub(super) ratio: Option<f64>,
    #[serde(serialize_with = "usd")]
    pub(super) output_usd: Option<Money>,
    pub(super) events: BTreeMap<&'static str, u64>,
    pub(super) invalid: u64,
    pub(super) untouched: u64,
    pub(super) beyond_window: u64,
    pub(super) prefixes_broken: Both<u64>,
    #[serde(flatten)]
    pub(super) counts: Counts,
    pub(super) tokens: Both<Tokens>,
    pub(super) as_recorded: Option<u64>,
    pub(super) unreadable: u64,
    pub(super) missing: u64,
    pub(super) unplayed: u64,
    pub(super) without_body: u64,
}

/// The results of one recording.
#[derive(Serialize)]
pub(super) struct File {
    pub(super) id: String,
    pub(super) model: Option<String>,
    pub(super) priced_as: Option<String>,
    pub(super) damaged: Vec<usize>,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// The sum over all recordings.
#[derive(Default, Serialize)]
pub(super) struct Total {
    #[serde(flatten)]
    pub(super) figures: Figures,
    pub(super) worst_ratio: Option<f64>,
    pub(super) worst_id: Option<String>,
    pub(super) unpriced: u64,
}

#[derive(Serialize, Default, Clone, Copy)]
pub(super) struct Both<T> {
    pub(super) direct: T,
    pub(super) gateway: T,
}

impl Report {
    /// Adds a recording.
    pub(super) fn add(&mut self, played: Played) {
        let direct_usd = played.direct.prompts;
        let gateway_usd = played.gateway.prompts;
        let figures = Figures {
            requests: played.tally.requests,
            direct_usd,
            gateway_usd,
            ratio: ratio(gateway_usd, direct_usd),
            output_usd: played.direct.output,
            events: played.tally.events,
            invalid: played.tally.invalid,
            untouched: played.tally.untouched,
            beyond_window: played.tally.beyond_window,
            prefixes_broken: Both { direct: played.direct.broken, gateway: played.gateway.broken },
            counts: played.counts,
            tokens: Both { direct: played.direct.tokens, gateway: played.gateway.tokens },
            as_recorded: played.as_recorded,
            unreadable: played.damage.lines.len() as u64,
            missing: played.damage.missing as u64,
            unplayed: played.damage.unplayed as u64,
            without_body: played.without_body,
        };
        self.total.add(&played.id, &figures);
        let Played { id, model, priced_as, damage, .. } = played;
        self.files.push(File { id, model, priced_as, damaged: damage.lines, figures });
    }
}

impl Total {
    fn add(&mut self, id: &str, file: &Figures) {
        let sum = &mut self.figures;
        sum.requests += file.requests;
        for (reason, count) in &file.events {
            *sum.events.entry(reason).or_default() += count;
        }
        sum.invalid += file.invalid;
        sum.untouched += file.untouched;
        sum.beyond_window += file.beyond_window;
        sum.prefixes_broken.direct += file.prefixes_broken.direct;
        sum.prefixes_broken.gateway += file.prefixes_broken.gateway;
        sum.counts += file.counts;
        sum.tokens.direct += file.tokens.direct;
        sum.tokens.gateway += file.tokens.gateway;
        sum.unreadable += file.unreadable;
        sum.missing += file.missing;
        sum.unplayed += file.unplayed;
        sum.without_body += file.without_body;
        sum.as_recorded =
            file.as_recorded.map(|same| sum.as_recorded.unwrap_or(0) + same).or(sum.as_recorded);
        self.unpriced += u64::from(file.direct_usd.is_none());
        for (sum, more) in [
            (&mut sum.direct_usd, file.direct_usd),
            (&mut sum.gateway_usd, file.gateway_usd),
            (&mut sum.output_usd, file.output_usd),
        ] {
            *sum = more.map(|more| sum.unwrap_or_default() + more).or(*sum);
        }
        sum.ratio = ratio(sum.gateway_usd, sum.direct_usd);
        if let Some(ratio) = file.ratio
            && self.worst_ratio.is_none_or(|worst| ratio > worst)
        {
            self.worst_ratio = Some(ratio);
            self.worst_id = Some(id.to_owned());
        }
    }
}

/// A ratio with four decimal places.
fn ratio(part: Option<Money>, whole: Option<Money>) -> Option<f64> {
    let (part, whole) = (part?.picodollars(), whole?.picodollars());
    (whole > 0).then(|| (part as f64 / whole as f64 * 1e4).round() / 1e4)
}

/// As a float, which is exact to far below a cent: enough for a comparison.
#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
fn usd<S: serde::Serializer>(amount: &Option<Money>, serializer: S) -> Result<S::Ok, S::Error> {
    amount.map(|amount| amount.picodollars() as f64 / 1e12).serialize(serializer)
}

/// The table for human readers.
pub(super) fn table(report: &Report) -> Table {
    let titles = [
        "requests|reqs",
        "direct",
        "gateway",
        "ratio",
        "answers",
        "events",
        "invalid",
        "calls",
        "lost",
        "again",
    ];
    let mut columns = vec![("conversation|id", Align::Left)];
    columns.extend(titles.map(|title| (title, Align::Right)));
    let mut table = Table::new(&columns);
    let all = || report.files.iter().map(|file| &file.figures).chain([&report.total.figures]);
    let places = figures::places(all().flat_map(|file| [file.direct_usd, file.gateway_usd]).flatten());
    for file in &report.files {
        table.row(&row(&file.id, &file.figures, places));
    }
    table.row(&row("total", &report.total.figures, places));
    table
}

fn row(name: &str, figures: &Figures, places: usize) -> [String; 11] {
    let usd =
        |amount: Option<Money>| figures::or_unknown(amount.map(|amount| figures::dollars(amount, places)));
    [
        name.to_owned(),
        figures::count(figures.requests),
        usd(figures.direct_usd),
        usd(figures.gateway_usd),
        figures::or_unknown(figures.ratio.map(|ratio| format!("{ratio:.3}"))),
        usd(figures.output_usd),
        figures::count(figures.events.values().sum()),
        figures::count(figures.invalid),
        figures::count(figures.counts.calls),
        figures::count(figures.counts.lost),
        figures::count(figures.counts.recalls),
    ]
}

/// The notes below the table.
pub(super) fn notes(report: &Report) -> Vec<String> {
    let total = &report.total;
    let mut notes = Vec::new();
    if let Some(worst) = total.worst_ratio {
        notes.push(format!("worst: {} at {worst:.3}", total.worst_id.as_deref().unwrap_or_default()));
    }
    let figures = &total.figures;
    let lost = figures::percent(figures.counts.lost.into(), figures.counts.calls.into());
    notes.push(format!("calls that quote what was not sent any more: {lost}"));
    for (reason, count) in &figures.events {
        notes.push(format!("events, {reason}: {}", figures::count(*count)));
    }
    if figures.beyond_window > 0 {
        let requests = figures::counted(figures.beyond_window, "request", "requests");
        notes
            .push(format!("{requests} longer than the window without the gateway: not in the sums of money"));
    }
    if figures.unreadable > 0 {
        let lines = figures::counted(figures.unreadable, "line", "lines");
        notes.push(format!("damaged: {lines} cannot be read"));
    }
    if figures.missing > 0 {
        let lines = figures::counted(figures.missing, "line", "lines");
        let requests = figures::counted(figures.unplayed, "request", "requests");
        notes.push(format!("missing: {lines}, and with them {requests}"));
    }
    if figures.without_body > 0 {
        let requests = figures::counted(
            figures.without_body,
            "request whose body was not recorded or is no longer kept",
            "requests whose bodies were not recorded or are no longer kept",
        );
        notes.push(format!("left out: {requests}"));
    }
    if total.unpriced > 0 {
        let files = figures::counted(total.unpriced, "conversation", "conversations");
        notes.push(format!("{files} without a known price: not in the sums of money"));
    }
    for file in report.files.iter().filter(|file| file.priced_as != file.model) {
        if let Some(name) = &file.priced_as {
            let model = file.model.as_deref().unwrap_or("unknown");
            notes.push(format!("{}: {model} priced as {name}", file.id));
        }
    }
    notes
}
