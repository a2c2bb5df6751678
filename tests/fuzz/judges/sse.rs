//! Event streams: where a stream is split makes no difference.

use plimsoll::sse::Framer;

fn events(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut framer = Framer::default();
    let mut out = Vec::new();
    for chunk in chunks {
        framer.push(chunk, &mut |data| out.push(data.to_vec()));
    }
    framer.finish(&mut |data| out.push(data.to_vec()));
    out
}

/// A panic is a finding.
pub(super) fn check(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let size = usize::from(*first % 16) + 1;
    let chunks: Vec<&[u8]> = rest.chunks(size).collect();
    assert_eq!(events(&chunks), events(&[rest]));
}
