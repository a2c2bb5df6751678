//! Decodes content encodings: requests to read them whole, answers to observe a copy of them.
//!
//! Memory is bounded whatever size the input claims to expand to, and what is not understood is left alone.

use std::io::{self, BufRead, Read, Write};

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use super::headers::has_transfer_coding;
use crate::sse::{BOM, Beginning};

/// The largest `zstd` window accepted, as a power of two: 8 MiB, which is the most that the content coding allows.
const ZSTD_WINDOW_LOG: u32 = 23;
const BROTLI_BUFFER: usize = 4 * 1024;

/// What `Content-Encoding` says of plain bodies: servers of event streams write "none" so that no proxy between them
/// and the client compresses, and some name the character set.
const NO_CODINGS: &[&str] = &["", "identity", "none", "utf-8", "binary"];

/// How a body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
    /// Deflate in a zlib wrapper, or bare as some senders write it.
    Deflate,
    Brotli,
    Zstd,
}

impl Coding {
    /// The coding that `headers` declare; `None` if it is not known or one of several.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        if has_transfer_coding(headers) {
            return None;
        }
        let mut coding = Self::Identity;
        for value in headers.get_all(CONTENT_ENCODING) {
            for name in value.to_str().ok()?.split(',').map(str::trim) {
                let is_plain = NO_CODINGS.iter().any(|plain| name.eq_ignore_ascii_case(plain));
                match Self::named(name) {
                    _ if is_plain => {}
                    Some(named) if coding == Self::Identity => coding = named,
                    _ => return None,
                }
            }
        }
        Some(coding)
    }

    fn named(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            "br" => Some(Self::Brotli),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Decodes a whole body. `None` if it is damaged, cut short, followed by anything, or longer than `limit`.
pub(super) fn whole(coding: Coding, encoded: &Bytes, limit: usize) -> Option<Bytes> {
    let mut input: &[u8] = encoded;
    match coding {
        Coding::Identity => return (encoded.len() <= limit).then(|| encoded.clone()),
        // JSON that consists of several members is either the same if only the first of them is read, or not JSON.
        Coding::Gzip => read(flate2::bufread::MultiGzDecoder::new(&mut input), limit),
        Coding::Deflate if is_zlib(encoded) => read(flate2::bufread::ZlibDecoder::new(&mut input), limit),
        Coding::Deflate => read(flate2::bufread::DeflateDecoder::new(&mut input), limit),
        Coding::Brotli => read(brotli_decompressor::Decompressor::new(&mut input, BROTLI_BUFFER), limit),
        Coding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(&mut input).ok()?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).ok()?;
            read(decoder, limit)
        }
    }
    .filter(|_| input.fill_buf().is_ok_and(<[u8]>::is_empty))
}

fn read(decoder: impl Read, limit: usize) -> Option<Bytes> {
    let mut decoded = Vec::new();
    decoder.take(limit as u64 + 1).read_to_end(&mut decoded).ok()?;
    (decoded.len() <= limit).then(|| Bytes::from(decoded))
}

/// Whether deflated bytes begin with a zlib header. A bare deflate stream looks like that only if it begins with a
/// stored block whose padding is not zero.
fn is_zlib(encoded: &[u8]) -> bool {
    encoded.first().is_some_and(|first| first & 0x8f == 0x08)
}

