//! A real PostgreSQL server of a test's own, from the newest version that is installed.

use super::wait::wait_until;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server that ends with the value. It trusts every connection from this host.
pub struct PostgresServer {
    child: Child,
    port: u16,
    dir: PathBuf,
}

impl PostgresServer {
    /// Starts a server on a free port that keeps its data in `dir`, which is fresh.
    pub fn start(dir: &Path) -> PostgresServer {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let data = dir.join("data");
        fs::create_dir(&data).expect("a fresh directory");
        if let Some((user, group)) = unprivileged() {
            chown(dir, Some(user), Some(group)).expect("root may");
            chown(&data, Some(user), Some(group)).expect("root may");
        }
        let made = command("initdb")
            .args(["--auth", "trust", "--username", "postgres", "--encoding", "UTF8", "--no-locale", "--no-sync"])
            .arg("--pgdata")
            .arg(&data)
            .output()
            .expect("PostgreSQL is installed: tools/test installs it");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        PostgresServer { child: spawn(dir, port), port, dir: dir.to_owned() }.when_ready()
    }

    /// Waits until it can be used. After a crash it refuses to start while processes of its predecessor exist.
    fn when_ready(mut self) -> PostgresServer {
        wait_until(&format!("PostgreSQL on port {} answers", self.port), || {
            if self.child.try_wait().expect("a process of our own").is_some() {
                self.child = spawn(&self.dir, self.port);
            }
            TcpStream::connect(("127.0.0.1", self.port)).is_ok() && self.try_sql("postgres", "SELECT 1").is_ok()
        });
        self
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Creates a schema and returns the address for it.
    pub fn schema(&self, name: &str) -> String {
        self.sql(&format!("CREATE SCHEMA {name}"));
        format!("{}?options=-c%20search_path%3D{name}", self.url())
    }

    /// Returns the output of SQL statements as text.
    pub fn sql(&self, sql: &str) -> String {
        self.try_sql("postgres", sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    fn try_sql(&self, database: &str, sql: &str) -> Result<String, String> {
        let done = command("psql")
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
                "-d",
                database,
            ])
            .args(["-p", &self.port.to_string(), "-c", sql])
            .output()
            .map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
    }

    /// Kills it at once with the processes that serve its connections, as a crash of its host would end it. Those
    /// outlive their parent for a moment otherwise.
    pub fn kill(&mut self) {
        let children =
            Command::new("pgrep").args(["-P", &self.child.id().to_string()]).output().expect("procps is installed");
        self.child.kill().expect("a process of our own");
        for process in String::from_utf8_lossy(&children.stdout).split_whitespace() {
            signal("KILL", process.parse().expect("a process number"));
        }
        self.child.wait().expect("a process of our own");
    }

    /// Starts it again with its data.
    pub fn restart(mut self) -> PostgresServer {
        self.kill();
        self.child = spawn(&self.dir, self.port);
        self.when_ready()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // This ends it immediately, but it still releases its shared memory.
        signal("QUIT", self.child.id());
        drop(self.child.wait());
    }
}

/// Sends a process a signal, such as `STOP`.
pub fn signal(name: &str, process: u32) {
    // A process that has ended needs no signal.
    drop(Command::new("kill").args([&format!("-{name}"), &process.to_string()]).stderr(Stdio::null()).status());
}

fn spawn(dir: &Path, port: u16) -> Child {
    let settings =
        ["listen_addresses=127.0.0.1", "max_connections=20", "shared_buffers=16MB", "log_min_messages=panic"];
    let mut server = command("postgres");
    server.args(settings.iter().flat_map(|setting| ["-c", setting]));
    server.arg("-D").arg(dir.join("data")).arg("-k").arg(dir).args(["-p", &port.to_string()]);
    server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("PostgreSQL is installed")
}

/// Returns a program of the newest PostgreSQL, run as a user whom it accepts: it refuses root.
fn command(program: &str) -> Command {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let newest = versions.max_by_key(|path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
    let mut command = match newest.map(|version| version.join("bin").join(program)).filter(|path| path.exists()) {
        Some(path) => Command::new(path),
        None => Command::new(program),
    };
    command.current_dir("/").env_remove("PGOPTIONS");
    if let Some((user, group)) = unprivileged() {
        command.uid(user).gid(group);
    }
    command
}

/// Returns the user that the PostgreSQL package creates, or `None` unless this process runs as root.
fn unprivileged() -> Option<(u32, u32)> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    let user = nix::unistd::User::from_name("postgres").ok().flatten().expect("the package makes this user");
    Some((user.uid.as_raw(), user.gid.as_raw()))
}
