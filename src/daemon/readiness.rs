//! Readiness of a queue for event loops: a descriptor that is readable while the queue may have an item.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// A pipe that has one byte while it is signalled. The queue remembers whether it is, so neither end ever blocks.
#[derive(Debug)]
pub(crate) struct ReadinessPipe {
    reader: PipeReader,
    writer: PipeWriter,
}

impl ReadinessPipe {
    pub(crate) fn open() -> io::Result<ReadinessPipe> {
        let (reader, writer) = io::pipe()?;
        Ok(ReadinessPipe { reader, writer })
    }

    /// Returns the descriptor that is readable while the pipe is signalled.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Makes the descriptor readable. The pipe must be empty.
    pub(crate) fn signal(&self) {
        (&self.writer).write_all(&[1]).expect("an empty pipe takes a byte");
    }

    /// Makes the descriptor unreadable. The pipe must be signalled.
    pub(crate) fn clear(&self) {
        (&self.reader).read_exact(&mut [0]).expect("the byte of the signal is there");
    }
}