/// Decodes a body as it arrives, writing the result to `W`.
pub(super) enum Decoder<W: Write> {
    Identity(W),
    Gzip(Box<flate2::write::MultiGzDecoder<W>>),
    Zlib(Box<flate2::write::ZlibDecoder<W>>),
    BareDeflate(Box<flate2::write::DeflateDecoder<W>>),
    /// `deflate` before its first byte has shown which form it is.
    Deflate(Option<W>),
    Brotli(Box<brotli_decompressor::DecompressorWriter<W>>),
    Zstd(Box<zstd::stream::write::Decoder<'static, W>>),
    /// A coding that is not known, before the beginning has shown whether the body is plain nevertheless.
    Unknown(Beginning, Option<W>),
    /// Not understood: writes nothing.
    Blind(W),
}

impl<W: Write> Decoder<W> {
    /// A decoder for `coding`; `None` means an unknown one.
    pub(super) fn new(coding: Option<Coding>, sink: W) -> Self {
        match coding {
            Some(Coding::Identity) => Self::Identity(sink),
            Some(Coding::Gzip) => Self::Gzip(Box::new(flate2::write::MultiGzDecoder::new(sink))),
            Some(Coding::Deflate) => Self::Deflate(Some(sink)),
            Some(Coding::Brotli) => {
                Self::Brotli(Box::new(brotli_decompressor::DecompressorWriter::new(sink, BROTLI_BUFFER)))
            }
            Some(Coding::Zstd) => match zstd_context() {
                Ok(context) => {
                    Self::Zstd(Box::new(zstd::stream::write::Decoder::with_decoder(sink, context)))
                }
                Err(_) => Self::Blind(sink),
            },
            None => Self::Unknown(Beginning::default(), Some(sink)),
        }
    }

    /// Decodes `encoded`, and writes everything that is complete.
    ///
    /// # Errors
    /// If it is damaged, or in a coding that is not known.
    pub(super) fn feed(&mut self, encoded: &[u8]) -> io::Result<()> {
        if let Self::Deflate(sink) = self
            && !encoded.is_empty()
            && let Some(sink) = sink.take()
        {
            *self = if is_zlib(encoded) {
                Self::Zlib(Box::new(flate2::write::ZlibDecoder::new(sink)))
            } else {
                Self::BareDeflate(Box::new(flate2::write::DeflateDecoder::new(sink)))
            };
        }
        if let Self::Unknown(opening, sink) = self {
            let Some((is_stream, beginning)) = opening.push(encoded) else { return Ok(()) };
            if !is_stream && !is_json(&beginning) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let Some(sink) = sink.take() else { return Ok(()) };
            *self = Self::Identity(sink);
            return self.feed(&beginning);
        }
        match self {
            Self::Identity(sink) => sink.write_all(encoded),
            Self::Gzip(decoder) => drain(decoder, encoded),
            Self::Zlib(decoder) => drain(decoder, encoded),
            Self::BareDeflate(decoder) => drain(decoder, encoded),
            Self::Deflate(_) | Self::Unknown(..) | Self::Blind(_) => Ok(()),
            Self::Brotli(decoder) => drain(decoder, encoded),
            Self::Zstd(decoder) => drain(decoder, encoded),
        }
    }

    /// The destination of the decoded bytes.
    pub(super) fn sink(&mut self) -> Option<&mut W> {
        match self {
            Self::Identity(sink) | Self::Blind(sink) => Some(sink),
            Self::Gzip(decoder) => Some(decoder.get_mut()),
            Self::Zlib(decoder) => Some(decoder.get_mut()),
            Self::BareDeflate(decoder) => Some(decoder.get_mut()),
            Self::Deflate(sink) | Self::Unknown(_, sink) => sink.as_mut(),
            Self::Brotli(decoder) => Some(decoder.get_mut()),
            Self::Zstd(decoder) => Some(decoder.get_mut()),
        }
    }
}

/// The beginning of a body, decoded as it arrives.
pub(super) struct DecodedBeginning {
    decoder: Decoder<Limited>,
    /// How many bytes of the body have been decoded.
    seen: usize,
}

/// Takes bytes up to a limit.
struct Limited {
    bytes: Vec<u8>,
    limit: usize,
}

impl DecodedBeginning {
    /// The beginning of a body in this coding, of at most `limit` bytes.
    pub(super) fn new(coding: Coding, limit: usize) -> Self {
        let sink = Limited { bytes: Vec::new(), limit };
        Self { decoder: Decoder::new(Some(coding), sink), seen: 0 }
    }

