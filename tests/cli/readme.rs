//! Tests of README.md: every command in its ```console blocks is run, and its output compared with the text there.
//!
//! A block is a shell of its own. Lines that begin with `$ ` are commands, and the lines below them their output,
//! standard output and standard error together. A command with the comment `# leave it running` keeps running beside
//! the following ones. Numbers, epochs and the path of the socket differ from run to run and are not compared, except
//! that a demonstration of loss must lose messages where the README shows losses, and none where it does not. The words
//! and their order are compared, except that the README may leave out log lines of a running command.

use crate::support::command::Place;
use crate::support::wait::wait_until_some;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const README: &str = include_str!("../../README.md");
const KEEP_RUNNING: &str = "# leave it running";

#[test]
fn readme_commands_print_the_documented_output() {
    let place = Place::new();
    let bin = place.dir().join("bin");
    std::fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_seqcast"), bin.join("seqcast")).unwrap();
    let mut running: Vec<Shell> = Vec::new();
    let mut commands = 0;
    for step in blocks(README, "console").iter().flat_map(|block| steps(block)) {
        commands += 1;
        let shell = Shell::start(&place, step, place.dir().join(format!("out-{commands}")));
        if shell.step.keeps_running {
            running.push(shell.begun());
        } else {
            shell.complete();
        }
    }
    running.into_iter().for_each(Shell::complete);
    assert!(5 <= commands, "only {commands} commands were found in the README");
}

/// Returns the texts of the fenced blocks of this kind.
fn blocks(text: &str, kind: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        match &mut block {
            None if line == format!("```{kind}") => block = Some(String::new()),
            None => {}
            Some(_) if line == "```" => blocks.extend(block.take()),
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    assert_eq!(block, None, "a block is not closed");
    blocks
}

/// A command and its output.
struct Step {
    command: String,
    keeps_running: bool,
    expected: Vec<String>,
}

fn steps(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let keeps_running = command.contains(KEEP_RUNNING);
            steps.push(Step { command: command.to_owned(), keeps_running, expected: Vec::new() });
        } else {
            steps.last_mut().expect("a block begins with a command").expected.push(comparable(line));
        }
    }
    steps
}

/// Returns the command with listeners at ports of this test's own. `redis-cli` prints as it does on a terminal.
fn at_other_ports(place: &Place, command: String) -> String {
    // The group's port is one of UDP; no other test uses these of TCP.
    let (nats, redis, ftn18) = (place.port(), place.port() - 8_000, place.port() - 8_500);
    command
        .replace("--ftn18", &format!("--ftn18 {ftn18}"))
        .replace("localhost:8181", &format!("127.0.0.1:{ftn18}"))
        .replace("--nats --redis", &format!("--nats {nats} --redis {redis}"))
        .replace("/127.0.0.1/4222", &format!("/127.0.0.1/{nats}"))
        .replace("redis-cli ", &format!("redis-cli --no-raw -p {redis} "))
}

/// A shell that runs one command; its process group ends with it.
struct Shell {
    child: Child,
    output: PathBuf,
    step: Step,
}

