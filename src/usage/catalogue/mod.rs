//! The price catalogue: an embedded list, and what the configuration says instead.
//!
//! The list is JSON, one model a line, in pico-dollars per token; `build.rs` packs it. Nothing is read before the first
//! look-up; then it is unpacked, the names are indexed, and each row is parsed when it is first asked for. A name that
//! is not found is `None`: no model is ever priced as a similar one.

mod listing;
mod names;
mod stated;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::{Arc, OnceLock};

use flate2::read::DeflateDecoder;
use glob::PatternError;
use serde_json::value::RawValue;

use super::price::{Price, Source};
use super::rate::Factor;
use super::vendor::Vendor;
use stated::{Models, Override};

pub use listing::Listed;
pub use stated::Stated;

/// The factor for Claude in a region of Vertex, whose list prices are those of its global endpoint.
const REGIONAL: Factor = Factor::from_thousandths(1100);

static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/prices.deflate"));

/// The day up to which the embedded prices were collected.
pub const CATALOGUE_DATE: &str = "2026-11-21";

/// Finds prices by model name.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    overrides: Vec<Override>,
}

/// A price and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priced {
    /// The price.
    pub price: Arc<Price>,
    /// Its source.
    pub source: Source,
    /// The row of the embedded list that it was found in. If the source is the configuration, this is the row that
    /// fills in what the configuration does not state.
    pub listed: Option<Listed>,
}

impl Priced {
    /// The price of a free model.
    fn nothing() -> Self {
        Self { price: Arc::default(), source: Source::Embedded(CATALOGUE_DATE), listed: None }
    }
}

impl Catalogue {
    /// The embedded prices alone.
    pub fn embedded() -> Self {
        Self::default()
    }

    /// The embedded prices with `overrides` above them: names or globs (case-insensitive), of which the first that
    /// matches applies. What it does not state is taken from the embedded price; for a model without one, it must state
    /// the input and the output rate.
    ///
    /// # Errors
    /// The first pattern that is not a valid glob.
    pub fn with_overrides(overrides: Vec<(String, Stated)>) -> Result<Self, PatternError> {
        let compile = |(models, stated): (String, Stated)| Override::new(&models, stated);
        let overrides = overrides.into_iter().map(compile).collect::<Result<_, _>>()?;
        Ok(Self { overrides })
    }

    /// Whether a name or glob, as of [`Self::with_overrides`], matches a model that the embedded list has.
    pub fn lists(models: &str) -> bool {
        let named = find_row(models, None).is_some()
            || Vendor::all().any(|vendor| find_row(models, Some(vendor)).is_some());
        named || Models::new(models).is_ok_and(|models| index().iter().any(|row| row.is_of(&models)))
    }

    /// The price of `model`, as clients and providers write its name, or `None` if it is unknown.
    ///
    /// `vendor` is who bills; its own list is searched first. In this order, for the name as it is and then
    /// with one decoration less at a time (Bedrock's `-v1:0`, the date of a snapshot, `@default`, `-latest`):
    /// the vendor's list; the list that a prefix such as `anthropic/` names; for names without prefix, the
    /// lists of those who make models; a reseller's list if only one has the name.
    ///
    /// The result states the model's limits, whoever sells it. For what is paid, see [`Self::billed`].
    pub fn find(&self, model: &str, vendor: Option<Vendor>) -> Option<Priced> {
        self.priced(model, find_row(model, vendor))
    }

    /// A price whose rates are in the right proportions to each other, though perhaps not the right amounts: that of
    /// [`Self::find`], else that of the name without one of OpenRouter's words that choose among sellers (`:nitro`).
    pub fn in_proportion(&self, model: &str, vendor: Option<Vendor>) -> Option<Priced> {
        self.find(model, vendor).or_else(|| self.find(names::without_choice(model)?, vendor))
    }

    /// The price for a bill, which must be that of the seller. The price of a reseller applies to no one else, nor does
    /// that of a maker for a model with open weights. So the result is `None` if neither `vendor` nor the name says
    /// that they sold it, or if the name leaves the choice among sellers with different prices open. Models that
    /// OpenRouter calls `:free` cost nothing. If the configuration states a part of a price, the rest is the maker's.
    pub fn billed(&self, model: &str, vendor: Option<Vendor>) -> Option<Priced> {
        let is_stated = || self.overrides.iter().any(|entry| entry.matches(&names::decoded(model)));
        let is_completed = |row: &Row| Vendor::MAKERS.contains(&row.vendor) && is_stated();
        let row =
            find_row(model, vendor).filter(|row| row.certainly_bills(model, vendor) || is_completed(row));
        let is_free = || names::is_free(model, vendor == Some(Vendor::OpenRouter));
        self.priced(model, row).or_else(|| is_free().then(Priced::nothing))
    }

    /// The price for a list of prices: that of [`Self::billed`], else that of the maker, even if it gives the model's
    /// weights away.
    pub fn quoted(&self, model: &str, vendor: Option<Vendor>) -> Option<Priced> {
        let maker = || Self::seller(model, vendor).filter(|seller| Vendor::MAKERS.contains(seller));
        self.billed(model, vendor).or_else(|| self.billed(model, Some(maker()?)))
    }

