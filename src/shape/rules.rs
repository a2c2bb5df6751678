//! The names of the shapers, and sets of them.

use std::fmt;

/// A shaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rule {
    /// Removes terminal escapes and overwritten lines.
    Escapes,
    /// Folds repeated lines into one and a count.
    Fold,
    /// Removes insignificant white space from a JSON document.
    Minify,
    /// Replaces base64 by a note.
    Base64,
    /// Cuts the text.
    Truncate,
    /// Replaces the text by a pointer to an equal one.
    Repeat,
}

impl Rule {
    /// All shapers, in the order in which decisions and the ledger list them. They are applied in a different order.
    pub const ALL: [Self; 6] =
        [Self::Escapes, Self::Fold, Self::Minify, Self::Base64, Self::Truncate, Self::Repeat];

    /// The name used in the ledger and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Escapes => "escapes",
            Self::Fold => "fold",
            Self::Minify => "minify",
            Self::Base64 => "base64",
            Self::Truncate => "truncate",
            Self::Repeat => "repeat",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of shapers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rules(u8);

impl Rules {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Adds a shaper.
    pub const fn insert(&mut self, rule: Rule) {
        self.0 |= rule.bit();
    }

    /// Adds all shapers of another set.
    pub const fn extend(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether the shaper is in the set.
    pub const fn contains(self, rule: Rule) -> bool {
        self.0 & rule.bit() != 0
    }

    /// Whether a shaper in it says where the full text is, which must be saved first.
    pub const fn cite_full_text(self) -> bool {
        self.contains(Rule::Base64) || self.contains(Rule::Truncate) || self.contains(Rule::Repeat)
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set that [`Display`](fmt::Display) writes like this; `None` if there is none, or if it is empty.
    pub fn parse(names: &str) -> Option<Self> {
        let mut rules = Self::NONE;
        for name in names.split('+') {
            rules.insert(Rule::ALL.into_iter().find(|rule| rule.as_str() == name)?);
        }
        names.split('+').eq(rules.iter().map(Rule::as_str)).then_some(rules)
    }

    /// The shapers in the set, in the order of [`Rule::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Rule> {
        Rule::ALL.into_iter().filter(move |&rule| self.contains(rule))
    }
}

impl From<Rule> for Rules {
    fn from(rule: Rule) -> Self {
        Self(rule.bit())
    }
}

/// The names of the shapers, joined by `+`.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, rule) in self.iter().enumerate() {
            f.write_str(if at > 0 { "+" } else { "" })?;
            f.write_str(rule.as_str())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Rule::as_str)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_lists_its_rules_in_the_order_of_application() {
        let mut rules = Rules::NONE;
        assert!(rules.is_empty());
        for rule in [Rule::Truncate, Rule::Escapes, Rule::Truncate] {
            rules.insert(rule);
        }
        assert_eq!(rules.iter().map(Rule::as_str).collect::<Vec<_>>(), ["escapes", "truncate"]);
        assert_eq!(format!("{rules:?}"), r#"{"escapes", "truncate"}"#);
        assert_eq!(rules.to_string(), "escapes+truncate");
        assert_eq!(Rules::parse("escapes+truncate"), Some(rules));
        assert!(!rules.contains(Rule::Repeat) && Rules::from(Rule::Repeat).contains(Rule::Repeat));
    }
}
