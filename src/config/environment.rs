//! What a configuration takes from outside its file: environment variables, and whether the files that it names can be
//! used.
//!
//! It is a trait, so that reading a configuration is a pure function of its inputs.

use std::path::{Path, PathBuf};

use crate::upstream;

/// A source of environment variables.
///
/// Any `Fn(&str) -> Option<String>` is one.
pub trait Environment {
    /// The value of a variable; `None` if it is not set or not UTF-8.
    fn variable(&self, name: &str) -> Option<String>;

    /// The value of a variable that is used only in requests to an upstream.
    fn secret(&self, name: &str) -> Option<String> {
        self.variable(name)
    }

    /// Whether secrets are available. If not, every secret counts as set, and is empty.
    fn tells_secrets(&self) -> bool {
        true
    }

    /// Checks whether a file of certificates can be used.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn check_ca_file(&self, _: &Path) -> Result<(), String> {
        Ok(())
    }
}

impl<F: Fn(&str) -> Option<String>> Environment for F {
    fn variable(&self, name: &str) -> Option<String> {
        self(name)
    }
}

/// The environment of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn check_ca_file(&self, file: &Path) -> Result<(), String> {
        upstream::check_ca_file(file).map_err(|error| error.to_string())
    }
}

/// The environment of this process for commands that send nothing: the gateway's secrets need not be set.
#[derive(Debug, Clone, Copy, Default)]
pub struct WithoutSecrets;

impl Environment for WithoutSecrets {
    fn variable(&self, name: &str) -> Option<String> {
        ProcessEnvironment.variable(name)
    }

    fn secret(&self, _: &str) -> Option<String> {
        Some(String::new())
    }

    fn tells_secrets(&self) -> bool {
        false
    }
}

/// The user's home directory: `HOME`, if it is an absolute path.
pub(super) fn home(environment: &dyn Environment) -> Option<PathBuf> {
    absolute(environment, "HOME")
}

/// The directory for programs' state: `XDG_STATE_HOME`, or else `~/.local/state`.
pub(super) fn state_home(environment: &dyn Environment) -> Option<PathBuf> {
    absolute(environment, "XDG_STATE_HOME").or_else(|| Some(home(environment)?.join(".local/state")))
}

/// The directory that a variable names. By the XDG specification, a relative path is ignored.
fn absolute(environment: &dyn Environment, name: &str) -> Option<PathBuf> {
    environment.variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
}
