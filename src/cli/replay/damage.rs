//! The parts of a file that cannot be replayed, which are left out and reported. The rest is replayed.

use std::fmt;

use crate::cli::figures;

/// The maximum number of runs of lines that are listed.
const MAX_LISTED: usize = 10;

/// The parts of a file that are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Damage {
    /// The numbers of damaged lines, from 1.
    pub(super) lines: Vec<usize>,
    /// The number of lines that a transcript's requests refer to and that are missing.
    pub(super) missing: usize,
    /// The number of requests that are not replayed because lines are missing.
    pub(super) unplayed: usize,
}

impl Damage {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = Vec::new();
        if let [only] = &*self.lines {
            said.push(format!("line {only}, which is damaged"));
        } else if !self.lines.is_empty() {
            let runs = figures::runs(&self.lines, " to ");
            let named = runs[..runs.len().min(MAX_LISTED)].join(", ");
            let more = if runs.len() > MAX_LISTED { ", …" } else { "" };
            said.push(format!("lines {named}{more}, which are damaged"));
        }
        if self.missing > 0 {
            let lines = figures::counted(self.missing as u64, "line", "lines");
            said.push(format!("{lines} missing at the end"));
        }
        if self.unplayed > 0 {
            let requests = figures::counted(self.unplayed as u64, "request", "requests");
            said.push(format!("{requests} that cannot be made without"));
        }
        f.write_str(&said.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_lines_are_listed_as_ranges() {
        for (lines, missing, unplayed, expected) in [
            (&[][..], 0, 0, ""),
            (&[3], 0, 0, "line 3, which is damaged"),
            (&[3, 5, 6, 7, 9], 0, 0, "lines 3, 5 to 7, 9, which are damaged"),
            (
                &[1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21],
                0,
                0,
                "lines 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, …, which are damaged",
            ),
            (&[], 1, 0, "1 line missing at the end"),
            (
                &[3],
                2,
                1,
                "line 3, which is damaged; 2 lines missing at the end; 1 request that cannot be made without",
            ),
        ] {
            let damage = Damage { lines: lines.to_vec(), missing, unplayed };
            assert_eq!(damage.to_string(), expected);
            assert_eq!(damage.is_none(), expected.is_empty());
        }
    }
}
