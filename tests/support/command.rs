//! Runs the built `seqcast` command: each test in its own place, with a private socket, port and group.

use super::TempDir;
use super::exit_code::DONE;
pub use super::server_process::signal;
pub use super::wait::PATIENCE;
use super::wait::wait_until_some;
use seqcast::clock::Clock;
use seqcast::time::Instant;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};

/// Returns the present time.
pub fn now() -> Instant {
    Clock::now().instant
}

/// Parses a text of JSON, such as a line of output.
#[track_caller]
pub fn parse_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A directory, a socket and a port that no other test uses; the directory is removed with the value.
pub struct Place {
    dir: TempDir,
    port: u16,
}

impl Place {
    /// Creates a place.
    pub fn new() -> Place {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let number = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        // Below the ephemeral ports; a clash with another test process would mix two groups, so spread by process.
        let port = 10_000 + std::process::id().wrapping_mul(97).wrapping_add(number) % 20_000;
        Place { dir: TempDir::new(), port: u16::try_from(port).expect("below 30,000") }
    }

    /// Returns the directory for files of this place's tests.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the socket of this place's peer.
    pub fn socket(&self) -> PathBuf {
        self.dir().join("peer.sock")
    }

    /// Returns the group's port of this place.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the command with these arguments, in this place's environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seqcast"));
        command.args(arguments);
        self.set_environment(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the command with these words, on a terminal that script(1) provides. What it shows is its output, and the
    /// content of the file `screen`.
    pub fn terminal_command(&self, words: &str) -> Command {
        let mut script = Command::new("script");
        self.set_environment(&mut script);
        // A shell that waits for the command would be ended by Ctrl-C in its place.
        let line = format!("stty cols 80 rows 24; exec {words}");
        script.env("SHELL", "/bin/sh").env("TERM", "xterm").args(["-qefc", &line, "screen"]);
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        script
    }

    /// Gives any command this place's environment.
    pub fn set_environment(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SEQCAST_") {
                command.env_remove(name);
            }
        }
        command.current_dir(self.dir()).env("HOME", self.dir()).env("XDG_STATE_HOME", self.dir().join("state"));
        command.env_remove("XDG_RUNTIME_DIR").env("NO_COLOR", "1");
        command.env("SEQCAST_SOCKET", self.socket()).env("SEQCAST_PORT", self.port.to_string());
        let [.., high, low] = std::process::id().to_be_bytes();
        command.env("SEQCAST_GROUP", format!("239.253.{high}.{low}"));
    }

    /// Runs the command to its end.
    pub fn run(&self, arguments: &[&str]) -> Outcome {
        self.run_with_input(arguments, b"")
    }

    /// Runs the command to its end, with `input` on its standard input.
    pub fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Outcome {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().expect("the built command starts");
        let mut stdin = child.stdin.take().expect("standard input is a pipe");
        let input = input.to_vec();
        // A command that ends without reading closes the pipe: that does not concern the test.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = wait_with_output(child, arguments);
        writer.join().expect("the writer ends with the command");
        Outcome::of(output, arguments)
    }

    /// Starts the command and leaves it running.
    pub fn start(&self, arguments: &[&str]) -> RunningCommand {
        RunningCommand::new(self.command(arguments).spawn().expect("the built command starts"), arguments)
    }

    /// Starts this place's peer and waits until it is reachable.
    pub fn peer(&self, arguments: &[&str]) -> RunningCommand {
        self.reachable(self.start(&[&["peer"], arguments].concat()))
    }

    /// Starts this place's peer with these settings and waits until it is reachable.
    pub fn peer_with(&self, settings: &[&str]) -> RunningCommand {
        let arguments: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        self.peer(&arguments)
    }

    /// Starts this place's peer with these settings, one of which opens a listener at the place's port, and waits
    /// until clients can connect there.
    pub fn peer_with_listener(&self, settings: &[&str]) -> RunningCommand {
        let peer = self.peer_with(settings);
        // Programs of this project can reach it before its listeners are open.
        let what = || format!("the listener opens; the peer reported {:?}", peer.stderr_so_far());
        wait_until_some(what, || TcpStream::connect(("127.0.0.1", self.port)).ok());
        peer
    }

    /// Returns a report of this place's peer.
    pub fn show(&self, report: &str) -> Value {
        parse_json(&self.run(&["show", report, "--json"]).exits(DONE).stdout)
    }

    /// Waits until this place's peer, which was just started, is reachable.
    pub fn reachable(&self, peer: RunningCommand) -> RunningCommand {
        let what = || format!("the peer listens; it reported {:?}", peer.stderr_so_far());
        wait_until_some(what, || std::os::unix::net::UnixStream::connect(self.socket()).ok());
        peer
    }
}

