//! Which names have a price.

use std::collections::BTreeSet;

use glob::PatternError;

use super::stated::{Models, is_glob};
use super::{Catalogue, Row, find_row, index};
use crate::usage::vendor::Vendor;

/// A row of the embedded list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Whose list it is on.
    pub seller: Vendor,
    /// Its name there.
    pub name: &'static str,
}

impl Catalogue {
    /// Whether `models` may match several names, as globs of [`Self::with_overrides`] do.
    pub fn is_glob(models: &str) -> bool {
        is_glob(models)
    }

    /// The names that have a price by [`Self::quoted`]: those in the list, or in the part of it that is `vendor`'s, and
    /// those in the configuration that are not globs. `models`, a name or a glob, selects the names that it matches.
    ///
    /// # Errors
    /// If `models` is not a valid glob.
    pub fn names(
        &self,
        models: Option<&str>,
        vendor: Option<Vendor>,
    ) -> Result<BTreeSet<String>, PatternError> {
        let models = models.map(Models::new).transpose()?;
        let sold = index().iter().filter(|row| vendor.is_none_or(|vendor| row.vendor == vendor));
        let listed = sold.filter(|row| models.as_ref().is_none_or(|models| row.is_of(models)));
        let stated = self.overrides.iter().filter_map(super::Override::name);
        let stated = stated.filter(|name| models.as_ref().is_none_or(|models| models.matches(name)));
        let names = listed.map(|row| row.name_at(vendor)).chain(stated.map(str::to_owned));
        Ok(names.filter(|name| self.quoted(name, vendor).is_some()).collect())
    }

    /// The names by which resellers list a model whose own name does not tell who sells it.
    pub fn resold(model: &str) -> Vec<String> {
        let sold = |seller| find_row(model, Some(seller)).filter(|row| row.vendor == seller);
        Vendor::RESELLERS.into_iter().filter_map(sold).map(|row| row.name_at(None)).collect()
    }
}

impl Row {
    pub(super) fn listed(&self) -> Listed {
        Listed { seller: self.vendor, name: self.name }
    }

    /// The shortest name that finds this row if `vendor` bills: the name in the list, with the seller's prefix only if
    /// it is needed.
    fn name_at(&self, vendor: Option<Vendor>) -> String {
        let found = find_row(self.name, vendor).filter(|row| row.certainly_bills(self.name, vendor));
        if found.is_some_and(|row| row.listed() == self.listed()) {
            return self.name.to_owned();
        }
        format!("{}/{}", self.vendor.as_str(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::{Rate, Stated};

    #[test]
    fn every_row_is_found_by_its_listed_name() {
        let catalogue = Catalogue::embedded();
        let names = catalogue.names(None, None).unwrap();
        for row in index() {
            let seller = Some(row.vendor);
            assert_eq!(row.name_at(seller), row.name);
            for (name, vendor) in [(row.name_at(None), None), (row.name.to_owned(), seller)] {
                let found = catalogue.quoted(&name, vendor).and_then(|priced| priced.listed);
                assert_eq!(found, Some(row.listed()), "{name} {vendor:?}");
                let is_given_away = Vendor::MAKERS.contains(&row.vendor) && !row.vendor.sells_alone(row.name);
                let is_billed = vendor.is_some() || !is_given_away;
                assert_eq!(catalogue.billed(&name, vendor).is_some(), is_billed, "{name} {vendor:?}");
            }
            assert!(names.contains(&row.name_at(None)), "{}", row.name);
        }
        assert_eq!(names.len(), index().len());
        let sold = index().iter().filter(|row| row.vendor == Vendor::Groq).map(|row| row.name);
        assert!(
            sold.eq(catalogue.names(None, Some(Vendor::Groq)).unwrap()),
            "by the names that it has for them"
        );
    }

    #[test]
    fn models_are_listed_by_name_or_glob() {
        let rate = Some(Rate::from_picodollars(1));
        let both = Stated { input: rate, output: rate, ..Stated::default() };
        let stated = [("own-model", both), ("local/*", both), ("claude-opus-5", both), ("gpt-5.5", both)];
        let stated = stated.map(|(name, stated)| (name.to_owned(), stated)).to_vec();
        let stated = Catalogue::with_overrides(stated).unwrap();
        for (catalogue, models, expected) in [
            (&stated, "own*", &["own-model"][..]),
            (&stated, "OWN-MODEL", &["own-model"]),
            (&stated, "local/*", &[]),
            (&stated, "gpt-5.5", &["gpt-5.5", "gpt-5.5-2026-04-23"]),
            (
                &stated,
                "claude-opus-5",
                &[
                    "claude-opus-5",
                    "claude-opus-5@default",
                    "openrouter/anthropic/claude-opus-5",
                    "vertex/claude-opus-5",
                ],
            ),
            (&Catalogue::embedded(), "own*", &[]),
            (&Catalogue::embedded(), "groq/qwen*", &["groq/qwen/qwen3.8-27b"]),
        ] {
            let found = catalogue.names(Some(models), None).unwrap();
            assert!(found.iter().eq(expected), "{models} {found:?}");
        }
        assert!(stated.names(Some("a["), None).is_err());
    }

    #[test]
    fn resellers_of_a_model_are_listed() {
        for (model, expected) in [
            ("openai/gpt-oss-120b", &["groq/openai/gpt-oss-120b", "openrouter/openai/gpt-oss-120b"][..]),
            ("qwen/qwen3.8-27b", &["groq/qwen/qwen3.8-27b"]),
            ("nobodys-model", &[]),
        ] {
            assert_eq!(Catalogue::resold(model), expected, "{model}");
        }
    }
}
