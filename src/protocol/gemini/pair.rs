//! Pairs calls with results where ids are missing.
//!
//! The provider pairs by name and order within one exchange: the calls of the model, and the results right
//! behind them. A result without an id takes that of the first open call of its name. A call without one has
//! an id that was made up from what it says; only those that say the same in one exchange are numbered.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::conversation::{Message, Part, PartKind, Role};

pub(super) fn pair(messages: &mut [Message]) {
    let mut exchange = Exchange::default();
    let mut speaker = Role::User;
    for message in messages {
        if message.index.role == Role::Assistant && speaker != Role::Assistant {
            exchange = Exchange::default();
        }
        speaker = message.index.role;
        let parts = message.index.parts.iter().enumerate();
        let ids: Vec<(usize, Box<str>)> =
            parts.filter_map(|(at, part)| Some((at, exchange.new_id(part)?))).collect();
        if !ids.is_empty() {
            let index = Arc::make_mut(&mut message.index);
            for (at, id) in ids {
                index.parts[at].call_id = Some(id);
            }
        }
    }
}

#[derive(Default)]
struct Exchange {
    /// How often an id was given to a call.
    given: HashMap<Box<str>, u32>,
    /// The calls of each tool that may have no result yet, in order.
    open: HashMap<Option<Box<str>>, VecDeque<Box<str>>>,
    /// Those that have one.
    answered: HashSet<Box<str>>,
}

impl Exchange {
    /// The id that a part should have, if it has another or none.
    fn new_id(&mut self, part: &Part) -> Option<Box<str>> {
        match (part.kind, &part.call_id) {
            (PartKind::ToolCall, Some(own)) => {
                let times = self.given.entry(own.clone()).or_default();
                *times += 1;
                let new: Option<Box<str>> = (*times > 1).then(|| format!("{own}/{times}").into());
                let id = new.as_ref().unwrap_or(own).clone();
                self.open.entry(part.tool.clone()).or_default().push_back(id);
                new
            }
            (PartKind::ToolResult, Some(id)) => {
                self.answered.insert(id.clone());
                None
            }
            (PartKind::ToolResult, None) => {
                let open = self.open.get_mut(&part.tool)?;
                std::iter::from_fn(|| open.pop_front()).find(|id| !self.answered.contains(id))
            }
            _ => None,
        }
    }
}
