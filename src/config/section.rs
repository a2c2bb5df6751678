//! Reading a table key by key: a key is known if it is asked for.
//!
//! Each method asks for one key, checks its value, records problems and returns a usable value, so that reading never
//! stops at the first mistake. Keys that were not asked for are reported at the end of a section.
//!
//! Code that runs for key after key is never inlined: that would make hundreds of copies, which stay in memory.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::document::join;
use super::environment::Environment;
use super::reader::{Path, Reader};
use super::value::{Fault, FromValue, Ranged, describe};

/// A table, present or not.
pub(super) struct Section<'r, 't> {
    reader: &'r mut Reader<'t>,
    table: Option<&'t DeTable<'t>>,
    path: Path,
    line: Option<usize>,
    asked: Vec<&'static str>,
}

impl<'r, 't> Section<'r, 't> {
    /// Reads the root table.
    pub(super) fn root<T>(reader: &'r mut Reader<'t>, read: impl FnOnce(&mut Self) -> T) -> T {
        let table = Some(&reader.document.table);
        Self { reader, table, path: Path::default(), line: None, asked: Vec::new() }.finish(read)
    }

    /// The value of a key, or its default.
    pub(super) fn value<T: FromValue>(&mut self, key: &'static str, default: T) -> T {
        self.optional(key).unwrap_or(default)
    }

    /// The value of an optional key.
    #[inline(never)]
    pub(super) fn optional<T: FromValue>(&mut self, key: &'static str) -> Option<T> {
        self.parse(key, T::expected, |value, _| T::from_value(value))
    }

    /// Reports a required key that is missing.
    pub(super) fn require(&mut self, key: &'static str, message: &str) {
        if !self.has(key) {
            self.problem(key, message);
        }
    }

    /// The value of a key, which must be within a range, or its default.
    pub(super) fn within<T: Ranged>(&mut self, key: &'static str, range: RangeInclusive<T>, default: T) -> T {
        self.optional_within(key, range).unwrap_or(default)
    }

