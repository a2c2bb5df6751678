//! The `plimsoll` binary.

/// What one thread allocates is mostly freed by another: the one that keeps the books. Neither glibc's allocator
/// nor musl's is quick at that.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    plimsoll::cli::main()
}
