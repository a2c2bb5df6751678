//! Answers: no input makes reading them fail, and where one is split makes no difference.

use plimsoll::protocol::{self, Answer, Framing, Protocol};

/// The size of a piece in bytes; the last one may be shorter.
const PIECE: usize = 7;

fn read<'b>(protocol: &dyn Protocol, framing: Framing, pieces: impl Iterator<Item = &'b [u8]>) -> Answer {
    let mut reader = protocol.answer(framing);
    pieces.for_each(|piece| reader.push(piece));
    reader.finish()
}

/// A panic is a finding.
pub(super) fn check(bytes: &[u8]) {
    for protocol in protocol::ALL {
        for framing in [Framing::Events, Framing::Document] {
            let whole = read(*protocol, framing, [bytes].into_iter());
            assert_eq!(
                read(*protocol, framing, bytes.chunks(PIECE)),
                whole,
                "{} {framing:?}",
                protocol.name()
            );
        }
    }
    for status in [200, 400, 500] {
        protocol::refused(status, bytes);
    }
    protocol::has_opened(bytes);
}
