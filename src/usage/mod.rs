//! What responses used and what they cost: token figures and money.
//!
//! Protocol folders read a provider's JSON into [`Partial`]s; [`Partial::finish`] gives the normalised
//! [`Usage`].
//!
//! Pure arithmetic on what it is given: no clock, no files, no floats, no guesses.

mod decimal;
mod money;
mod partial;
mod rate;
mod tokens;

pub use decimal::AmountError;
pub use money::Money;
pub use partial::{Partial, Prompt, Reasoning};
pub use rate::{Factor, Rate};
pub use tokens::{Extra, Geo, Speed, Tier, Tokens, Usage};
