//! Wall-clock times of the gateway's core: `cargo bench --bench rewrite`; a single pass with `-- --test`.

mod support;

use std::hint::black_box;

use divan::Bencher;
use divan::counter::BytesCount;
use plimsoll::json::scan;
use plimsoll::sse::Framer;

use support::session::{Dialect, Session};
use support::{Case, Operation, SEED};

/// Bytes of a request.
const SIZES: [usize; 4] = [10_000, 100_000, 1_000_000, 4_000_000];

/// A dialect as a type: divan's columns are types and sizes.
trait Wire {
    const DIALECT: Dialect;
}

struct Anthropic;
struct OpenAiChat;

impl Wire for Anthropic {
    const DIALECT: Dialect = Dialect::Anthropic;
}

impl Wire for OpenAiChat {
    const DIALECT: Dialect = Dialect::OpenAiChat;
}

fn main() {
    divan::main();
}

/// Reads a known session and finds nothing to do.
#[divan::bench(types = [Anthropic, OpenAiChat], args = SIZES)]
fn pass<W: Wire>(bencher: Bencher<'_, '_>, bytes: usize) {
    request::<W>(bencher, Operation::Pass, bytes);
}

/// Shapes results that are all new.
#[divan::bench(types = [Anthropic, OpenAiChat], args = SIZES)]
fn shape<W: Wire>(bencher: Bencher<'_, '_>, bytes: usize) {
    request::<W>(bencher, Operation::Shape, bytes);
}

/// Takes one more step of a known session.
#[divan::bench(types = [Anthropic, OpenAiChat], args = SIZES)]
fn memo_warm<W: Wire>(bencher: Bencher<'_, '_>, bytes: usize) {
    request::<W>(bencher, Operation::MemoWarm, bytes);
}

/// The same with the gateway's own kind of cache.
#[divan::bench(types = [Anthropic, OpenAiChat], args = SIZES)]
fn memo_cache<W: Wire>(bencher: Bencher<'_, '_>, bytes: usize) {
    request::<W>(bencher, Operation::MemoCache, bytes);
}

/// The same step with nothing remembered.
#[divan::bench(types = [Anthropic, OpenAiChat], args = SIZES)]
fn memo_cold<W: Wire>(bencher: Bencher<'_, '_>, bytes: usize) {
    request::<W>(bencher, Operation::MemoCold, bytes);
}

fn request<W: Wire>(bencher: Bencher<'_, '_>, operation: Operation, bytes: usize) {
    let case = Case::new(W::DIALECT, operation, bytes);
    bencher.counter(BytesCount::new(case.len())).bench_local(|| case.run());
}

/// One pass over the bytes of a request.
#[divan::bench(args = SIZES)]
fn scan_listing(bencher: Bencher<'_, '_>, bytes: usize) {
    let body = Session::grown(Dialect::Anthropic, bytes, SEED).body();
    let counter = BytesCount::new(body.len());
    bencher.counter(counter).bench_local(|| scan::listing(black_box(&body), "messages", &mut |_, _| None));
}

/// Frames an answer that comes in chunks of `chunk` bytes.
#[divan::bench(args = [128, 4096, 65_536])]
fn sse_framing(bencher: Bencher<'_, '_>, chunk: usize) {
    let stream = support::events(1_000_000);
    bencher.counter(BytesCount::new(stream.len())).bench_local(|| {
        let (mut framer, mut seen) = (Framer::default(), 0);
        for chunk in stream.as_bytes().chunks(chunk) {
            framer.push(chunk, &mut |event| seen += event.len());
        }
        seen
    });
}
