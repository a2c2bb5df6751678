//! Runs the checks of the fuzz targets on the fixtures and on truncated fixtures. The targets themselves are built
//! separately, with instrumentation.

use std::collections::{BTreeMap, BTreeSet};
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

/// The packages of a lock file: the versions and the dependencies of each.
fn locked(path: &str) -> BTreeMap<String, (String, Vec<String>)> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let packages = text.split("[[package]]").skip(1).map(|package| {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            line.unwrap_or_default().trim_matches('"').to_owned()
        };
        let (_, list) = package.split_once("dependencies = [").unwrap_or_default();
        let list = list.split(']').next().unwrap_or_default().split(['"', ',', '\n', ' ']);
        let dependencies = list.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        (value("name"), (value("version") + &value("checksum"), dependencies))
    });
    packages.collect()
}

/// The targets have their own lock file, and are built with it alone.
#[test]
fn targets_are_built_with_what_the_crate_is_built_with() {
    let (own, targets) = (locked("Cargo.lock"), locked("tests/fuzz/Cargo.lock"));
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let (_, list) = manifest.split_once("[dependencies]\n").unwrap();
    let list = list.split("\n[").next().unwrap().lines().filter_map(|line| line.split_once(" = "));
    let needed: BTreeSet<&str> = list.map(|(name, _)| name).collect();
    assert!(needed.len() > 20, "{needed:?}");
    let known: BTreeSet<&str> = targets["plimsoll"].1.iter().map(String::as_str).collect();
    assert_eq!(known, needed, "run `cargo metadata` in tests/fuzz");
    for (name, (locked, _)) in &targets {
        assert!(own.get(name).is_none_or(|(other, _)| other == locked), "{name}");
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