    /// The decoded form of `read`, which is what has arrived by now. `None` if it is damaged or too long.
    pub(super) fn decoded(&mut self, read: &[u8]) -> Option<&[u8]> {
        let new = read.get(self.seen..).filter(|new| !new.is_empty());
        if let Some(new) = new {
            self.decoder.feed(new).ok()?;
            self.seen = read.len();
        }
        Some(&self.decoder.sink()?.bytes)
    }
}

impl Write for Limited {
    fn write(&mut self, decoded: &[u8]) -> io::Result<usize> {
        if decoded.len() > self.limit - self.bytes.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(decoded);
        Ok(decoded.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a body of unknown coding begins like JSON.
fn is_json(beginning: &[u8]) -> bool {
    let text = beginning.strip_prefix(BOM).unwrap_or(beginning).trim_ascii_start();
    matches!(text.first(), Some(b'{' | b'['))
}

fn drain(decoder: &mut impl Write, encoded: &[u8]) -> io::Result<()> {
    decoder.write_all(encoded)?;
    decoder.flush()
}

fn zstd_context() -> io::Result<zstd::stream::raw::Decoder<'static>> {
    let mut context = zstd::stream::raw::Decoder::new()?;
    context.set_parameter(zstd::stream::raw::DParameter::WindowLogMax(ZSTD_WINDOW_LOG))?;
    Ok(context)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CODINGS: [Coding; 5] =
        [Coding::Identity, Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];

    /// `plain` in every encoding that can be made here.
    fn encoded(plain: &[u8]) -> Vec<(Coding, Vec<u8>)> {
        use flate2::{Compression, write};
        let mut gzip = write::GzEncoder::new(Vec::new(), Compression::fast());
        let mut zlib = write::ZlibEncoder::new(Vec::new(), Compression::fast());
        let mut bare = write::DeflateEncoder::new(Vec::new(), Compression::fast());
        for encoder in [&mut gzip as &mut dyn Write, &mut zlib, &mut bare] {
            encoder.write_all(plain).unwrap();
        }
        vec![
            (Coding::Identity, plain.to_vec()),
            (Coding::Gzip, gzip.finish().unwrap()),
            (Coding::Deflate, zlib.finish().unwrap()),
            (Coding::Deflate, bare.finish().unwrap()),
            (Coding::Zstd, zstd::encode_all(plain, 1).unwrap()),
        ]
    }

    fn in_pieces(coding: Coding, encoded: &[u8], size: usize) -> io::Result<Vec<u8>> {
        let mut decoder = Decoder::new(Some(coding), Vec::new());
        for piece in encoded.chunks(size) {
            decoder.feed(piece)?;
        }
        Ok(decoder.sink().unwrap().clone())
    }

    #[test]
    fn beginnings_are_decoded_up_to_a_limit() {
        let plain = b"data: one\n\n".repeat(9);
        for (coding, encoded) in encoded(&plain) {
            let mut beginning = DecodedBeginning::new(coding, plain.len());
            let mut last = 0;
            for end in 0..=encoded.len() {
                let decoded = beginning.decoded(&encoded[..end]).unwrap();
                assert!(plain.starts_with(decoded) && decoded.len() >= last, "{coding:?} {end}");
                last = decoded.len();
            }
            assert_eq!(last, plain.len(), "{coding:?}");
            let mut short = DecodedBeginning::new(coding, plain.len() - 1);
            assert_eq!(short.decoded(&encoded), None, "{coding:?}");
            assert!(beginning.decoded(&encoded).is_some_and(|decoded| *decoded == plain), "{coding:?}");
        }
        assert_eq!(DecodedBeginning::new(Coding::Gzip, 99).decoded(b"no such thing"), None);
    }

    #[test]
    fn the_coding_is_read_from_content_encoding() {
        for (lines, expected) in [
            (&[][..], Some(Coding::Identity)),
            (&[""], Some(Coding::Identity)),
            (&["identity"], Some(Coding::Identity)),
            (&["GZIP"], Some(Coding::Gzip)),
            (&[" x-gzip "], Some(Coding::Gzip)),
            (&["deflate"], Some(Coding::Deflate)),
            (&["br"], Some(Coding::Brotli)),
            (&["zstd"], Some(Coding::Zstd)),
            (&["none"], Some(Coding::Identity)),
            (&["UTF-8"], Some(Coding::Identity)),
            (&["binary", "identity"], Some(Coding::Identity)),
            (&["identity, gzip"], Some(Coding::Gzip)),
            (&["gzip,"], Some(Coding::Gzip)),
            (&["none", "br"], Some(Coding::Brotli)),
            (&["compress"], None),
            (&["compress, none"], None),
            (&["gzip, br"], None),
            (&["gzip, gzip"], None),
            (&["gzip", "gzip"], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(CONTENT_ENCODING, line.parse().unwrap());
            }
            assert_eq!(Coding::of(&headers), expected, "{lines:?}");
        }
    }

    /// Some servers write what is no coding at all.
    #[test]
    fn plain_text_of_an_unknown_coding_is_read() {
        for (plain, expected) in [
            ("data: {}\n\ndata: [DONE]\n\n", true),
            ("\u{feff}event: x\ndata: {}\n\n", true),
            ("\r\n {\"a\":1}", true),
            ("\u{feff}[1]", true),
            ("datum", false),
            ("\x1f\u{fffd}", false),
        ] {
            for size in [1, 3, 100] {
                let mut decoder = Decoder::new(None, Vec::new());
                let fed = plain.as_bytes().chunks(size).try_for_each(|piece| decoder.feed(piece));
                let read = if expected { plain.as_bytes() } else { b"" };
                assert_eq!((fed.is_ok(), decoder.sink().unwrap().as_slice()), (expected, read), "{plain:?}");
            }
        }
    }

    #[test]
    fn brotli_is_decoded() {
        // "hello\n", made by the reference encoder.
        let encoded = b"\x8f\x02\x80\x68\x65\x6c\x6c\x6f\x0a\x03";
        assert_eq!(whole(Coding::Brotli, &Bytes::from_static(encoded), 6).unwrap(), "hello\n");
        assert_eq!(whole(Coding::Brotli, &Bytes::from_static(encoded), 5), None);
        assert_eq!(in_pieces(Coding::Brotli, encoded, 1).unwrap(), b"hello\n");
    }

    #[test]
    fn decompression_bombs_over_the_limit_are_refused() {
        let zeros = vec![0; 8 << 20];
        for (coding, bomb) in encoded(&zeros) {
            assert_eq!(whole(coding, &Bytes::from(bomb), 1 << 20), None, "{coding:?}");
        }
    }

    proptest! {
        #[test]
        fn encoded_bodies_round_trip_whole_and_in_pieces(
            plain in proptest::collection::vec(any::<u8>(), 0..3000),
            copies in 1usize..20,
            size in 1usize..500,
        ) {
            let plain = plain.repeat(copies);
            for (coding, encoded) in encoded(&plain) {
                let encoded = Bytes::from(encoded);
                prop_assert_eq!(whole(coding, &encoded, plain.len()).unwrap(), &plain[..], "{:?}", coding);
                prop_assert_eq!(in_pieces(coding, &encoded, size).unwrap(), &plain[..], "{:?}", coding);
                if coding != Coding::Identity {
                    prop_assert_eq!(whole(coding, &encoded.slice(..encoded.len() - 1), plain.len()), None);
                    let longer = [&encoded[..], b"!"].concat();
                    prop_assert_eq!(whole(coding, &Bytes::from(longer), plain.len()), None);
                }
            }
        }

        #[test]
        fn arbitrary_input_does_not_panic(noise in proptest::collection::vec(any::<u8>(), 0..300), size in 1usize..50) {
            for coding in CODINGS {
                drop(whole(coding, &Bytes::copy_from_slice(&noise), 1 << 20));
                drop(in_pieces(coding, &noise, size));
            }
        }
    }
}