    fn priced(&self, model: &str, row: Option<&Row>) -> Option<Priced> {
        let model = &*names::decoded(model);
        let embedded = row.and_then(Row::price);
        let listed = row.map(Row::listed);
        match self.overrides.iter().find(|entry| entry.matches(model)) {
            Some(entry) => {
                let price = entry.stated.over(embedded.as_deref())?;
                Some(Priced { price: Arc::new(price), source: Source::Config, listed })
            }
            None => embedded.map(|price| Priced { price, source: Source::Embedded(CATALOGUE_DATE), listed }),
        }
    }

    /// The seller on whose list a name is found, in the order of [`Self::find`].
    fn seller(model: &str, vendor: Option<Vendor>) -> Option<Vendor> {
        find_row(model, vendor).map(|row| row.vendor)
    }

    /// The name of the model that is billed. That is the one in the answer, with three exceptions, for which the
    /// requested name says more about the price: Bedrock and Vertex have names of their own, which give the seller and
    /// the region; an alias is a name of the customer, who may have stated its price; and OpenRouter may answer with a
    /// snapshot's name, which says less than the requested one.
    pub fn billed_name<'n>(
        &self,
        asked: Option<&'n str>,
        answered: Option<&'n str>,
        vendor: Option<Vendor>,
    ) -> Option<&'n str> {
        if asked == answered {
            return asked;
        }
        let tells = |model: &&str| {
            let seller = Self::seller(model, vendor);
            matches!(seller, Some(Vendor::Bedrock | Vendor::Vertex)) || Self::is_alias(model)
        };
        let says_more = |asked: &&str| {
            vendor == Some(Vendor::OpenRouter)
                && answered.is_some_and(|answered| self.says_more(asked, answered))
        };
        asked.filter(|asked| tells(asked) || says_more(asked)).or(answered).or(asked)
    }

    /// Whether a name requested from OpenRouter says more about the price than the name in its answer, which must be
    /// one of the same model. It does if it has a variant, or if the price is known only for the name without a
    /// snapshot's number. Prices that the configuration states for either name go before those of the list. A `:free`
    /// name never says more, since a paid model may have answered.
    fn says_more(&self, asked: &str, answered: &str) -> bool {
        let (model, variant) = asked.rsplit_once(':').unwrap_or((asked, ""));
        if variant == "free" || self.states(answered) {
            return false;
        }
        let model = model.strip_prefix("openrouter/").unwrap_or(model);
        let digits = names::number_behind(model, answered).map_or(0, str::len);
        let [row, row_of_answered] = [model, answered].map(|name| find_row(name, Some(Vendor::OpenRouter)));
        let is_same_row = row.zip(row_of_answered).is_some_and(|(one, other)| std::ptr::eq(one, other));
        let is_same_model =
            matches!(digits, 4 | 6 | 8) || is_same_row || names::forms(answered).any(|form| form == model);
        if !is_same_model {
            return false;
        }
        if !variant.is_empty() {
            return true;
        }
        let is_listed = row_of_answered.is_some();
        // Four digits may belong to another entry of the list, with its own price.
        (digits > 4 && !is_listed) || ((is_same_row || !is_listed) && self.states(asked))
    }

    /// Whether the configuration states every rate that a price must have.
    fn states(&self, model: &str) -> bool {
        let entry = self.overrides.iter().find(|entry| entry.matches(model));
        entry.is_some_and(|entry| entry.stated.over(None).is_some())
    }

    /// Whether it is an alias made by a seller's customer: only they know which model it names, and where it runs.
    fn is_alias(model: &str) -> bool {
        names::without_path(&names::decoded(model)).starts_with("arn:")
    }

    /// The rows of the embedded list: seller, name at that seller, price.
    #[cfg(test)]
    pub(super) fn rows() -> impl Iterator<Item = (Vendor, &'static str, Arc<Price>)> {
        index().iter().filter_map(|row| row.price().map(|price| (row.vendor, row.name, price)))
    }
}

/// One line of the list. The price is parsed on first use.
#[derive(Debug)]
struct Row {
    vendor: Vendor,
    name: &'static str,
    text: &'static RawValue,
    price: OnceLock<Option<Arc<Price>>>,
}

impl Row {
    fn price(&self) -> Option<Arc<Price>> {
        let read = || {
            let listed: Price = serde_json::from_str(self.text.get()).ok()?;
            let region =
                (self.vendor == Vendor::Vertex && names::is_dearer_in_regions(self.name)).then_some(REGIONAL);
            let cache_min = listed.cache_min.or_else(|| self.makers()?.price()?.cache_min);
            Some(Arc::new(Price { region, cache_min, ..listed }))
        };
        self.price.get_or_init(read).clone()
    }

