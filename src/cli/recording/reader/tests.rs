//! Whole, shortened and damaged files.

use std::collections::BTreeMap;
use std::io::Cursor;

use mcap::WriteOptions;
use mcap::records::MessageHeader;

use super::*;
use crate::cli::recording::PROFILE;
use crate::cli::recording::decompress::tests::{LZ4, ZSTD};
use crate::rng::Rng;

/// Number of chunks of the file, each with two messages.
const CHUNKS: u64 = 3;

/// Returns a file.
fn file() -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let options = WriteOptions::new().compression(None).profile(PROFILE).chunk_size(None);
    let mut writer = options.create(&mut bytes).unwrap();
    let entries = [(KIND_KEY, "message"), (EPOCH_KEY, "0000000000000abc")];
    let metadata = BTreeMap::from(entries.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let own = writer.add_channel(0, "a/b.c", "", &metadata).unwrap();
    let foreign = writer.add_channel(0, "/a/b", "", &BTreeMap::new()).unwrap();
    for chunk in 0..CHUNKS {
        for (channel_id, data) in [(own, "first"), (foreign, "second")] {
            let header = MessageHeader { channel_id, sequence: 7, log_time: chunk, publish_time: 0 };
            writer.write_to_known_channel(&header, data.as_bytes()).unwrap();
        }
        writer.flush().unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    bytes.into_inner()
}

/// Returns the offsets at which the records of a file end, with their opcodes.
fn record_ends(file: &[u8]) -> Vec<(u8, usize)> {
    let mut ends = Vec::new();
    let mut records = &file[decode::MAGIC.len()..];
    while let Ok((opcode, _)) = decode::split_record(&mut records) {
        ends.push((opcode, file.len() - records.len()));
    }
    ends
}

/// Reads everything: subjects with their content, the damage, and the end.
fn read(bytes: &[u8]) -> Option<ReadFile> {
    let mut reader = RecordingReader::open(Cursor::new(bytes), bytes.len() as u64).unwrap()?;
    let mut read = ReadFile { messages: Vec::new(), damage: Vec::new(), end: RecordingEvent::End };
    loop {
        match reader.next_event().unwrap() {
            RecordingEvent::Message(message) => {
                let data = String::from_utf8_lossy(reader.data(&message)).into_owned();
                read.messages.push((reader.channel(&message).clone(), data));
            }
            RecordingEvent::Damage(damage) => read.damage.push(damage.kind),
            end => return Some(ReadFile { end, ..read }),
        }
    }
}

struct ReadFile {
    messages: Vec<(RecordedChannel, String)>,
    damage: Vec<DamageKind>,
    end: RecordingEvent,
}

#[test]
fn whole_file_is_read() {
    let whole = read(&file()).unwrap();
    let subjects: Vec<(String, &str)> = whole
        .messages
        .iter()
        .map(|(channel, data)| match channel {
            RecordedChannel::Message { subject, .. } => (subject.as_str().to_owned(), data.as_str()),
            other => panic!("{other:?}"),
        })
        .collect();
    // A topic of another program becomes a subject; a slash in a subject of the bus stays.
    let both = [("a/b.c".to_owned(), "first"), ("a.b".to_owned(), "second")];
    assert_eq!(subjects, [both.clone(), both.clone(), both].concat());
    assert_eq!((whole.damage, whole.end), (vec![], RecordingEvent::End));
}

#[test]
fn shortened_file_is_read_to_its_last_chunk() {
    let file = file();
    let chunk_ends: Vec<usize> =
        record_ends(&file).into_iter().filter(|(opcode, _)| *opcode == decode::CHUNK).map(|(_, end)| end).collect();
    assert_eq!(chunk_ends.len() as u64, CHUNKS);
    for bytes in 0..file.len() {
        let Some(short) = read(&file[..bytes]) else {
            assert!(bytes < decode::MAGIC.len());
            continue;
        };
        let chunks = chunk_ends.iter().filter(|end| **end <= bytes).count();
        assert_eq!((short.messages.len(), short.damage.len()), (2 * chunks, 0), "{bytes} bytes");
        assert!(matches!(short.end, RecordingEvent::Truncated(offset) if offset <= bytes as u64), "{bytes} bytes");
    }
}

#[test]
fn damaged_chunk_is_skipped() {
    let mut file = file();
    let first = record_ends(&file).into_iter().find(|(opcode, _)| *opcode == decode::CHUNK).unwrap().1;
    file[first - 1] ^= 1;
    let damaged = read(&file).unwrap();
    // The channels were in that chunk, and are in the index, too.
    assert_eq!((damaged.damage, damaged.messages.len()), (vec![DamageKind::Checksum], 4));
    assert_eq!(damaged.end, RecordingEvent::End);
    // Without the index the later messages have no channels.
    file.truncate(file.len() - 1);
    let damaged = read(&file).unwrap();
    assert_eq!(damaged.damage, [&[DamageKind::Checksum][..], &[const { DamageKind::Malformed }; 4]].concat());
    assert_eq!(damaged.messages.len(), 0);
}

#[test]
fn flipped_bits_neither_panic_nor_invent_messages() {
    let whole = file();
    let seed = 23;
    let mut rng = Rng::new(seed);
    for round in 0..20_000 {
        let mut file = whole.clone();
        for _ in 0..rng.between(1, 3) {
            let at = usize::try_from(rng.below(file.len() as u64)).unwrap();
            file[at] ^= 1 << rng.below(8);
        }
        let Some(read) = read(&file) else { continue };
        // Other programs may write messages without a checksum; the recorder does not.
        let is_own =
            |channel: &RecordedChannel| matches!(channel, RecordedChannel::Message { epoch, .. } if !epoch.is_empty());
        let own: Vec<&str> = read.messages.iter().filter(|(channel, _)| is_own(channel)).map(|(_, d)| &d[..]).collect();
        assert!(own.iter().all(|data| *data == "first") && own.len() as u64 <= CHUNKS, "seed {seed}, round {round}");
    }
}

/// Decoders must neither panic nor exceed the promised size, whatever a damaged chunk contains. The checksum of the
/// chunk is off, so that each result of a decoder is used.
#[test]
fn flipped_bits_in_compressed_chunks_are_harmless() {
    let records = file();
    let text = |text: &str| [&u32::try_from(text.len()).unwrap().to_le_bytes()[..], text.as_bytes()].concat();
    let frames = [("lz4", LZ4), ("zstd", ZSTD)];
    let mut rng = Rng::new(24);
    for (name, data) in frames {
        for round in 0..5000 {
            let mut data = data.to_vec();
            for _ in 0..rng.below(3) {
                let at = usize::try_from(rng.below(data.len() as u64)).unwrap();
                data[at] ^= 1 << rng.below(8);
            }
            let bytes = if rng.chance(0.5) { 300 } else { rng.between(1, 600) };
            let mut content = [&[0; 16][..], &bytes.to_le_bytes(), &[0; 4], &text(name)].concat();
            content.extend_from_slice(&(data.len() as u64).to_le_bytes());
            content.extend_from_slice(&data);
            let length = (content.len() as u64).to_le_bytes();
            let file = [&decode::MAGIC[..], &[decode::CHUNK], &length, &content, &records[8..]].concat();
            let read = read(&file).unwrap();
            // The records of the chunk are no records, and the rest of the file is read.
            assert_eq!((read.messages.len() as u64, read.damage.len()), (2 * CHUNKS, 1), "{name}, round {round}");
        }
    }
}

#[test]
fn claimed_length_allocates_nothing() {
    for opcode in [decode::CHUNK, decode::CHANNEL, decode::MESSAGE, decode::HEADER, decode::FOOTER] {
        for bytes in [1, 1 << 20, 1 << 40, u64::MAX] {
            let file = [&decode::MAGIC[..], &[opcode], &bytes.to_le_bytes()].concat();
            let mut reader = RecordingReader::open(Cursor::new(&file), file.len() as u64).unwrap().unwrap();
            assert_eq!(reader.next_event().unwrap(), RecordingEvent::Truncated(8), "{opcode} {bytes}");
            assert_eq!(reader.content.capacity(), 0);
        }
    }
}
