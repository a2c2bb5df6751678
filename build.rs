//! The price list and the vocabulary as they stand in the program, and how that is linked where it is for this machine
//! and its C library is glibc: with what is run early together, and with its relocations packed.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// What models cost: a tenth as long when it is packed, and unpacked when the first is asked for.
const PRICES: &str = "src/usage/prices.json";
/// The functions that a start and the first requests run; `benches/layout.rs` writes it.
const LAYOUT: &str = "benches/layout.txt";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={LAYOUT}");
    println!("cargo::rerun-if-changed={PRICES}");
    pack(&fs::read(PRICES)?, "prices.deflate")?;
    pack(&vocabulary()?, "tokens.deflate")?;
    let of = |key: &str| env::var(key).unwrap_or_default();
    let is_for_here = of("HOST") == of("TARGET");
    let is_glibc = of("CARGO_CFG_TARGET_OS") == "linux" && of("CARGO_CFG_TARGET_ENV") == "gnu";
    if !is_for_here || !is_glibc {
        return Ok(());
    }
    // Unpacked they are 24 bytes each, three hundredths of the program, and the loader reads them all at every start.
    // glibc reads packed ones from 2.36 on. Linked so, the program names that as a need, so that an older one refuses
    // it at the start and does not run it half relocated.
    if glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    // Not every linker that a user may have chosen reads scripts.
    let is_chosen = env::var_os("RUSTC_LINKER").is_some()
        || ["linker=", "link-arg"].iter().any(|word| of("CARGO_ENCODED_RUSTFLAGS").contains(word));
    if of("PROFILE") == "release" && !is_chosen && Path::new(LAYOUT).exists() {
        let script = Path::new(&of("OUT_DIR")).join("layout.ld");
        fs::write(&script, layout(&fs::read_to_string(LAYOUT)?)?)?;
        println!("cargo::rustc-link-arg-bins=-T{}", script.display());
    }
    Ok(())
}

/// Writes bytes packed, to be taken into the program.
fn pack(bytes: &[u8], to: &str) -> io::Result<()> {
    let packed = File::create(Path::new(&env::var("OUT_DIR").unwrap_or_default()).join(to))?;
    let mut packed = DeflateEncoder::new(packed, Compression::best());
    packed.write_all(bytes)?;
    packed.finish().map(drop)
}

/// The tokens that texts are counted in, in the order of their ranks: the lengths of all, a zero, the bytes of all. As
/// the tokenizer has them they would be a fourth of the program.
fn vocabulary() -> Result<Vec<u8>, Box<dyn Error>> {
    let tokenizer = tiktoken_rs::o200k_base()?;
    let tokens: Vec<_> = (0..).map_while(|rank| tokenizer.decode_bytes(&[rank]).ok()).collect();
    let lengths: Result<Vec<_>, _> = tokens.iter().map(|token| u8::try_from(token.len())).collect();
    Ok([&lengths?[..], &[0], &tokens.concat()].concat())
}

/// A linker script that puts some functions before all others. The system maps a file's pages with their neighbours:
/// strewn over the program, the third of it that every process runs holds nearly all of it in memory.
fn layout(names: &str) -> Result<String, std::fmt::Error> {
    let mut script = "SECTIONS\n{\n  .text.early :\n  {\n".to_owned();
    for name in names.lines() {
        writeln!(script, "    *(.text.{name} .text.unlikely.{name})")?;
    }
    script.push_str("  }\n}\nINSERT BEFORE .text;\n");
    Ok(script)
}

/// The version of this machine's glibc, if it tells one: `glibc 2.36`.
fn glibc() -> Option<(u32, u32)> {
    let told = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let told = String::from_utf8(told.stdout).ok()?;
    let (major, minor) = told.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
