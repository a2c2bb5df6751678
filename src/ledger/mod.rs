//! The books: one record per request, with what it used, what it cost and how it was changed.
//!
//! Figures are the provider's own. An unknown figure is null, never zero, except for counts that begin at 1, where 0
//! means that nothing was counted. Estimates are named as such.
//! Records are written after the answer has been passed on, so they cannot delay a request.

mod cost;
pub mod documents;
pub mod figures;
pub mod fill;
pub mod history;
mod line;
pub mod record;
pub mod report;
pub mod told;
pub mod totals;
pub mod when;
pub mod words;

pub use cost::{Cost, Counterfactual};
pub use documents::{ConversationsDocument, HistoryDocument, Listed, ListedWithZone, ReportDocument};
pub use fill::{Burn, Fill, Limit, Region};
pub use history::{Entry, History, NoHistory, NoId, WrittenFile, ancestors};
pub use record::{
    BodySizes, Budget, Calls, DoomLoop, Edits, Event, Made, OwnCall, Record, Shares, Splice, Timing, Window,
    Zone,
};
pub use report::{By, Conversation, Conversations, Report};
pub use totals::{Caching, Costs, Saved, Totals};
