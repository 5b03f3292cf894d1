//! Replays every fuzz corpus, and with it every input that ever made a target fail.

use seqcast::cli;
use seqcast::sim::fuzz::{self, FuzzTarget};
use std::path::Path;

/// Returns every target.
fn targets() -> impl Iterator<Item = FuzzTarget> {
    let of_files = cli::fuzz::TARGETS.into_iter().map(|(name, body)| FuzzTarget { name, body });
    fuzz::TARGETS.into_iter().chain(of_files)
}

#[test]
fn every_corpus_passes() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    for FuzzTarget { name, body } in targets() {
        let mut files: Vec<_> =
            std::fs::read_dir(corpora.join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "no corpus for {name}");
        for file in files {
            // A failing test shows this: the input that caused the failure.
            println!("{}", file.display());
            body(&std::fs::read(&file).unwrap());
        }
    }
}

#[test]
fn every_corpus_has_its_target() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    for entry in std::fs::read_dir(corpora).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // The simulator's scenarios lie beside the corpora of the fuzzing targets.
        assert!(name == "scenarios" || targets().any(|target| target.name == name), "{name}");
    }
}
