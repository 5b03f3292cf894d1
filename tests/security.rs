//! Keyed peers, seen by other implementations of the same ciphers.

use crate::support::root;
use std::fs::File;
use std::process::Command;

#[test]
fn known_answers_agree_with_other_implementations() {
    let mut command = Command::new(root().join("target/clients/python/bin/python3"));
    command.arg(root().join("tests/clients/known_answers.py")).stdin(File::open(root().join("docs/wire.md")).unwrap());
    let output = command.output().expect("run tools/test once: it installs the libraries");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "34 values compared");
}