    /// The value of an optional key, which must be within a range; a value outside of it is reported.
    #[inline(never)]
    pub(super) fn optional_within<T: Ranged>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<T>,
    ) -> Option<T> {
        let value = self.optional::<T>(key)?;
        if range.contains(&value) {
            return Some(value);
        }
        let (low, high) = (range.start().show(), range.end().show());
        self.problem(key, format!("expected {low} to {high}, got {}", value.show()));
        None
    }

    /// The value of a key that is a count, which must be within a range, or its default.
    pub(super) fn count(&mut self, key: &'static str, range: RangeInclusive<u32>, default: u32) -> u32 {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        self.within(key, range, u64::from(default)) as u32
    }

    /// The items of a list; each invalid item is reported separately.
    #[inline(never)]
    pub(super) fn list<T: FromValue>(&mut self, key: &'static str) -> Option<Vec<T>> {
        self.ask_for_value(key);
        let (at, value) = self.find(key)?;
        let path = self.path.key(key).shown;
        let Some(items) = value.get_ref().as_array() else {
            let message =
                format!("expected an array, each item {}, got {}", T::expected(), describe(value.get_ref()));
            self.reader.report(path, Some(at), message, None);
            return None;
        };
        let mut list = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match T::from_value(item.get_ref()) {
                Ok(item) => list.push(item),
                Err(fault) => {
                    let line = self.reader.line_of(item).unwrap_or(at);
                    let (message, hint) = fault.into_message(&T::expected(), item.get_ref());
                    self.reader.report(format!("{path}[{index}]"), Some(line), message, hint);
                }
            }
        }
        Some(list)
    }

    /// The value of a key, parsed by `parse`, which may look at the environment.
    pub(super) fn parse<T>(
        &mut self,
        key: &'static str,
        expected: impl FnOnce() -> Cow<'static, str>,
        parse: impl FnOnce(&DeValue<'_>, &dyn Environment) -> Result<T, Fault>,
    ) -> Option<T> {
        self.ask_for_value(key);
        let (_, value) = self.find(key)?;
        match parse(value.get_ref(), self.reader.environment) {
            Ok(value) => Some(value),
            Err(fault) => {
                self.refuse(key, fault, &expected(), value.get_ref());
                None
            }
        }
    }

    #[inline(never)]
    fn refuse(&mut self, key: &'static str, fault: Fault, expected: &str, value: &DeValue<'_>) {
        let (message, hint) = fault.into_message(expected, value);
        self.report(key, message, hint);
    }

    /// Reads the table of a key; `read` runs whether it is present or not.
    pub(super) fn section<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Section<'_, 't>) -> T,
    ) -> T {
        self.ask_for(key);
        let path = self.path.key(key);
        let (line, table) = self.table(key);
        Section { reader: self.reader, table, path, line, asked: Vec::new() }.finish(read)
    }

    /// Reads the tables within the table of a key, whose names the user chose, in the order of the file.
    pub(super) fn entries<T>(
        &mut self,
        key: &'static str,
        placeholder: &'static str,
        mut read: impl FnMut(&str, &mut Section<'_, 't>) -> T,
    ) -> Vec<T> {
        self.ask_for(key);
        let path = self.path.key(key);
        let (_, table) = self.table(key);
        let mut found: Vec<_> = table.into_iter().flatten().collect();
        found.sort_by_key(|(name, _)| name.span().start);

        let mut entries = Vec::new();
        for (name, value) in found {
            let path = path.named(name.get_ref(), placeholder);
            let line = Some(self.reader.document.line(name.span().start));
            let DeValue::Table(table) = value.get_ref() else {
                let message = format!("expected a table, got {}", describe(value.get_ref()));
                self.reader.report(path.shown, line, message, None);
                continue;
            };
            let section = Section { reader: self.reader, table: Some(table), path, line, asked: Vec::new() };
            entries.push(section.finish(|section| read(name.get_ref(), section)));
        }
        if self.reader.probing {
            let path = path.named(placeholder, placeholder);
            let section = Section { reader: self.reader, table: None, path, line: None, asked: Vec::new() };
            section.finish(|section| read(placeholder, section));
        }
        entries
    }

    /// Reads a table in which the user chose all keys, in the order of the file.
    pub(super) fn pairs<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&str, &DeValue<'_>, &dyn Environment) -> Result<T, Fault>,
    ) -> Option<Vec<T>> {
        self.ask_for_value(key);
        let path = self.path.key(key).shown;
        let (_, table) = self.table(key);
        let mut found: Vec<_> = table?.iter().collect();
        found.sort_by_key(|(name, _)| name.span().start);

        let mut pairs = Vec::new();
        for (name, value) in found {
            match read(name.get_ref(), value.get_ref(), self.reader.environment) {
                Ok(pair) => pairs.push(pair),
                Err(fault) => {
                    let line = self.reader.document.line(name.span().start);
                    let (message, hint) = fault.into_message("a string", value.get_ref());
                    self.reader.report(join(&path, name.get_ref()), Some(line), message, hint);
                }
            }
        }
        Some(pairs)
    }

    /// Reports a problem with a key that its value alone does not show.
    pub(super) fn problem(&mut self, key: &'static str, message: impl Into<String>) {
        self.report(key, message.into(), None);
    }

    /// Reports such a problem, and how to mend it.
    pub(super) fn problem_with_hint(
        &mut self,
        key: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.report(key, message.into(), Some(hint.into()));
    }

    #[inline(never)]
    fn report(&mut self, key: &'static str, message: String, hint: Option<String>) {
        let line = self.find(key).map_or(self.line, |(line, _)| Some(line));
        let path = self.path.key(key).shown;
        self.reader.report(path, line, message, hint);
    }

    /// Reports a problem with a key of a table within this one that only several tables together show.
    pub(super) fn problem_in(&mut self, table: &'static str, key: &'static str, message: String) {
        let line = self.find_in(table, key).map(|name| self.reader.document.line(name.span().start));
        let path = self.path.key(table).key(key).shown;
        self.reader.report(path, line, message, None);
    }

    /// Whether the file has a key in a table within this one, valid or not.
    pub(super) fn has_in(&self, table: &str, key: &str) -> bool {
        self.find_in(table, key).is_some()
    }

    fn find_in(&self, table: &str, key: &str) -> Option<&'t Spanned<DeString<'t>>> {
        let (_, table) = self.find(table)?;
        table.get_ref().as_table()?.get_key_value(key).map(|(name, _)| name)
    }

    /// Reports a problem with the section as a whole.
    pub(super) fn problem_here(&mut self, message: impl Into<String>) {
        self.reader.report(self.path.shown.clone(), self.line, message.into(), None);
    }

    /// Reports such a problem, and how to mend it.
    pub(super) fn problem_here_with_hint(&mut self, message: impl Into<String>, hint: impl Into<String>) {
        self.reader.report(self.path.shown.clone(), self.line, message.into(), Some(hint.into()));
    }

    /// Whether the file has this key, valid or not.
    pub(super) fn has(&self, key: &'static str) -> bool {
        self.find(key).is_some()
    }

    /// Whether the file has a table at this key that sets anything, or a value that is not a table.
    pub(super) fn has_any(&self, key: &'static str) -> bool {
        fn sets_any(value: &Spanned<DeValue<'_>>) -> bool {
            value.get_ref().as_table().is_none_or(|table| table.values().any(sets_any))
        }
        self.find(key).is_some_and(|(_, value)| sets_any(value))
    }

    /// The table as it is in the file.
    pub(super) const fn as_table(&self) -> Option<&'t DeTable<'t>> {
        self.table
    }

    /// Whether the file has this section.
    pub(super) const fn is_there(&self) -> bool {
        self.table.is_some()
    }

    /// The source of variables and of the home directory.
    pub(super) fn environment(&self) -> &'t dyn Environment {
        self.reader.environment
    }

    /// Records that a key was asked for whose value is not a table of keys: only such keys are listed as known.
    #[inline(never)]
    fn ask_for_value(&mut self, key: &'static str) {
        self.reader.know(self.path.key(key).pattern);
        self.ask_for(key);
    }

    /// Records that a key was asked for.
    fn ask_for(&mut self, key: &'static str) {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
    }

    /// The line of a key and its value.
    #[inline(never)]
    fn find(&self, key: &str) -> Option<(usize, &'t Spanned<DeValue<'t>>)> {
        let (name, value) = self.table?.get_key_value(key)?;
        Some((self.reader.document.line(name.span().start), value))
    }

    /// The line of a key and its table, if the file has one there. A value that is not a table is reported.
    fn table(&mut self, key: &'static str) -> (Option<usize>, Option<&'t DeTable<'t>>) {
        let Some((line, value)) = self.find(key) else { return (None, None) };
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.problem(key, format!("expected a table, got {}", describe(value.get_ref())));
        }
        (Some(line), table)
    }

    /// Reads the table, then reports the keys that were not asked for.
    fn finish<T>(mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let value = read(&mut self);
        self.end();
        value
    }

    #[inline(never)]
    fn end(self) {
        for key in self.table.into_iter().flat_map(DeTable::keys) {
            if !self.asked.iter().any(|asked| asked == key.get_ref()) {
                self.reader.stray(self.path.key(key.get_ref()), key, &self.asked);
            }
        }
    }
}
