//! The `plimsoll` binary.

/// The system's allocator serves glibc well; musl's does not.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    plimsoll::cli::main()
}
