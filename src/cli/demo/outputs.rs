//! The output of the demonstration's tools. All of it is generated here, and always the same.

use std::fmt::Write as _;

/// How the tests end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// With a failure; everything is built first.
    Red,
    /// Without a failure; only what changed is built.
    Green,
}

/// Pseudo-random numbers.
struct Noise(u64);

impl Noise {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below.max(1)
    }
}

const GREEN: &str = "\u{1b}[1m\u{1b}[32m";
const RED: &str = "\u{1b}[1m\u{1b}[31m";
const CYAN: &str = "\u{1b}[1m\u{1b}[36m";
const PLAIN: &str = "\u{1b}[0m";

/// Writing to a string cannot fail.
macro_rules! put {
    ($out:expr, $($what:tt)*) => {
        let _ = write!($out, $($what)*);
    };
}

pub(super) fn numbered(text: &str) -> String {
    text.lines().zip(1..).fold(String::new(), |mut out, (line, number)| {
        put!(out, "{number:>6}\t{line}\n");
        out
    })
}

pub(super) fn listing() -> String {
    let mut out = String::from(
        "src:\nbin\nconfig.rs\nerror.rs\nhttp\nimport\nlib.rs\nmain.rs\nstation.rs\n\nsrc/bin:\nchart.rs\n\n\
         src/http:\nmod.rs\nroutes.rs\ntides.rs\n\nsrc/import:\nmod.rs\nparser.rs\nschedule.rs\nwindow.rs\n\n\
         tests:\nhttp.rs\nimport.rs\nschedule.rs\n\nfixtures:\n",
    );
    for station in 0..160 {
        put!(out, "station_{:07}.json\n", 9_410_000 + station * 37);
    }
    out
}

pub(super) fn test_log(run: Run) -> String {
    let mut out = String::new();
    build(&mut out, run);
    put!(
        out,
        "{GREEN}     Running{PLAIN} unittests src/lib.rs (target/debug/deps/tidewatch-5f0c1d2e9ab34c71)\n\nrunning 212 tests\n"
    );
    for test in 0..211 {
        let module =
            ["config", "http::routes", "http::tides", "import::parser", "import::schedule", "station"];
        put!(out, "test {}::tests::case_{test:03} ... {GREEN}ok{PLAIN}\n", module[test % module.len()]);
    }
    let (verdict, repeated) = match run {
        Run::Red => (format!("{RED}FAILED{PLAIN}"), 2_200),
        Run::Green => (format!("{GREEN}ok{PLAIN}"), 1_800),
    };
    put!(out, "test import::tests::each_prediction_is_imported_once ... {verdict}\n\n");
    out.push_str("---- import::tests::each_prediction_is_imported_once output ----\n");
    for _ in 0..repeated {
        out.push_str("WARN import: station 9414290 has no datum, using MLLW\n");
    }
    if run == Run::Red {
        out.push_str(PANIC);
    }
    let (verdict, passed, failed) = if run == Run::Red { ("FAILED", 211, 1) } else { ("ok", 212, 0) };
    put!(
        out,
        "\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out; finished in 3.18s\n"
    );
    out
}

/// The output of cargo during a build: a progress bar that is overwritten, and a line per crate.
fn build(out: &mut String, run: Run) {
    let crates = if run == Run::Red { 214 } else { 3 };
    let mut noise = Noise(7);
    for at in 1..=crates {
        let name =
            ["serde", "tokio", "hyper", "axum", "tower", "time", "regex", "rusqlite"][noise.next(8) as usize];
        put!(
            out,
            "{GREEN}   Compiling{PLAIN} {name}-part-{at} v{}.{}.{}\n",
            noise.next(3),
            noise.next(40),
            noise.next(20)
        );
        let filled = at * 26 / crates;
        let bar = format!("{}>{}", "=".repeat(filled), " ".repeat(26 - filled));
        put!(
            out,
            "{CYAN}    Building{PLAIN} [{bar}] {at}/{crates}: {name}-part-{at}, tidewatch(bin), tidewatch(test)\r"
        );
    }
    put!(
        out,
        "\u{1b}[K{GREEN}    Finished{PLAIN} `test` profile [unoptimized + debuginfo] target(s) in 41.07s\n"
    );
}

const PANIC: &str = "
thread 'import::tests::each_prediction_is_imported_once' panicked at src/import/mod.rs:188:9:
assertion `left == right` failed: predictions of 2026-11-02 at station 9414290
  left: 241
 right: 240
stack backtrace:
   0: rust_begin_unwind
   1: core::panicking::panic_fmt
   2: core::panicking::assert_failed_inner
   3: core::panicking::assert_failed
   4: tidewatch::import::tests::each_prediction_is_imported_once
             at ./src/import/mod.rs:188:9
   5: core::ops::function::FnOnce::call_once
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.

failures:
    import::tests::each_prediction_is_imported_once
";

