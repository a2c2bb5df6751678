//! `plimsoll fidelity --judge`: a model judges how much of an original history its rewritten form preserves.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use serde::Serialize;

use crate::app;
use crate::cli::history::History;
use crate::cli::{Failure, books, say};
use crate::config::Config;
use crate::conversation::{Conversation, NoMemo};
use crate::ledger::Entry;
use crate::protocol;
use crate::store::Bodies;
use crate::store::bodies::Form;
use crate::strategy::summary::{probe, transcript};
use crate::summarizer::Call;
use crate::summarizer::judge::Judge;
use crate::usage::{Catalogue, Money, Vendor};

/// The maximum number of attempts for each question.
const ATTEMPTS: u32 = 3;
/// The window that is assumed for a model of unknown window, in tokens.
const DEFAULT_WINDOW: u64 = 32_000;
/// The size in bytes up to which the judge sees a result.
const MAX_RESULT: usize = 16 << 10;

#[derive(Serialize)]
struct Json<'a> {
    conversation: &'a str,
    request: usize,
    model: &'a str,
    questions: Vec<Question>,
    mean: Option<f64>,
    usd: Option<f64>,
}

#[derive(Serialize)]
struct Question {
    asked: &'static str,
    original: String,
    rewritten: String,
    agrees: Option<f64>,
}

/// Asks the judge about the newest request that was rewritten.
pub(super) fn run(history: &History, json: bool) -> Result<(), Failure> {
    let (judge, model, prices) = judge(&history.config)?;
    let InBothForms { number: request, original, rewritten } = newest(history)?;
    let mut asking = Asking { judge, prices, cost: Some(Money::ZERO) };
    let original = asking.answers(&original)?;
    let rewritten = asking.answers(&rewritten)?;
    let compared = asking.ask(&probe::compare(&original, &rewritten))?;
    let scores = probe::scores(&compared, &original);
    let found: Vec<f64> = scores.iter().copied().flatten().collect();
    let mean = (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64);
    let answers = original.into_iter().zip(rewritten);
    let questions = probe::QUESTIONS.iter().zip(answers).zip(scores);
    let questions = questions
        .map(|((question, (original, rewritten)), agrees)| Question {
            asked: question,
            original,
            rewritten,
            agrees,
        })
        .collect();
    let usd = asking.cost.map(|cost| cost.picodollars() as f64 / 1e12);
    let found = Json { conversation: &history.found.id, request, model: &model, questions, mean, usd };
    if json {
        return books::say_json(&found);
    }
    for question in &found.questions {
        say(&format!("{:>5}  {}", super::share(question.agrees), one_line(question.asked)));
        if question.agrees.is_some_and(|agrees| agrees < 1.0) {
            say(&format!("       as it came: {}", one_line(&question.original)));
            say(&format!("       as sent:    {}", one_line(&question.rewritten)));
        }
    }
    say(&format!("mean of request {}: {}", found.request, super::share(found.mean)));
    say(&asking.cost.map_or_else(|| "cost: not known".to_owned(), |cost| format!("cost: {cost}")));
    Ok(())
}

/// The text of a model on one line, since it may have several.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The configured judge, its model, and the prices.
fn judge(config: &Config) -> Result<(Judge, String, Catalogue), Failure> {
    let configured = (config.fidelity.upstream.as_deref(), config.fidelity.model.clone());
    let (Some(name), Some(model)) = configured else {
        return Err(Failure::Message("no judge: set `fidelity.upstream` and `fidelity.model`".to_owned()));
    };
    let failed = |why: &str| Failure::Message(format!("`fidelity.upstream`: {why}"));
    let upstream = config.upstreams.named(name).ok_or_else(|| failed("there is none"))?;
    let dialect = upstream.protocols.first().and_then(|dialect| protocol::named(dialect.as_str()));
    let protocol = dialect.ok_or_else(|| failed("it speaks no protocol"))?;
    let prices = app::prices(&config.prices).map_err(Failure::said)?;
    let upstream = Arc::new(app::upstream_of(upstream, &config.proxies, &[]));
    let vendor = Vendor::of_host(upstream.base_url().domain());
    let window = prices.find(&model, vendor).and_then(|priced| priced.price.context_window);
    let call = Call {
        upstream,
        protocol,
        model: model.clone(),
        like: None,
        headers: HeaderMap::new(),
        window: window.unwrap_or(DEFAULT_WINDOW),
    };
    let judge = Judge::new(call, ATTEMPTS).map_err(Failure::said)?;
    Ok((judge, model, prices))
}

/// A request, as it came and as it was sent.
struct InBothForms {
    number: usize,
    original: Conversation,
    rewritten: Conversation,
}

/// The newest request of which both forms are stored.
fn newest(history: &History) -> Result<InBothForms, Failure> {
    let bodies = Bodies::below(&history.config.state.dir);
    for Entry { number, record, .. } in history.found.entries.iter().rev() {
        let (Some(number), Some(said)) = (*number, protocol::named(&record.protocol)) else { continue };
        let read = |form| {
            let body = bodies.read(&history.found.id, &record.id, form).ok().flatten()?;
            protocol::read(said, &Bytes::from(body), &NoMemo).ok().map(|(_, conversation)| conversation)
        };
        if let (Some(original), Some(rewritten)) = (read(Form::Came), read(Form::Sent)) {
            return Ok(InBothForms { number, original, rewritten });
        }
    }
    let why = "no request of it was both rewritten and kept; `ledger.record = \"full\"` keeps them";
    Err(Failure::Message(format!("{}: {why}", history.name())))
}

/// The state of asking the judge.
struct Asking {
    judge: Judge,
    prices: Catalogue,
    /// The cost so far; `None` after a call of unknown price.
    cost: Option<Money>,
}

impl Asking {
    fn ask(&mut self, text: &str) -> Result<String, Failure> {
        let said = self.judge.ask(text, &self.prices);
        let said = said.map_err(|failure| Failure::Message(format!("the judge: {failure}")))?;
        self.cost = self.cost.zip(said.cost).map(|(sum, cost)| sum + cost);
        Ok(said.text)
    }

    /// The answers that a history gives; it is read in pieces if it is too long for the judge.
    fn answers(&mut self, conversation: &Conversation) -> Result<Vec<String>, Failure> {
        let messages: Vec<usize> = (0..conversation.messages.len()).collect();
        let entries = transcript::render(conversation, &messages, &|_| None, MAX_RESULT);
        let mut pieces = Vec::new();
        for piece in transcript::chunks(&entries, self.judge.most_bytes()) {
            let written = self.ask(&probe::ask(&piece))?;
            let unread = || Failure::Message("the judge: it gave no answer to any question".to_owned());
            pieces.push(probe::answers(&written).ok_or_else(unread)?);
        }
        Ok(probe::join(&pieces))
    }
}
