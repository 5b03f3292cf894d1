//! Runs a fuzz target on mutations of its corpus, without libFuzzer and on any compiler.
//!
//! `drive TARGET COUNT [SEED]`: COUNT executions. It shrinks a failing input and writes it to `artifacts/` in this
//! package; add that file to `tests/corpus/TARGET` together with the fix. The same seed makes the same inputs.

use seqcast::cli;
use seqcast::rng::Rng;
use seqcast::sim::fuzz::{self, FuzzTarget};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// The largest input to make, in bytes.
const INPUT_BYTES_MAX: usize = 4096;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).map(|text| text.parse::<u64>());
    let (Some(name), Some(Ok(count)), Ok(seed)) = (args.first(), number(1), number(2).unwrap_or(Ok(1))) else {
        eprintln!("usage: drive TARGET COUNT [SEED]");
        return ExitCode::from(2);
    };
    let of_files = cli::fuzz::TARGETS.into_iter().map(|(name, body)| FuzzTarget { name, body });
    let targets: Vec<FuzzTarget> = fuzz::TARGETS.into_iter().chain(of_files).collect();
    let Some(target) = targets.iter().find(|target| target.name == name) else {
        let names: Vec<&str> = targets.iter().map(|target| target.name).collect();
        eprintln!("no target {name:?}; there are: {}", names.join(", "));
        return ExitCode::from(2);
    };
    run(*target, count, seed)
}

fn run(FuzzTarget { name, body }: FuzzTarget, count: u64, seed: u64) -> ExitCode {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut corpus = corpus(&package.join("../../tests/corpus").join(name));
    let mut rng = Rng::new(seed);
    let started = Instant::now();
    for execution in 0..count {
        let input = mutated(&mut rng, &corpus);
        if std::panic::catch_unwind(|| body(&input)).is_err() {
            let input = smaller(body, input);
            let artifacts = package.join("artifacts");
            let file = artifacts.join(format!("{name}-seed{seed}-{execution}"));
            std::fs::create_dir_all(&artifacts)
                .and_then(|()| std::fs::write(&file, &input))
                .expect("artifacts are kept");
            eprintln!("{name}: execution {execution} of seed {seed} failed; its input is {}", file.display());
            return ExitCode::FAILURE;
        }
        // Mutations of mutations: now and then an input takes the place of an earlier mutation.
        if rng.below(64) == 0 {
            keep(&mut rng, &mut corpus, input);
        }
    }
    println!("{name}: {count} executions of seed {seed} in {:.1} s, no failure", started.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

/// Shrinks a failing input: removes bytes without which it still fails, and sets bytes to 0 whose value is arbitrary.
fn smaller(body: fn(&[u8]), mut input: Vec<u8>) -> Vec<u8> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let fails = |input: &[u8]| std::panic::catch_unwind(|| body(input)).is_err();
    let mut size = input.len().next_power_of_two();
    while 0 < size {
        let mut at = 0;
        while at < input.len() {
            let mut candidate = input.clone();
            candidate.drain(at..(at + size).min(input.len()));
            if fails(&candidate) {
                input = candidate;
            } else {
                at += size.min(16);
            }
        }
        size /= 2;
    }
    for at in 0..input.len() {
        let byte = std::mem::take(&mut input[at]);
        if byte != 0 && !fails(&input) {
            input[at] = byte;
        }
    }
    std::panic::set_hook(hook);
    input
}

/// The inputs to begin with, and those kept since.
struct Corpus {
    /// The files come first and stay.
    files: usize,
    inputs: Vec<Vec<u8>>,
}

fn corpus(folder: &Path) -> Corpus {
    let entries = std::fs::read_dir(folder).expect("every target has a corpus");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a file of the corpus").path()).collect();
    files.sort();
    let inputs: Vec<_> = files.iter().map(|file| std::fs::read(file).expect("a file of the corpus")).collect();
    assert!(!inputs.is_empty(), "the corpus is empty");
    Corpus { files: inputs.len(), inputs }
}

/// Inputs kept beside the files.
const KEPT_MAX: usize = 1024;

fn keep(rng: &mut Rng, corpus: &mut Corpus, input: Vec<u8>) {
    if corpus.inputs.len() < corpus.files + KEPT_MAX {
        corpus.inputs.push(input);
    } else {
        let at = corpus.files + below(rng, KEPT_MAX);
        corpus.inputs[at] = input;
    }
}

fn mutated(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let from = if rng.chance(0.5) { corpus.files } else { corpus.inputs.len() };
    let mut input = corpus.inputs[below(rng, from)].clone();
    for _ in 0..rng.below(5) {
        mutate(rng, &mut input, corpus);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn mutate(rng: &mut Rng, input: &mut Vec<u8>, corpus: &Corpus) {
    let at = below(rng, input.len() + 1);
    let end = at + below(rng, (input.len() - at).min(64) + 1);
    match rng.below(8) {
        0 if at < input.len() => input[at] ^= 1 << rng.below(8),
        1 if at < input.len() => input[at] = rng.next_u32() as u8,
        2 => write(rng, &mut input[at..]),
        3 => input.splice(at..end, []).for_each(drop),
        4 => {
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        5 => {
            let noise: Vec<u8> = (0..rng.below(16)).map(|_| rng.next_u32() as u8).collect();
            input.splice(at..at, noise);
        }
        6 => {
            let other = &corpus.inputs[below(rng, corpus.inputs.len())];
            let from = below(rng, other.len() + 1);
            let to = from + below(rng, (other.len() - from).min(256) + 1);
            input.splice(at..end, other[from..to].iter().copied());
        }
        _ => input.truncate(at),
    }
}

/// Overwrites the start of `bytes` with a number at an edge of its range, of a width from 1 to 8 bytes.
fn write(rng: &mut Rng, bytes: &mut [u8]) {
    const EDGES: [u64; 12] =
        [0, 1, 2, 0x7f, 0x80, 0xff, 1 << 20, (1 << 20) + 1, 1 << 35, 1 << 63, (1 << 63) - 1, u64::MAX];
    let number = EDGES[below(rng, EDGES.len())].wrapping_sub(rng.below(2)).to_be_bytes();
    let width = 1 << rng.below(4);
    for (byte, value) in bytes.iter_mut().zip(&number[8 - width..]) {
        *byte = *value;
    }
}

fn below(rng: &mut Rng, bound: usize) -> usize {
    rng.below(bound as u64) as usize
}
