//! Histograms. Their size is bounded: the buckets are fixed, and values are not kept apart by conversation or client.

use std::fmt::Write as _;

/// Counts of values by the upper bound of their bucket.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for the values beyond the last bound.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// An empty histogram with these upper bounds.
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Counts a value.
    pub(super) fn add(&mut self, value: f64) {
        if value.is_finite() {
            self.counts[self.bounds.partition_point(|bound| *bound < value)] += 1;
            self.sum += value;
        }
    }

    /// Writes the histogram in Prometheus' text format, in which every bucket includes all lower ones. `labels` go
    /// before the label of the bound.
    pub(super) fn write(&self, name: &str, labels: &str, page: &mut String) {
        let mut count = 0;
        let bounds = self.bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        let comma = if labels.is_empty() { "" } else { "," };
        for (bound, more) in bounds.zip(&self.counts) {
            count += more;
            let _ = writeln!(page, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
        }
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = write!(page, "{name}_sum{braced} {}\n{name}_count{braced} {count}\n", self.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_up_to_each_bound() {
        let mut histogram = Histogram::new(&[0.5, 10.0]);
        for value in [0.5, 0.25, 10.0, 11.0, -3.0, f64::NAN, f64::INFINITY] {
            histogram.add(value);
        }
        for (labels, expected) in [
            (
                "",
                "h_bucket{le=\"0.5\"} 3\nh_bucket{le=\"10\"} 4\nh_bucket{le=\"+Inf\"} 5\nh_sum 18.75\nh_count 5\n",
            ),
            (
                "kind=\"x\"",
                "h_bucket{kind=\"x\",le=\"0.5\"} 3\nh_bucket{kind=\"x\",le=\"10\"} 4\n\
                 h_bucket{kind=\"x\",le=\"+Inf\"} 5\nh_sum{kind=\"x\"} 18.75\nh_count{kind=\"x\"} 5\n",
            ),
        ] {
            let mut page = String::new();
            histogram.write("h", labels, &mut page);
            assert_eq!(page, expected);
        }
    }
}
