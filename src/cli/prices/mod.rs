//! `plimsoll prices`: the prices that models are billed at, looked up in the same way as the books do. Reads only the
//! configuration.

mod json;
mod text;

use clap::Args;

use super::{Failure, Output, books, files, say};
use crate::app;
use crate::config::{self, Config};
use crate::usage::{Above, Catalogue, Listed, PerMillion, Price, Priced, Tier, Vendor};

/// The explanation of the columns and the JSON, for `--help`.
const SCHEMA: &str = "\
The columns: US dollars for a million tokens of input, read from the provider's cache, written to it for five minutes (or
the provider's usual time) and for an hour, and of output; then the most tokens of a prompt. `=` marks what has no rate of
its own and is billed as input, `–` what is not known, `*` what is from the configuration, `+` what has other rates too, for
long prompts, batches and so on: they are told of models that are asked for by name.

JSON:
  {\"catalogue\", \"prices\": [{\"model\", \"upstream\", \"source\", \"listed\", \"rates\": RATES, \"not_listed\", \"audio_input\",
   \"long_prompts\": [{\"above\", \"rates\": RATES}], \"tiers\": {TIER: RATES}, \"factors\": {\"us\", \"region\", \"fast\"},
   \"web_search\", \"window\"}]}
  catalogue     the day up to which the prices of the catalogue were collected
  model         the name as it was asked for
  upstream      where it is billed so; null: wherever the name is asked for, but in a list, of models whose makers give
                them away, at the maker's own host
  source        `catalogue DATE` or `configuration`, as in the books; null where no price is known
  listed        {seller, name}: what it was found under in the catalogue; with `configuration` as the source, what is not
                stated there is taken from it; null: nothing is
  RATES         {input, cache_read, cache_write_5m, cache_write_1h, cache_write_12h, output, reasoning}: dollars for a
                million tokens as they are billed, exact decimal numbers as strings; null where no price is known
  not_listed    the rates that no list has: cache reads and writes are billed as input then, but writes for an hour at
                twice and for twelve hours at two and a half times the input where short ones are dearer than input;
                reasoning is billed as output
  long_prompts  the rates of all tokens where a prompt has more than so many tokens
  tiers         batch, priority, flex, ultrafast: those that are listed; both lists multiply in a long prompt
  factors       on all of it: bound to the US, in one region of the seller's, in fast mode; decimal numbers or null
  audio_input, web_search  dollars for a million tokens, for one search; null: unknown
  window        the most tokens of a prompt, or null
  Fields may be added; none will change its meaning.";

/// The options of `plimsoll prices`.
#[derive(Debug, Args)]
#[command(after_long_help = SCHEMA)]
pub(super) struct Options {
    /// Names of models as requests have them, or globs such as 'claude-*'; without any, all that the catalogue and the
    /// configuration name
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
    /// As they are billed at this upstream of the configuration; a list has what is sold there. Without it, as their names
    /// are billed wherever they are asked for, and at the upstreams that bill them otherwise
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// The price of a model.
#[derive(Debug)]
struct Quote {
    /// The name that was asked for.
    model: String,
    /// The upstream; `None` for the name regardless of where it is asked for.
    upstream: Option<String>,
    detail: Detail,
    /// The price; `None` if it is unknown.
    priced: Option<Priced>,
}

/// How much is printed about a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// All of it, since it was asked for by name.
    Whole,
    /// A line, since it is one of many.
    Line,
}

/// The tiers besides the standard one, with their names.
const TIERS: [(&str, Tier); 4] = [
    ("batch", Tier::Batch),
    ("priority", Tier::Priority),
    ("flex", Tier::Flex),
    ("ultrafast", Tier::Ultrafast),
];

/// All sellers.
struct Market {
    catalogue: Catalogue,
    /// The one upstream that was asked about, if any.
    only: Option<Seller>,
    /// The upstreams of the configuration whose hosts are known.
    sellers: Vec<Seller>,
}

/// An upstream, and the vendor behind it.
#[derive(Clone)]
struct Seller {
    upstream: String,
    vendor: Option<Vendor>,
}

/// Prints the prices of models.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let config = files::load_to_read(&options.output.source)?;
    let market = Market::of(&config, options.upstream.as_deref())?;
    let (mut quotes, mut failures) = (Vec::new(), Vec::new());
    for asked in &options.models {
        match market.quotes(asked)? {
            found if found.is_empty() => {
                failures.push(format!("`{asked}`: no model with a price is called so"));
            }
            found => quotes.extend(found),
        }
    }
    if options.models.is_empty() {
        quotes = market.list(None)?;
    }
    failures.extend(quotes.iter().filter(|quote| quote.priced.is_none()).map(|quote| market.unknown(quote)));
    if options.output.json {
        books::say_json(&json::of(&quotes))?;
    } else {
        let (lines, notes) = (text::lines(&quotes), text::notes(&quotes));
        for line in lines {
            say(&line);
        }
        books::say_notes(&notes);
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::Said(failures.join("\n"))) }
}

