//! The books: one record per request, with what it used, what it cost and what was done to it.
//!
//! Figures are the provider's own. What is not known is null, never zero, but for counts that begin at 1: their 0 says that
//! nothing was counted. What is an estimate is called one.
//! Recording happens after the answer has gone and cannot hold a request up.

mod cost;
pub mod documents;
pub mod fill;
pub mod history;
mod line;
pub mod record;
pub mod report;
pub mod totals;
pub mod when;
pub mod words;

pub use cost::{Cost, Counterfactual};
pub use documents::{ConversationsDocument, HistoryDocument, Listed, ListedWithZone, ReportDocument};
pub use fill::{Burn, Fill, Limit, Region};
pub use history::{Entry, History, NoHistory, NoId, WrittenFile, ancestors};
pub use record::{
    Budget, Bytes, Calls, DoomLoop, Edits, Event, Made, Own, Record, Shares, Splice, Timing, Window, Zone,
};
pub use report::{By, Conversation, Conversations, Report};
pub use totals::{Caching, Costs, Saved, Totals};
