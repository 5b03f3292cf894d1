//! Decompresses the records of a chunk, in memory that the limit of a chunk bounds.
//!
//! `play` needs decoders alone. They are written in Rust, need no library in C, and their windows have limits.

use std::io::{self, Read};

use lz4_flex::frame::FrameDecoder;
use ruzstd::decoding::StreamingDecoder;

/// Compressions that MCAP names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkCompression {
    /// LZ4 frames.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

impl ChunkCompression {
    /// Returns the compression of this name in a chunk.
    pub fn from_name(name: &str) -> Option<ChunkCompression> {
        match name {
            "lz4" => Some(ChunkCompression::Lz4),
            "zstd" => Some(ChunkCompression::Zstd),
            _ => None,
        }
    }

    /// Appends the decompressed data to `output`, which grows as data come, to at most `bytes` bytes. Returns false if
    /// the data have another size than that.
    ///
    /// # Errors
    /// The data are damaged.
    pub fn decompress(self, mut data: &[u8], bytes: u64, output: &mut Vec<u8>) -> io::Result<bool> {
        // One more byte shows that there are more than promised. A chunk may have several frames, and padding.
        let start = output.len() as u64;
        loop {
            let left = bytes + 1 - (output.len() as u64 - start);
            let read = match self {
                ChunkCompression::Lz4 => FrameDecoder::new(&mut data).take(left).read_to_end(output)?,
                ChunkCompression::Zstd => {
                    StreamingDecoder::new(&mut data).map_err(io::Error::other)?.take(left).read_to_end(output)?
                }
            };
            let total = output.len() as u64 - start;
            if data.is_empty() || bytes <= total || read == 0 {
                return Ok(total == bytes);
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// 300 bytes of `a`, compressed by the libraries in C.
    pub const LZ4: &[u8] = b"\x04\x22\x4d\x18\x68\x40\x2c\x01\x00\x00\x00\x00\x00\x00\x84\x0c\x00\x00\x00\x1f\x61\x01\x00\xff\x14\x50\x61\x61\x61\x61\x61\x00\x00\x00\x00";
    /// The same in a frame of Zstandard.
    pub const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd\x60\x2c\x00\x4d\x00\x00\x10\x61\x61\x01\x00\x27\x2a\xc0\x02";

    #[test]
    fn decompressed_data_are_bounded_by_their_promise() {
        for (compression, data) in [(ChunkCompression::Lz4, LZ4), (ChunkCompression::Zstd, ZSTD)] {
            for (promised, is_right) in [(300, true), (299, false), (301, false), (0, false)] {
                let mut output = Vec::new();
                let result = compression.decompress(data, promised, &mut output);
                assert_eq!(result.ok(), Some(is_right), "{compression:?} {promised}");
                assert!(output.len() as u64 <= promised + 1);
            }
            let mut output = Vec::new();
            assert_ne!(compression.decompress(&data[..data.len() / 2], 300, &mut output).ok(), Some(true));
        }
    }
}