/// Exit status of a command and its output.
#[derive(Debug)]
pub struct Outcome {
    pub arguments: String,
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// Creates the outcome of a command that was run with these arguments.
    pub fn of(output: Output, arguments: &[&str]) -> Outcome {
        Outcome {
            arguments: arguments.join(" "),
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Outcome {
        assert_eq!(self.code, Some(code), "seqcast {}: {self:#?}", self.arguments);
        self
    }

    /// Asserts that standard error holds all of these.
    #[track_caller]
    pub fn reports(self, parts: &[&str]) -> Outcome {
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not reported: {self:#?}");
        }
        self
    }

    /// Asserts that standard output is exactly this.
    #[track_caller]
    pub fn prints(self, text: &str) -> Outcome {
        assert_eq!(self.stdout, text, "{self:#?}");
        self
    }
}

pub fn wait_with_output(child: Child, arguments: &[&str]) -> Output {
    let pid = child.id();
    let (sender, receiver) = sync_channel(1);
    let waiter = std::thread::spawn(move || drop(sender.send(child.wait_with_output())));
    match receiver.recv_timeout(2 * PATIENCE) {
        Ok(output) => {
            waiter.join().expect("the waiter ends");
            output.expect("the command's output can be read")
        }
        Err(_) => {
            signal(pid, "KILL");
            panic!("seqcast {} does not end", arguments.join(" "));
        }
    }
}

/// A command that runs beside the test; it is killed when the test ends.
pub struct RunningCommand {
    child: Child,
    arguments: String,
    stdout: Lines,
    stderr: Lines,
}

/// Lines of a pipe as they come.
struct Lines {
    receiver: Receiver<String>,
    seen: std::cell::RefCell<Vec<String>>,
}

impl Lines {
    #[expect(clippy::disallowed_methods, reason = "a full pipe would hold up the process that the test looks at")]
    fn of(pipe: impl std::io::Read + Send + 'static) -> Lines {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Lines { receiver, seen: std::cell::RefCell::default() }
    }

    fn next(&self, deadline: Instant) -> Option<String> {
        let wait = deadline.since(now());
        match self.receiver.recv_timeout(wait) {
            Ok(line) => {
                self.seen.borrow_mut().push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }
}

impl RunningCommand {
    /// Watches a command that was started with pipes for standard output and standard error.
    pub fn new(mut child: Child, arguments: &[&str]) -> RunningCommand {
        let stdout = Lines::of(child.stdout.take().expect("standard output is a pipe"));
        let stderr = Lines::of(child.stderr.take().expect("standard error is a pipe"));
        RunningCommand { child, arguments: arguments.join(" "), stdout, stderr }
    }

    /// Returns the next line on standard output.
    #[track_caller]
    pub fn line(&self) -> String {
        let line = self.stdout.next(now() + PATIENCE);
        line.unwrap_or_else(|| {
            panic!("seqcast {}: no further line; stderr: {:?}", self.arguments, self.stderr_so_far())
        })
    }

    /// Waits for a line on standard error that holds `part`, and returns it.
    #[track_caller]
    pub fn await_report(&self, part: &str) -> String {
        let deadline = now() + PATIENCE;
        loop {
            match self.stderr.next(deadline) {
                Some(line) if line.contains(part) => return line,
                Some(_) => {}
                None => panic!("seqcast {} did not report {part:?}: {:?}", self.arguments, self.stderr.seen.borrow()),
            }
        }
    }

    /// Returns all lines of standard error that have come.
    pub fn stderr_so_far(&self) -> Vec<String> {
        while self.stderr.next(now()).is_some() {}
        self.stderr.seen.borrow().clone()
    }

    /// Returns all lines of standard output that have come.
    pub fn lines_so_far(&self) -> Vec<String> {
        while self.stdout.next(now()).is_some() {}
        self.stdout.seen.borrow().clone()
    }

    /// Waits for the end of standard output, and returns all its lines. The last ones may come after the command has
    /// ended.
    pub fn all_lines(&self) -> Vec<String> {
        let deadline = now() + PATIENCE;
        while self.stdout.next(deadline).is_some() {}
        self.stdout.seen.borrow().clone()
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Returns whether the command has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the command can be waited for").is_some()
    }

    /// Waits for the end.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        let what = || format!("seqcast {} ends", self.arguments);
        wait_until_some(what, || self.child.try_wait().expect("the command can be waited for"))
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}