    /// The maker's own row of a model that OpenRouter passes on, which spells versions with dots.
    fn makers(&self) -> Option<&'static Self> {
        let (maker, name) = split_vendor(self.name).filter(|_| self.vendor == Vendor::OpenRouter)?;
        row(maker, name).or_else(|| row(maker, &name.replace('.', "-")))
    }

    /// Whether this row is certainly the price of a model with this name if `vendor` bills it.
    fn certainly_bills(&self, model: &str, vendor: Option<Vendor>) -> bool {
        let decoded = names::decoded(model);
        let name = names::without_path(&decoded);
        let prefix = split_vendor(name).map(|(prefix, _)| prefix);
        if vendor == Some(self.vendor) {
            return true;
        }
        match self.vendor {
            // An open model has the same name wherever it runs, with or without its maker's name before it.
            maker if Vendor::MAKERS.contains(&maker) => {
                let is_resold = |seller: Vendor| Vendor::RESELLERS.contains(&seller);
                maker.sells_alone(self.name) || vendor.or(prefix).is_some_and(is_resold)
            }
            reseller if prefix == Some(reseller) => true,
            Vendor::Bedrock => true,
            Vendor::Vertex => {
                let has_its_path = names::is_of_vertex(&decoded);
                has_its_path || self.name.contains('@') || self.name.starts_with("claude-")
            }
            Vendor::OpenRouter => {
                split_vendor(self.name).is_some_and(|(maker, name)| maker.sells_alone(name))
            }
            _ => false,
        }
    }

    /// Whether it is one of `models`, by its name or with a seller's prefix.
    fn is_of(&self, models: &Models) -> bool {
        let prefixed = |prefix: &&str| models.matches(&format!("{prefix}/{}", self.name));
        models.matches(self.name) || self.vendor.prefixes().iter().any(prefixed)
    }
}

/// A seller's part of `prices.json`: rows by name.
type Section = BTreeMap<&'static str, &'static RawValue>;

/// All rows, by vendor and name.
fn index() -> &'static [Row] {
    static INDEX: OnceLock<Box<[Row]>> = OnceLock::new();
    INDEX.get_or_init(|| read(text()).expect("the shipped list has this shape"))
}

/// The shipped list, as it is written.
fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut text = String::new();
        DeflateDecoder::new(PACKED).read_to_string(&mut text).expect("it was packed when this was built");
        text
    })
}

fn read(text: &'static str) -> Result<Box<[Row]>, serde_json::Error> {
    let mut sections: BTreeMap<&str, Section> = serde_json::from_str(text)?;
    let rows = Vendor::all().flat_map(|vendor| {
        let section = sections.remove(vendor.as_str()).unwrap_or_default();
        section.into_iter().map(move |(name, text)| Row { vendor, name, text, price: OnceLock::new() })
    });
    Ok(rows.collect())
}

/// The row of exactly that vendor and name.
fn row(vendor: Vendor, name: &str) -> Option<&'static Row> {
    let rows = index();
    rows.binary_search_by(|row| (row.vendor, row.name).cmp(&(vendor, name))).ok().map(|at| &rows[at])
}

/// The row of a model, in the order of [`Catalogue::find`].
fn find_row(model: &str, vendor: Option<Vendor>) -> Option<&'static Row> {
    let decoded = names::decoded(model);
    let name = names::without_path(&decoded);
    // OpenRouter passes the makers' list prices on, and its names are theirs with a prefix. Groq has prices of
    // its own.
    let (name, vendor) = match name.strip_prefix("openrouter/") {
        Some(rest) => (rest, Some(Vendor::OpenRouter)),
        None => (name, vendor),
    };
    names::forms(name).find_map(|form| {
        let own = vendor.and_then(|vendor| row(vendor, form));
        if vendor == Some(Vendor::Groq) {
            return own;
        }
        let listed = || match split_vendor(form) {
            Some((vendor, rest)) => row(vendor, rest),
            None => Vendor::MAKERS.iter().find_map(|&maker| row(maker, form)),
        };
        own.or_else(listed).or_else(|| sole_reseller(form)).or_else(|| routed_claude(form))
    })
}

/// The row of a Claude by the name that OpenRouter has for it, or for a snapshot of it: versions have dots, and a
/// snapshot's may precede the family (`anthropic/claude-4.5-sonnet`).
fn routed_claude(name: &str) -> Option<&'static Row> {
    let named = names::family_first(name.strip_prefix("anthropic/")?)?;
    row(Vendor::OpenRouter, &format!("anthropic/{named}"))
        .or_else(|| row(Vendor::Anthropic, &named.replace('.', "-")))
}

/// A prefix that names a vendor, and the rest.
fn split_vendor(name: &str) -> Option<(Vendor, &str)> {
    let (prefix, rest) = name.split_once('/')?;
    Vendor::of_prefix(prefix).map(|vendor| (vendor, rest))
}

/// The row of the only reseller that has the name; two may ask different prices.
fn sole_reseller(name: &str) -> Option<&'static Row> {
    let mut hits = Vendor::RESELLERS.iter().filter_map(|&reseller| row(reseller, name));
    hits.next().filter(|_| hits.next().is_none())
}
