//! The thread that answers questions about a journal, so that nothing else waits for the disk.

use super::error::StoreError;
use super::sqlite::SqliteReader;
use crate::event::store::{Answer, Query};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::io;
use std::thread::{self, JoinHandle};

/// Questions that wait at most; more are refused.
const WAITING_MAX: usize = 1024;

/// Hears the answer, on the reader's thread.
pub type Heard = Box<dyn FnOnce(Result<Answer, StoreError>) + Send>;

/// A journal's thread for questions. When it is dropped, those that wait are not answered any more.
#[derive(Debug)]
pub struct Reader {
    questions: Option<Sender<(Query, Heard)>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system makes no thread.
    pub fn start(reader: SqliteReader) -> io::Result<Reader> {
        let (sender, questions) = bounded(WAITING_MAX);
        let thread = thread::Builder::new().name("journal-reader".into()).spawn(move || run(reader, &questions))?;
        Ok(Reader { questions: Some(sender), thread: Some(thread) })
    }

    /// Asks a question that makes sense. False, and `heard` is not called, if too many wait.
    pub fn ask(&self, query: Query, heard: Heard) -> bool {
        self.questions.as_ref().expect("open until it is dropped").try_send((query, heard)).is_ok()
    }
}

fn run(mut reader: SqliteReader, questions: &Receiver<(Query, Heard)>) {
    while let Ok((query, heard)) = questions.recv() {
        heard(reader.query(&query));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.questions = None;
        if let Some(thread) = self.thread.take() {
            // It has told what went wrong when it panicked.
            drop(thread.join());
        }
    }
}
