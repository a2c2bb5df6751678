//! What responses used and what they cost: token figures, prices, money, and a model of the provider's cache.
//!
//! Protocol folders read a provider's JSON into [`Partial`]s; [`Partial::finish`] gives the normalised
//! [`Usage`]; a [`Catalogue`] finds the [`Price`] of a model; [`cost`] and [`bill`] multiply. [`cache_model`]
//! says what the provider's prompt cache would do with a request.
//!
//! Pure arithmetic on what it is given: no clock, no files, no guesses, no floats in sums. An unknown price
//! is `None`, never zero, and a model is never priced as another one.
//!
//! The embedded prices are derived from `LiteLLM`'s, MIT, Copyright (c) 2023 Berri AI; the notice is in `PRICES-NOTICE`
//! next to this file.

pub mod cache_model;
mod catalogue;
mod charge;
mod cost;
mod counterfactual;
mod decimal;
mod families;
mod fraction;
mod money;
mod partial;
mod price;
mod rate;
mod ratio;
mod tokens;
mod vendor;

pub use catalogue::{CATALOGUE_DATE, Catalogue, Listed, Priced, Stated};
pub use charge::Charge;
pub use cost::{Bill, CostBreakdown, PerMillion, bill, cost, min_cost, unpriced_names};
pub use counterfactual::{Alike, share_read, untouched};
pub use decimal::AmountError;
pub use families::{
    Binding, Habits, binding, drops_old_reasoning, is_claude, is_gemini, reads_instructions_last,
    reads_old_reasoning,
};
pub use money::Money;
pub use partial::{Partial, Prompt, Reasoning};
pub use price::{Above, Price, Rates, Source};
pub use rate::{Factor, Rate};
pub use ratio::{BYTES_PER_TOKEN, BytesPerToken};
pub use tokens::{Extra, Geo, OwnPrompt, Speed, Tier, Tokens, Usage};
pub use vendor::Vendor;
