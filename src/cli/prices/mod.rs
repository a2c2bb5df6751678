//! `plimsoll prices`: the prices that models are billed at, looked up in the same way as the books do. Reads only the
//! configuration.

mod json;
mod text;

use clap::Args;

use super::{Failure, Output, books, files, say_lines};
use crate::app;
use crate::config::{self, Config};
use crate::usage::{Above, Catalogue, Listed, PerMillion, Price, Priced, Tier, Vendor};

/// The explanation of the columns and the JSON, for `--help`.
const SCHEMA: &str = "\
The columns: US dollars per million tokens of input, of cache reads, of cache writes for five minutes (or for the
provider's usual time) and for an hour, and of output; then the longest prompt, in tokens. `=` has no rate of its own and
is billed as input, `–` is unknown, `*` is from the configuration, `+` has further rates (long prompts, batches and so
on): name the model to see them.

JSON:
  {\"catalogue\", \"prices\": [{\"model\", \"upstream\", \"source\", \"listed\", \"rates\": RATES, \"not_listed\", \"audio_input\",
   \"long_prompts\": [{\"above\", \"rates\": RATES}], \"tiers\": {TIER: RATES}, \"factors\": {\"us\", \"region\", \"fast\"},
   \"web_search\", \"window\"}]}
  catalogue     the day up to which the prices of the catalogue were collected
  model         the name as it was asked for
  upstream      the upstream that has this price; null: the price wherever the name is asked for. In a list, null is also
                used for models that anyone may host, with the price at the maker's own host
  source        `catalogue DATE` or `configuration`, as in the books; null if no price is known
  listed        {seller, name}: the entry of the catalogue; if source is `configuration`, the one from which rates are
                taken that the configuration does not state; null if there is none
  RATES         {input, cache_read, cache_write_5m, cache_write_1h, cache_write_12h, output, reasoning}: dollars per
                million tokens as they are billed, exact decimal numbers as strings; null if no price is known
  not_listed    the rates that nobody states and that were derived: cache reads and writes are billed as input; if short
                writes cost more than input, writes for an hour at twice and for twelve hours at two and a half times the
                price of input; reasoning is billed as output
  long_prompts  the rates of all tokens of a prompt with more than `above` tokens
  tiers         the rates of batch, priority, flex and ultrafast, if stated; in a long prompt both changes are multiplied
  factors       by which all rates are multiplied: if bound to the US, if bound to one of the seller's regions, and in
                fast mode; decimal numbers or null
  audio_input, web_search  dollars per million tokens, and per search; null if unknown
  window        the longest prompt, in tokens, or null
  Fields may be added; none will change its meaning.";

/// The options of `plimsoll prices`.
#[derive(Debug, Args)]
#[command(after_long_help = SCHEMA)]
pub(super) struct Options {
    /// Names of models as in requests, or patterns such as 'claude-*'. Without any, all models of the catalogue and the
    /// configuration are listed
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
    /// Show the prices at this upstream of the configuration, and list only models that it sells. Without it, the usual
    /// price of a model is shown, followed (for a model asked for by name) by each upstream with another price
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
                failures.push(format!("`{asked}`: no price is known for a model of this name"));
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
        say_lines(lines);
        books::say_notes(&notes);
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::Message(failures.join("\n"))) }
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
            "no price is known for `{model}`{at}: its requests are booked with a cost of null\n  hint: {hint}"
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
