//! The `plimsoll` binary.

/// Most of what one thread allocates is freed by another, the one that keeps the books. Neither glibc's nor musl's
/// allocator is fast at that.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    plimsoll::cli::main()
}