impl Market {
    fn of(config: &Config, upstream: Option<&str>) -> Result<Self, Failure> {
        let catalogue = app::prices(&config.prices).map_err(Failure::said)?;
        let all: Vec<Seller> = config.upstreams.as_slice().iter().map(Seller::of).collect();
        let find = |name: &str| {
            let found = all.iter().find(|seller| seller.upstream == name).cloned();
            found.ok_or_else(|| {
                let names: Vec<&str> = all.iter().map(|seller| seller.upstream.as_str()).collect();
                Failure::Usage(format!("`--upstream {name}`: expected one of {}", names.join(", ")))
            })
        };
        let only = upstream.map(find).transpose()?;
        let sellers = all.iter().filter(|seller| seller.vendor.is_some()).cloned().collect();
        Ok(Self { catalogue, only, sellers })
    }

    /// The prices of a name, or of all names that match a glob; empty if none matches.
    fn quotes(&self, asked: &str) -> Result<Vec<Quote>, Failure> {
        let named = self.named(asked);
        let is_known = named.iter().any(|quote| quote.priced.is_some());
        if is_known || !Catalogue::is_glob(asked) { Ok(named) } else { self.list(Some(asked)) }
    }

    /// The price of a name regardless of the upstream, and at the upstreams that have another price.
    fn named(&self, model: &str) -> Vec<Quote> {
        let quote = |seller: Option<&Seller>| Quote {
            model: model.to_owned(),
            upstream: seller.map(|seller| seller.upstream.clone()),
            detail: Detail::Whole,
            priced: self.catalogue.billed(model, seller.and_then(|seller| seller.vendor)),
        };
        if self.only.is_some() {
            return vec![quote(self.only.as_ref())];
        }
        let mut quotes = vec![quote(None)];
        for other in self.sellers.iter().map(|seller| quote(Some(seller))) {
            let is_new = |priced: &Priced| {
                quotes
                    .iter()
                    .filter_map(|known| known.priced.as_ref())
                    .all(|known| known.price != priced.price)
            };
            if other.priced.as_ref().is_some_and(is_new) {
                quotes.push(other);
            }
        }
        // If it is sold somewhere, upstreams that do not sell it are of no interest.
        if quotes.len() > 1 {
            quotes.retain(|quote| quote.priced.is_some());
        }
        quotes
    }

    fn list(&self, models: Option<&str>) -> Result<Vec<Quote>, Failure> {
        let vendor = self.vendor();
        let names = self.catalogue.names(models, vendor);
        let names =
            names.map_err(|error| Failure::Usage(format!("`{}`: {error}", models.unwrap_or_default())))?;
        // Fewer names may have a price at an upstream than are listed.
        let quote = |model: String| {
            let upstream = self.only.as_ref().map(|seller| seller.upstream.clone());
            let priced = match &upstream {
                Some(_) => Some(self.catalogue.billed(&model, vendor)?),
                None => self.catalogue.quoted(&model, vendor),
            };
            Some(Quote { upstream, detail: Detail::Line, priced, model })
        };
        Ok(names.into_iter().filter_map(quote).collect())
    }

    /// The vendor of the upstream that was asked about.
    fn vendor(&self) -> Option<Vendor> {
        self.only.as_ref().and_then(|seller| seller.vendor)
    }

    /// The message for a name without a price, with a suggestion.
    fn unknown(&self, quote: &Quote) -> String {
        let Quote { model, upstream, .. } = quote;
        let at = upstream.as_ref().map_or_else(String::new, |name| format!(" at `upstream.{name}`"));
        let resold = if upstream.is_some() { Vec::new() } else { Catalogue::resold(model) };
        let mut sellers: Vec<String> = resold.iter().map(|name| format!("`{name}`")).collect();
        if self.vendor().is_none()
            && let Some(Listed { seller, .. }) =
                self.catalogue.quoted(model, None).and_then(|priced| priced.listed)
        {
            sellers.push(format!("{} at its own host", seller.as_str()));
        }
        let known = self.catalogue.names(None, self.vendor()).unwrap_or_default();
        let hint = if !sellers.is_empty() {
            format!("what it costs depends on who sells it: {}", sellers.join(", "))
        } else if let Some(near) =
            config::nearest(model, &known.iter().map(String::as_str).collect::<Vec<_>>())
        {
            config::did_you_mean(near)
        } else {
            "its price can be stated in `[prices.model]` of the configuration".to_owned()
        };
        format!(
            "no price is known of `{model}`{at}: its requests are booked with a cost of null\n  hint: {hint}"
        )
    }
}

impl Seller {
    fn of(upstream: &config::Upstream) -> Self {
        Self { upstream: upstream.name.clone(), vendor: Vendor::of_host(upstream.base_url.domain()) }
    }
}

/// The costs in long prompts, each with the size from which they apply, in ascending order.
fn long(price: &Price) -> Vec<(&Above, PerMillion)> {
    let costs = |above: &Above| PerMillion::of(price, Tier::Standard, above.gt.saturating_add(1));
    let mut long: Vec<_> = price.above.iter().filter_map(|above| Some((above, costs(above)?))).collect();
    long.sort_by_key(|(above, _)| above.gt);
    long
}

/// The costs if nothing changes the price.
fn usual(price: &Price) -> PerMillion {
    PerMillion::of(price, Tier::Standard, 0).expect("every price lists the usual tier")
}
