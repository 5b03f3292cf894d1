//! The bodies of the fuzz targets that read files: captures as `decode` does, and recordings as `play` does. Each takes
//! any bytes and panics if something is wrong. `src/sim/fuzz` has those of the protocols.

use std::io::Cursor;

use super::decode::capture::Capture;
use super::decode::{DatagramTotals, describe};
use super::recording::ChannelKind;
use super::recording::annotation::Annotation;
use super::recording::reader::{RecordedChannel, RecordingEvent, RecordingReader};

/// Body of a target.
pub type FuzzBody = fn(&[u8]);

/// Every target: its name, which is that of its corpus, and its body.
pub const TARGETS: [(&str, FuzzBody); 2] = [("capture", capture), ("recording", recording)];

/// Maximum number of parts that are read of a recording. A compressed chunk of few bytes can have millions.
const EVENTS_MAX: usize = 100_000;

/// Reads a packet capture, and describes its datagrams.
pub fn capture(bytes: &[u8]) {
    let Ok(mut capture) = Capture::new(bytes) else { return };
    let mut totals = DatagramTotals::default();
    let mut frame = 0;
    while let Ok(Some(datagram)) = capture.next_datagram() {
        assert!(frame < datagram.frame, "each datagram is of a packet of its own");
        assert!(datagram.payload.len() < bytes.len(), "a datagram is a part of the file");
        frame = datagram.frame;
        drop(describe(&datagram, None, &mut totals));
    }
    assert!(frame.max(capture.skipped()) <= bytes.len() as u64, "no packet is empty");
}

/// Reads a recording to its end.
pub fn recording(bytes: &[u8]) {
    let size = bytes.len() as u64;
    let reader = RecordingReader::open(Cursor::new(bytes), size).expect("memory can be read");
    let Some(mut reader) = reader else { return };
    let mut position = 0;
    for _ in 0..EVENTS_MAX {
        let event = reader.next_event().expect("memory can be read");
        assert!((position..=size).contains(&reader.position()), "reading continues within the file");
        position = reader.position();
        match event {
            RecordingEvent::Message(message) => {
                let data = reader.data(&message);
                if *reader.channel(&message) == RecordedChannel::Notice(ChannelKind::Annotation) {
                    // Other content of this channel is ignored.
                    drop(serde_json::from_slice::<Annotation>(data));
                }
            }
            RecordingEvent::Damage(damage) => assert!(damage.offset < size, "damage is within the file: {damage}"),
            RecordingEvent::Truncated(offset) => return assert!(offset <= size, "the end is within the file"),
            RecordingEvent::End => return,
        }
    }
}
