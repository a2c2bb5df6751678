//! The `plimsoll` binary.

/// Keeps large buffers at hand instead of giving them back to the system after each request.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    plimsoll::cli::main()
}
