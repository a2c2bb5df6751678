//! Encodes edited bodies in the coding of the original, which the server is known to accept.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::decode::Coding;

/// The level that clients use. A request is sent and read once, so a higher level is not worth the time.
const ZSTD_LEVEL: i32 = 3;

/// Encodes a whole body. `None` for a coding that no agent sends: such a body leaves unencoded.
pub(super) fn whole(coding: Coding, plain: &[u8]) -> Option<Bytes> {
    let encoded = match coding {
        Coding::Gzip => gzip(plain),
        Coding::Zstd => zstd::bulk::compress(plain, ZSTD_LEVEL),
        Coding::Identity | Coding::Deflate | Coding::Brotli => return None,
    };
    encoded.ok().map(Bytes::from)
}

fn gzip(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::decode;

    #[test]
    fn gzip_and_zstd_bodies_round_trip() {
        let text = r#"{"role":"tool","content":"all 214 tests pass"},"#.repeat(400);
        for plain in ["", "[]", &text] {
            for coding in [Coding::Gzip, Coding::Zstd] {
                let encoded = whole(coding, plain.as_bytes()).unwrap();
                assert!(encoded.len() < plain.len() / 10 + 40, "{coding:?}: {}", encoded.len());
                assert_eq!(decode::whole(coding, &encoded, plain.len()).unwrap(), plain, "{coding:?}");
            }
            for coding in [Coding::Identity, Coding::Deflate, Coding::Brotli] {
                assert_eq!(whole(coding, plain.as_bytes()), None, "{coding:?}");
            }
        }
    }
}
