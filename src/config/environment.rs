//! The few things that a configuration takes from outside its file: environment variables, and whether files that it
//! names can be used.
//!
//! Behind a trait, so that reading a configuration is a pure function of what it is given.

use std::path::{Path, PathBuf};

use crate::upstream;

/// Where environment variables come from.
///
/// Any `Fn(&str) -> Option<String>` is one.
pub trait Environment {
    /// The value of a variable; `None` when it is not set or not UTF-8.
    fn variable(&self, name: &str) -> Option<String>;

    /// The value of a variable that is only ever sent to an upstream.
    fn secret(&self, name: &str) -> Option<String> {
        self.variable(name)
    }

    /// Whether secrets are told. Where they are not, any of them is there, and empty.
    fn tells_secrets(&self) -> bool {
        true
    }

    /// Whether a file of certificates can be used.
    ///
    /// # Errors
    /// Why not.
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

/// The environment of this process, for one who sends nothing: the gateway's secrets need not be in it.
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

/// The user's home directory: `HOME`, when it is an absolute path.
pub(super) fn home(environment: &dyn Environment) -> Option<PathBuf> {
    absolute(environment, "HOME")
}

/// Where programs keep their state: `XDG_STATE_HOME`, else `~/.local/state`.
pub(super) fn state_home(environment: &dyn Environment) -> Option<PathBuf> {
    absolute(environment, "XDG_STATE_HOME").or_else(|| Some(home(environment)?.join(".local/state")))
}

/// A directory variable. The XDG rules say that a relative path in one is to be ignored.
fn absolute(environment: &dyn Environment, name: &str) -> Option<PathBuf> {
    environment.variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
}
