//! What the fuzz targets check, on the fixtures and on fixtures cut short: the targets themselves are built apart,
//! with instrumentation.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll::protocol;

#[path = "../fuzz/judges/answers.rs"]
mod answers;
#[path = "../fuzz/judges/index.rs"]
mod index;
#[path = "../fuzz/judges/json.rs"]
mod json;
#[path = "../fuzz/judges/sse.rs"]
mod sse;

/// Every file below a folder.
fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
}

#[test]
fn fixtures_and_fixtures_cut_short() {
    let mut paths = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures"), &mut paths);
    assert!(paths.len() > 20, "the fixtures are there");
    for path in paths {
        let whole = fs::read(&path).unwrap();
        let step = whole.len() / 7 + 1;
        for end in (0..whole.len()).step_by(step).chain([whole.len()]) {
            let text = &whole[..end];
            json::check(text);
            sse::check(text);
            answers::check(text);
            for protocol in protocol::ALL {
                index::check(*protocol, text);
            }
        }
    }
}
