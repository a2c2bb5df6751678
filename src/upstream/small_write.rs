//! Writes a few small pieces as one.

use std::io::IoSlice;
use std::mem::MaybeUninit;

use tokio::io::ReadBuf;

/// Up to this many bytes, copying pieces takes less time than the system takes to gather them.
const SMALL: usize = 4096;

/// The result of `write` for the joined `pieces`; `None`, without a call, if they are too large to be joined.
pub(crate) fn written_as_one<T>(pieces: &[IoSlice<'_>], write: impl FnOnce(&[u8]) -> T) -> Option<T> {
    if let [piece] = pieces {
        return Some(write(piece));
    }
    if pieces.iter().map(|piece| piece.len()).sum::<usize>() > SMALL {
        return None;
    }
    let mut space = [MaybeUninit::uninit(); SMALL];
    let mut joined = ReadBuf::uninit(&mut space);
    for piece in pieces {
        joined.put_slice(piece);
    }
    Some(write(joined.filled()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_unless_they_are_large() {
        let large = vec![b'x'; SMALL];
        for (pieces, expected) in [
            (&[][..], Some(&b""[..])),
            (&[&b"a"[..]], Some(b"a")),
            (&[b"a", b"", b"bc"], Some(b"abc")),
            (&[&large], Some(&large)),
            (&[&large, b""], Some(&large)),
            (&[&large, b"a"], None),
            (&[&large, &large], None),
        ] {
            let pieces: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let written = written_as_one(&pieces, <[u8]>::to_vec);
            assert_eq!(written.as_deref(), expected, "{}", pieces.len());
        }
    }
}
