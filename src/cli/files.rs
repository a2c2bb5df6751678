//! Configuration files: reading, checking and writing them.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{CONFIG_VARIABLE, Failure, Source, say, say_bytes, serve};
use crate::config::{self, Config, Environment, Problems, ProcessEnvironment, WithoutSecrets};

/// The usual name of a configuration file. The file is read only if it is named: the settings must not depend on the
/// directory that a command is run in.
pub(super) const USUAL: &str = "gateway.toml";

/// The configuration of a command that sends requests.
pub(super) fn load(source: &Source) -> Result<Config, Failure> {
    load_from(source, &ProcessEnvironment)
}

/// The configuration of a command that only reads what was recorded, for which the API keys need not be set.
pub(super) fn load_to_read(source: &Source) -> Result<Config, Failure> {
    load_from(source, &WithoutSecrets)
}

fn load_from(source: &Source, environment: &dyn Environment) -> Result<Config, Failure> {
    match &source.config {
        Some(file) => read(file, |text| Config::from_toml(text, environment)),
        None => Config::from_toml("", environment)
            .map_err(|problems| Failure::Config(problems.named("no configuration file"))),
    }
}

fn read(file: &Path, parse: impl FnOnce(&str) -> Result<Config, Problems>) -> Result<Config, Failure> {
    let read = fs::read(file).map_err(|error| {
        let named = env::var_os(CONFIG_VARIABLE).is_some_and(|named| named == file);
        let by = if named { format!(" (`{CONFIG_VARIABLE}` names it)") } else { String::new() };
        let file = file.display().to_string();
        let hint = match error.kind() {
            io::ErrorKind::NotFound if file == "-" => "\n  hint: standard input is `/dev/stdin`".to_owned(),
            io::ErrorKind::NotFound => {
                format!("\n  hint: `plimsoll init {file}` writes one that explains every key")
            }
            _ => String::new(),
        };
        Failure::Usage(format!("{file}: {error}{by}{hint}"))
    })?;
    let text = std::str::from_utf8(&read).map_err(|error| Problems::not_utf8(&read, error));
    text.and_then(parse).map_err(|problems| Failure::Config(problems.named(file.display().to_string())))
}

/// Prints the mistakes of a file, or that it has none, and warnings about effects that are not mistakes of the file.
pub(super) fn check(file: Option<PathBuf>) -> Result<(), Failure> {
    let named = || env::var_os(CONFIG_VARIABLE).filter(|named| !named.is_empty());
    let file = &file.unwrap_or_else(|| named().map_or_else(|| USUAL.into(), PathBuf::from));
    let config = read(file, |text| Config::checked(text, &ProcessEnvironment))?;
    say(&format!("{}: no problems", file.display()));
    for unusable in config.unusable_proxies() {
        say(&format!("note: {unusable}"));
    }
    for (_, said) in serve::repeated_paths(&config) {
        say(&format!("note: {said}"));
    }
    for said in config.doubts() {
        say(&format!("note: {said}"));
    }
    Ok(())
}

/// Writes a file to begin with, unless the file exists. `-` is standard output.
pub(super) fn init(file: &Path) -> Result<(), Failure> {
    let text = config::template();
    if file == Path::new("-") {
        say_bytes(text.as_bytes());
        return Ok(());
    }
    let created = fs::OpenOptions::new().write(true).create_new(true).open(file);
    let written = created.and_then(|mut out| {
        io::Write::write_all(&mut out, text.as_bytes()).inspect_err(|_| {
            // Half a file would be taken for the user's own. What cannot be removed is reported by its next use.
            let _ = fs::remove_file(file);
        })
    });
    match written {
        Ok(()) => {
            let file = file.display();
            say(&format!(
                "{file} written: it explains every key; remove the `#` from those that should differ"
            ));
            say(&format!("to use it, run `plimsoll serve -c {file}`, or set `PLIMSOLL_CONFIG` to its path"));
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Failure::Message(format!("{} exists; it was left as it is", file.display())))
        }
        Err(error) => Err(Failure::about(file, error)),
    }
}