pub(super) fn parser_source() -> String {
    let mut out = String::from(
        "//! Reads predictions as the service sends them.\n\nuse serde::Deserialize;\n\nuse crate::error::ImportError;\n\
         use crate::station::{Datum, StationId};\n\n#[derive(Debug, Deserialize)]\npub struct Page {\n    \
         pub station: StationId,\n    pub predictions: Vec<Prediction>,\n}\n\n#[derive(Debug, Deserialize)]\n\
         pub struct Prediction {\n    pub at: i64,\n    pub height_mm: i32,\n    pub kind: Kind,\n}\n\n\
         pub fn page(text: &str) -> Result<Page, ImportError> {\n    \
         serde_json::from_str(text).map_err(ImportError::Malformed)\n}\n\n\
         /// Datums of stations that do not state one.\nconst DATUMS: &[(StationId, Datum)] = &[\n",
    );
    let mut noise = Noise(11);
    for _ in 0..150 {
        let datum = ["Mllw", "Msl", "Mhhw", "Navd88"][noise.next(4) as usize];
        put!(out, "    (StationId({}), Datum::{datum}),\n", 9_410_000 + noise.next(9_000));
    }
    out.push_str("];\n");
    out
}

pub(super) fn window_source() -> String {
    let mut out = String::from(
        "//! The span of time that one import covers.\n\nuse crate::station::StationId;\n\n/// Seconds of a day.\n\
         const DAY: i64 = 86_400;\n\n/// A span of time, in seconds since 1970.\n#[derive(Debug, Clone, Copy)]\n\
         pub struct Window {\n    pub start: i64,\n    pub end: i64,\n}\n\nimpl Window {\n    \
         /// The window of a day.\n    pub fn of_day(day: i64) -> Self {\n        \
         Self { start: day * DAY, end: (day + 1) * DAY }\n    }\n\n    /// Whether a prediction belongs to it.\n    \
         pub fn holds(&self, at: i64) -> bool {\n        (self.start..=self.end).contains(&at)\n    }\n}\n\n\
         /// Stations whose day does not begin at midnight, and when it does.\n\
         const SHIFTED: &[(StationId, i64)] = &[\n",
    );
    let mut noise = Noise(13);
    for _ in 0..120 {
        put!(out, "    (StationId({}), {}),\n", 9_440_000 + noise.next(9_000), noise.next(48) * 1800);
    }
    out.push_str("];\n");
    out
}

/// A page of indented JSON.
pub(super) fn predictions() -> String {
    let mut noise = Noise(17);
    let mut out = String::from("{\n  \"station\": 9414290,\n  \"unit\": \"mm\",\n  \"predictions\": [\n");
    for hour in 0..720_u64 {
        let kind = ["rising", "falling", "high", "low"][noise.next(4) as usize];
        let comma = if hour == 719 { "" } else { "," };
        put!(
            out,
            "    {{\n      \"at\": {},\n      \"height_mm\": {},\n      \"kind\": \"{kind}\",\n      \"quality\": {{\n        \
             \"model\": \"harmonic\",\n        \"sigma\": 0.{:03}\n      }}\n    }}{comma}\n",
            1_793_491_200 + hour * 3600,
            noise.next(2_400),
            noise.next(1_000)
        );
    }
    out.push_str("  ]\n}\n");
    out
}

pub(super) fn matches() -> String {
    let mut out = String::from(
        "src/import/mod.rs:41:    let window_end = window.end;\n\
         src/import/mod.rs:57:    schedule.next_after(window_end)\n\
         src/import/schedule.rs:23:    pub fn next_after(&self, window_end: i64) -> i64 {\n",
    );
    let mut noise = Noise(19);
    for line in 0..900 {
        put!(
            out,
            "fixtures/station_{:07}.json:{line}:    {{\"run\": {}, \"window_start\": {}, \"window_end\": {}, \"rows\": {}}},\n",
            9_410_000 + line / 8 * 37,
            noise.next(100_000),
            1_790_000_000 + noise.next(9_000_000),
            1_790_000_000 + noise.next(9_000_000),
            noise.next(300)
        );
    }
    out
}

/// An image as base64 within text.
pub(super) fn chart() -> String {
    const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut noise = Noise(23);
    let image: String = (0..38_000).map(|_| char::from(SYMBOLS[noise.next(64) as usize])).collect();
    format!(
        "<figure>\n<figcaption>station 9414290, 2026-11-02: 241 points, 2 at 00:00</figcaption>\n\
         <img alt=\"tide\" src=\"data:image/png;base64,{image}\">\n</figure>\n"
    )
}

pub(super) fn diff() -> &'static str {
    "diff --git a/src/import/window.rs b/src/import/window.rs
index 8c0f2ab..e41d9b7 100644
--- a/src/import/window.rs
+++ b/src/import/window.rs
@@ -20,7 +20,7 @@ impl Window {

     /// Whether a prediction belongs to it.
     pub fn holds(&self, at: i64) -> bool {
-        (self.start..=self.end).contains(&at)
+        (self.start..self.end).contains(&at)
     }
 }
"
}

pub(super) fn lints() -> String {
    format!(
        "{CYAN}    Checking{PLAIN} tidewatch v0.9.2 (/home/you/tidewatch)\n\
         {GREEN}    Finished{PLAIN} `dev` profile [unoptimized + debuginfo] target(s) in 6.20s\n"
    )
}