impl Shell {
    fn start(place: &Place, step: Step, output: PathBuf) -> Shell {
        let file = std::fs::File::create(&output).unwrap();
        let mut bash = Command::new("bash");
        place.set_environment(&mut bash);
        let path = format!("{}:{}", place.dir().join("bin").display(), std::env::var("PATH").unwrap());
        // The environment is that of the README reader's machine, but for the private port.
        bash.env("SEQCAST_NAME", "laptop").env_remove("SEQCAST_GROUP");
        let mut command = at_other_ports(place, step.command.replace("cargo run --release --", "seqcast"));
        if !command.contains("--wait") {
            // The reader's machine has nothing else to do; this one may need longer than the usual 2 s for an answer.
            command = command.replace("seqcast req ", "seqcast req --wait 1m ");
        }
        bash.arg("-c").arg(command).env("PATH", path);
        bash.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).process_group(0);
        Shell { child: bash.spawn().expect("bash starts"), output, step }
    }

    /// Waits for the first line that the README shows.
    fn begun(mut self) -> Shell {
        self.wait(|step, printed| printed.contains(&step.expected[0]));
        self
    }

    /// Waits for all that the README shows. If a command keeps running, the README may leave out lines of it.
    fn complete(mut self) {
        self.wait(|step, printed| match step.keeps_running {
            false => *printed == step.expected,
            true => {
                let mut printed = printed.iter();
                step.expected.iter().all(|line| printed.any(|other| other == line))
            }
        });
    }

    #[track_caller]
    fn wait(&mut self, is_complete: impl Fn(&Step, &Vec<String>) -> bool) {
        let step = &self.step;
        let text = || std::fs::read_to_string(&self.output).unwrap();
        let printed = || -> Vec<String> { text().lines().map(comparable).collect() };
        let what =
            || format!("$ {}\n{}\nprinted: {:#?}\nREADME: {:#?}", step.command, text(), printed(), step.expected);
        wait_until_some(what, || {
            let ended = self.child.try_wait().unwrap().is_some();
            let is_complete = (ended || step.keeps_running) && is_complete(step, &printed());
            assert!(is_complete || !ended, "{}", what());
            is_complete.then_some(())
        });
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let group = format!("-{}", self.child.id());
            drop(Command::new("kill").args(["-TERM", "--", &group]).status());
        }
        drop(self.child.wait());
    }
}

/// Returns the words of a line that do not differ from run to run, without the lines of tables.
fn comparable(line: &str) -> String {
    let words = line.split([' ', '|', '+']).filter(|word| !word.bytes().all(|b| b == b'-'));
    let comparable = words.map(comparable_word).collect::<Vec<String>>().join(" ");
    if reports_loss(line) { comparable + " SOME LOST" } else { comparable }
}

/// Returns whether the line is an account of `demo loss`, `SENT = DELIVERED + LOST + UNVERIFIED`, with lost messages.
fn reports_loss(line: &str) -> bool {
    let lost = line.split_once(" = ").and_then(|(_, sum)| sum.split(" + ").nth(1));
    lost.is_some_and(|lost| lost.bytes().all(|byte| byte.is_ascii_digit()) && lost != "0")
}

fn comparable_word(word: &str) -> String {
    let core = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if 16 <= core.len() && core.bytes().all(|b| b.is_ascii_hexdigit()) {
        return word.replace(core, "EPOCH");
    }
    if word.ends_with(".sock") {
        return "PATH".to_owned();
    }
    let mut comparable = String::new();
    for c in word.chars() {
        match c {
            c if !c.is_ascii_digit() => comparable.push(c),
            _ if !comparable.ends_with('N') => comparable.push('N'),
            _ => {}
        }
    }
    // A count may be known by its bounds only.
    comparable.replace("N..N", "N")
}

#[test]
fn varying_output_is_not_compared() {
    assert_eq!(comparable("[09:41:07.118] a.b  hi 3"), "[N:N:N.N] a.b hi N");
    assert_eq!(comparable(" B.1 |      0 | 766 |"), "B.N N N");
    assert_eq!(comparable(" B.1 |      0 | 715..898 |"), "B.N N N");
    assert_eq!(comparable("-----+---"), "");
    assert_eq!(comparable("epoch 00ab34deadbeef00"), "epoch EPOCH");
    assert_eq!(comparable("socket /run/user/1/seqcast.sock"), "socket PATH");
    assert_ne!(comparable("lost 3"), comparable("unverified 3"));
    assert_eq!(comparable("B.demo  20 = 9 + 11 + 0: fine"), comparable("B.demo  20 = 17 + 3 + 0: fine"));
    assert_ne!(comparable("B.demo  20 = 9 + 11 + 0: fine"), comparable("B.demo  20 = 20 + 0 + 0: fine"));
}
