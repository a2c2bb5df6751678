//! Has the linker pack the program's relocations (`DT_RELR`) where the C library of this machine reads them so.
//!
//! Unpacked they are 24 bytes each, three hundredths of the program, and the loader reads them all at every start.
//! glibc reads packed ones from 2.36 on. Linked so, the program names that as a need, so that an older one refuses
//! it at the start and does not run it half relocated.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let of = |key: &str| env::var(key).unwrap_or_default();
    let is_for_here = of("HOST") == of("TARGET");
    let is_glibc = of("CARGO_CFG_TARGET_OS") == "linux" && of("CARGO_CFG_TARGET_ENV") == "gnu";
    if is_for_here && is_glibc && glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's glibc, if it tells one: `glibc 2.36`.
fn glibc() -> Option<(u32, u32)> {
    let told = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let told = String::from_utf8(told.stdout).ok()?;
    let (major, minor) = told.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
