//! A LAN of several hosts on this machine: network namespaces on a bridge, with faults made by nftables.

use crate::support::wait::{wait_until, wait_until_some};
use seqcast::bus::Bus;
use seqcast::config::InterfaceSpec;
use seqcast::daemon::interface::{Family, choose};
use seqcast::daemon::multicast::{SocketOptions, Sockets};
use serde_json::Value;
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Runs `body` as the root of a user, network, mount and process namespace of its own, by running this very test
/// again in there. All its processes and devices end with the namespace. If the kernel does not allow that, the test
/// fails with an explanation.
pub fn in_namespaces(test: &str, body: fn()) {
    in_namespaces_for(test, Duration::from_secs(300), || (Vec::new(), ()), body);
}

/// Runs `body` like [`in_namespaces`], with a time limit of its own after which the run is killed. `beside` starts
/// what runs outside until then, and returns environment variables that describe it.
pub fn in_namespaces_for<T>(
    test: &str,
    time: Duration,
    beside: impl FnOnce() -> (Vec<(&'static str, String)>, T),
    body: fn(),
) {
    if env::var_os(INSIDE).is_some() {
        return body();
    }
    let (variables, _beside) = beside();
    let unshare = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child"];
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", &time.as_secs().to_string()]).args(unshare).args(["--mount-proc", "--"]);
    command.arg(env::current_exe().expect("a test knows its own file"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(INSIDE, "1").envs(variables);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("timeout and unshare are installed (coreutils, util-linux)");
    let err = child.stderr.take().expect("standard error is a pipe");
    let err = thread::spawn(move || io::read_to_string(err).expect("it says text"));
    let mut has_passed = false;
    // Output is shown as it comes, since the run may take long.
    for line in BufReader::new(child.stdout.take().expect("standard output is a pipe")).lines() {
        let line = line.expect("it prints text");
        println!("{line}");
        has_passed |= line.contains("1 passed");
    }
    let status = child.wait().expect("it can be waited for");
    let err = err.join().expect("it is read to its end");
    print!("{err}");
    assert!(
        !err.contains("unshare: "),
        "this machine does not allow network namespaces: {err}; fix: sysctl -w kernel.unprivileged_userns_clone=1, \
         sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or in a container: run it with CAP_SYS_ADMIN"
    );
    assert!(status.success() && has_passed, "{test} failed in its namespaces: {status}");
}

/// Hosts on one switch. The test itself sits at the switch, where nothing is lost.
#[derive(Clone)]
pub struct Lan {
    /// The hosts, from the first.
    pub hosts: Vec<Host>,
}

impl Lan {
    /// Cables `count` hosts to a switch. Buffers of several datagrams are divided before they reach the cable, as by
    /// the cards of real hosts: a rule hits single datagrams.
    pub fn new(count: usize) -> Lan {
        let mut script = String::from(
            "mount -t tmpfs tmpfs /run
             ip link set lo up
             ip link add br0 type bridge mcast_snooping 0
             ip addr add 10.75.0.254/24 dev br0
             ip addr add fd75::fe/64 dev br0 nodad
             ip link set br0 up\n",
        );
        for host in 1..=count {
            script += &format!("ip netns add h{host}\nip -n h{host} link set lo up\n{}", connect(Host::numbered(host)));
        }
        run(Command::new("sh").args(["-e", "-c", &script]));
        let lan = Lan { hosts: (1..=count).map(Host::numbered).collect() };
        lan.hosts.iter().for_each(|host| lan.await_link(host));
        lan
    }

    /// Replaces the network card of a host by a new one of the same name and with the same addresses.
    pub fn replace_card(&self, host: &Host) {
        run(Command::new("sh").args(["-e", "-c", &connect(*host)]));
        self.await_link(host);
    }

    /// Waits until the switch and the host can reach each other.
    fn await_link(&self, host: &Host) {
        // The kernel takes a while to notice that a cable is plugged in; until then the switch forwards nothing.
        let port = format!("port{}", host.number);
        let port = || run(Command::new("ip").args(["-d", "-o", "link", "show", "dev", &port]));
        wait_until("the switch forwards", || port().contains("state forwarding"));
        let card = || run(host.command("ip").args(["-o", "link", "show", "dev", "eth0"]));
        wait_until("the host is on the switch", || card().contains("state UP"));
    }

    /// Duplicates the matching datagrams that the switch forwards from one host to another.
    pub fn duplicate(&self, from: &Host, to: &Host, matching: &str) {
        let rule = format!("{matching} counter name hits dup to \"port{}\"", to.number);
        nft(&mut Command::new("nft"), &format!("port{}", from.number), &rule);
    }

    /// Makes the switch act on datagrams from a host, as [`Host::fault`] does at the host.
    pub fn fault(&self, from: &Host, statements: &str) {
        nft(&mut Command::new("nft"), &format!("port{}", from.number), statements);
    }

    /// Makes the switch forward multicasts only to members of the group. It queries membership every second, and
    /// forgets in 2.5 s a host that does not answer. The test itself, at the switch, gets all multicasts.
    pub fn snoop(&self) {
        let timers = "mcast_query_interval 100 mcast_query_response_interval 50 mcast_startup_query_interval 50 \
                      mcast_membership_interval 250";
        // A switch that begins to query forwards everything for one response interval more: that comes first.
        for settings in [timers, "mcast_router 2 mcast_snooping 1 mcast_query_use_ifaddr 1 mcast_querier 1"] {
            let bridge = ["link", "set", "br0", "type", "bridge"];
            run(Command::new("ip").args(bridge).args(settings.split_whitespace()));
        }
    }

    /// Returns whether the switch knows that a host wants a group.
    pub fn has_member(&self, host: &Host, group: IpAddr) -> bool {
        let known = run(Command::new("bridge").args(["mdb", "show", "dev", "br0"]));
        known.lines().any(|line| line.contains(&format!("port port{} grp {group} ", host.number)))
    }

    /// Returns how often the fault at the switch has matched so far.
    pub fn hits(&self) -> u64 {
        hits(&mut Command::new("nft"))
    }

    /// Ends the fault at the switch and returns how often it matched.
    pub fn heal(&self) -> u64 {
        heal(|| Command::new("nft"))
    }
}

/// Returns the commands that give a host a network card with its addresses, and a cable to the switch.
fn connect(host: Host) -> String {
    let (name, number, address) = (host.namespace(), host.number, host.address());
    format!(
        "{}
         ip -n {name} addr add {address}/24 dev eth0
         ip -n {name} addr add fd75::{number}/64 dev eth0 nodad
         ip -n {name} link set eth0 up\n",
        insert_card(host, "", "br0")
    )
}

/// Returns the commands that give a host a network card, with a cable to a switch. `options` of ip(8) choose the
/// namespace of the switch.
pub fn insert_card(host: Host, options: &str, switch: &str) -> String {
    let (name, number) = (host.namespace(), host.number);
    format!(
        "ip {options} link add port{number} gso_max_segs 1 type veth peer name eth0 gso_max_segs 1 netns {name}
         ip {options} link set port{number} master {switch} up"
    )
}

/// One host.
#[derive(Clone, Copy)]
pub struct Host {
    number: usize,
}

impl Host {
    /// Returns the host with this number, which is the last byte of its address.
    pub fn numbered(number: usize) -> Host {
        Host { number }
    }

    /// Returns its address.
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 75, 0, u8::try_from(self.number).expect("the last byte of an address"))
    }

    /// Returns the name of its network namespace.
    pub fn namespace(&self) -> String {
        format!("h{}", self.number)
    }

    /// Returns a command that runs a program on this host.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(), program]).stdin(Stdio::null());
        command
    }

    /// Starts a program on this host that reads the lines of [`Process::write`].
    pub fn start(&self, program: &str, arguments: &[&str]) -> Process {
        Process::start(self.command(program).args(arguments).stdin(Stdio::piped()))
    }

    /// Runs a program on this host to its end and returns what it printed; it must succeed.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        run(self.command(program).args(arguments))
    }

    /// Starts a peer with this name and waits until it answers.
    pub fn start_peer(&self, name: &str, group: IpAddr, settings: &[&str]) -> Peer {
        self.start_in_environment(name, group, settings, &[])
    }

    /// Starts a peer like [`Host::start_peer`], which notifies the service manager at this socket.
    pub fn start_service(&self, name: &str, group: IpAddr, settings: &[&str], notify_socket: Option<&str>) -> Peer {
        let variables: Vec<_> = notify_socket.map(|path| ("NOTIFY_SOCKET", path)).into_iter().collect();
        self.start_in_environment(name, group, settings, &variables)
    }

    /// Starts a peer like [`Host::start_peer`]. Its wall clock differs by an offset such as `+60s`.
    pub fn start_peer_with_clock(&self, name: &str, group: IpAddr, settings: &[&str], offset: &str) -> Peer {
        // The dynamic linker replaces `$LIB`. Clocks that never go back stay as they are.
        let library = "/usr/$LIB/faketime/libfaketime.so.1";
        let variables = [("LD_PRELOAD", library), ("FAKETIME", offset), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        self.start_in_environment(name, group, settings, &variables)
    }

    fn start_in_environment(&self, name: &str, group: IpAddr, settings: &[&str], variables: &[(&str, &str)]) -> Peer {
        let mut peer = Peer { host: *self, name: name.to_owned(), process: None };
        let group = group.to_string();
        // Tests of keys say `security=auto` in their settings, which win.
        let mut arguments = vec!["peer", "--name", name, "--interface", "eth0", "--open", "--group", &group];
        // These tests are about losses: nothing is requested again unless a test says so.
        for setting in ["reliability=5 ms"].iter().chain(settings) {
            arguments.extend(["--set", setting]);
        }
        let log = fs::File::options().create(true).append(true).open(peer.file("log")).expect("/run can be written");
        wait_until("the peer answers", || {
            // The peer ends if a database that it needs is away. Like a service manager, this starts it again.
            if peer.process.as_mut().is_none_or(Process::has_ended) {
                let log = log.try_clone().expect("a file can be open twice");
                let mut command = peer.seqcast(&arguments);
                peer.process = Some(Process::start(command.envs(variables.iter().copied()).stderr(log)));
            }
            Bus::attach(peer.file("sock")).is_ok()
        });
        peer
    }

    /// Makes this host's network card act on arriving datagrams by nftables statements such as `udp dport 7500 drop`.
    /// Datagrams that reach `counter name hits` in them are counted. The host's own multicasts, looped back, are
    /// excluded. Replaces the fault before.
    pub fn fault(&self, statements: &str) {
        let own = format!("ip saddr {} accept\nip6 saddr fd75::{} accept", self.address(), self.number);
        nft(&mut self.command("nft"), "eth0", &format!("{own}\n{statements}"));
    }

    /// Returns how often the fault has hit so far.
    pub fn hits(&self) -> u64 {
        hits(&mut self.command("nft"))
    }

    /// Ends the fault and returns how often it has hit.
    pub fn heal(&self) -> u64 {
        heal(|| self.command("nft"))
    }

    /// Makes this host's firewall refuse matching datagrams on the way `input` or `output`.
    pub fn forbid(&self, way: &str, matching: &str) {
        let chain = format!("type filter hook {way} priority 0");
        let table = format!("table inet faults {{\nchain {way} {{\n{chain}\n{matching} drop\n}}\n}}\n");
        run(self.command("nft").arg(table));
    }

    /// Removes the rules of [`Host::forbid`].
    pub fn allow(&self) {
        run(self.command("nft").args(["delete", "table", "inet", "faults"]));
    }

    /// Returns the number of datagrams that the kernel has dropped at the UDP sockets of this host, all together.
    pub fn kernel_drops(&self) -> u64 {
        let tables = run(self.command("cat").args(["/proc/net/udp", "/proc/net/udp6"]));
        // The last column is the count; that of the headings is no number.
        tables.lines().filter_map(|line| line.split_whitespace().next_back()?.parse::<u64>().ok()).sum()
    }

    /// Opens sockets on this host for the test itself.
    pub fn sockets(&self, group: IpAddr, port: u16) -> Sockets {
        self.within(move || open_sockets("eth0", group, port))
    }

    /// Runs a closure on this host. A socket stays in the namespace it was opened in, and a thread in that of the
    /// thread which started it.
    pub fn within<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        let name = format!("/run/netns/{}", self.namespace());
        let inside = move || {
            let namespace = fs::File::open(&name).expect("ip netns keeps the namespace there");
            // SAFETY: the call takes two numbers; it moves this thread alone, which ends below.
            let moved = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(moved, 0, "{name}: {}", std::io::Error::last_os_error());
            what()
        };
        thread::spawn(inside).join().expect("it can be done on the host")
    }
}

/// Opens sockets on an interface of the namespace this thread is in.
pub fn open_sockets(interface: &str, group: IpAddr, port: u16) -> Sockets {
    let interface = choose(&InterfaceSpec::Name(interface.into()), Family::of(group)).expect("every host has it");
    let buffers = 4 << 20;
    let options = SocketOptions {
        group,
        port,
        interface: &interface,
        inbox_port: 0,
        ttl: 1,
        receive_buffer: buffers,
        send_buffer: buffers,
    };
    Sockets::open(&options).expect("the group can be joined")
}

/// A peer on a host.
pub struct Peer {
    host: Host,
    name: String,
    process: Option<Process>,
}

impl Peer {
    /// Returns its process.
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("it was started")
    }

    /// Kills it without a chance to say goodbye.
    pub fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Returns a `seqcast` command attached to this peer.
    fn seqcast(&self, arguments: &[&str]) -> Command {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_seqcast"));
        command.args(arguments).arg("--socket").arg(self.file("sock")).current_dir("/run");
        // Nothing that the user of the machine keeps is opened: a journal would be announced by multicast.
        command.env("XDG_STATE_HOME", self.file("state"));
        command
    }

    /// Runs a verb of the command line attached to this peer, and returns what it printed; it must succeed.
    pub fn run(&self, arguments: &[&str]) -> String {
        run(&mut self.seqcast(arguments))
    }

    /// Attaches the test itself to this peer. A Unix socket does not belong to a network namespace.
    pub fn attach(&self) -> Bus {
        Bus::attach(self.file("sock")).unwrap_or_else(|error| panic!("{} cannot be reached: {error}", self.name))
    }

    /// Returns a report of this peer. The test asks by itself, since a command for each poll would occupy a processor.
    pub fn report(&self, what: &str) -> Value {
        self.attach().show(what).unwrap_or_else(|error| panic!("{} does not report {what}: {error}", self.name))
    }

    /// Returns the rows of a report of this peer.
    pub fn rows(&self, what: &str) -> Vec<Value> {
        let report = self.report(what);
        report["rows"].as_array().unwrap_or_else(|| panic!("no rows: {report}")).clone()
    }

    /// Returns one of its counters.
    pub fn counter(&self, name: &str) -> u64 {
        let rows = self.rows("counters");
        let row = rows.iter().find(|row| row["counter"] == name).unwrap_or_else(|| panic!("no {name} in {rows:?}"));
        row["value"].as_u64().expect("counters are numbers")
    }

    /// Subscribes and waits until the peer knows it.
    pub fn subscribe(&self, pattern: &str) -> Process {
        let process = Process::start(&mut self.seqcast(&["sub", pattern, "--json"]));
        wait_until("the subscription is in force", || self.rows("subs").iter().any(|row| row["pattern"] == pattern));
        process
    }

    /// Subscribes like [`Peer::subscribe`], as a member of a queue group.
    pub fn join(&self, pattern: &str, queue: &str) -> Process {
        let members = || self.rows("subs").iter().filter(|row| row["queue"] == queue).count();
        let before = members();
        let process = Process::start(&mut self.seqcast(&["sub", pattern, "--queue", queue, "--json"]));
        wait_until("the subscription is in force", || before < members());
        process
    }

    /// Publishes `count` messages, `rate` a second; their payloads are 1, 2, 3 …
    pub fn publish(&self, subject: &str, count: u64, rate: u64) -> Process {
        let (count, rate) = (count.to_string(), format!("{rate}/s"));
        Process::start(&mut self.seqcast(&["pub", subject, "{{count}}", "--count", &count, "--rate", &rate]))
    }

    /// Publishes one message.
    pub fn publish_one(&self, subject: &str, payload: &str) {
        run(&mut self.seqcast(&["pub", subject, payload]));
    }

    /// Returns the lines that it has logged so far.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.file("log")).expect("a peer logs text");
        text.lines().map(str::to_owned).collect()
    }

    fn file(&self, extension: &str) -> PathBuf {
        PathBuf::from(format!("/run/{}.{extension}", self.name))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        show_log_after_failure(&self.name, &self.file("log"));
    }
}

/// Shows the end of a log file of a program if the test is failing.
pub fn show_log_after_failure(program: &str, file: &Path) {
    if thread::panicking() {
        let log = fs::read(file).unwrap_or_default();
        let end = &log[log.len().saturating_sub(LOG_BYTES_SHOWN)..];
        println!("--- log of {program}:\n{}", String::from_utf8_lossy(end));
    }
}

/// A running program. It is killed, and has ended, when this value is dropped.
pub struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    /// Starts a program; its standard output is read as it comes.
    pub fn start(command: &mut Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let out = child.stdout.take().expect("standard output is a pipe");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let read = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                read.lock().expect("no reader panics").push(line);
            }
        });
        Process { child, lines }
    }

    /// Gives it a line to read.
    pub fn write(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("its standard input is a pipe");
        writeln!(input, "{line}").expect("it reads what it is given");
    }

    /// Returns the lines it has printed so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no reader panics").clone()
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it can be waited for").is_some()
    }

    /// Waits for its success.
    pub fn finish(mut self) {
        let status =
            wait_until_some(|| "the command ends".into(), || self.child.try_wait().expect("it can be waited for"));
        assert!(status.success(), "it ended with {status}");
    }

    /// Sends it a signal: `KILL`, `STOP`, `CONT`, `TERM`.
    pub fn signal(&self, name: &str) {
        run(Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that has ended already cannot be killed, which is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs a command to its end and returns what it printed; it must succeed.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {err}", output.status);
    String::from_utf8(output.stdout).expect("it prints text")
}

/// Replaces the fault at one device.
fn nft(nft: &mut Command, device: &str, statements: &str) {
    let table = format!(
        "table netdev faults
         delete table netdev faults
         table netdev faults {{
             counter hits {{
             }}
             chain ingress {{
                 type filter hook ingress device {device} priority 0
                 {statements}
             }}
         }}\n"
    );
    run(nft.arg(table));
}

/// Ends the fault, then reads its counter, which nothing can change any more.
fn heal(nft: impl Fn() -> Command) -> u64 {
    run(nft().args(["flush", "chain", "netdev", "faults", "ingress"]));
    let hits = hits(&mut nft());
    run(nft().args(["delete", "table", "netdev", "faults"]));
    hits
}

/// Returns the counter of the fault at one device.
fn hits(nft: &mut Command) -> u64 {
    let text = run(nft.args(["-j", "list", "counter", "netdev", "faults", "hits"]));
    let listed: Value = serde_json::from_str(&text).expect("nft prints JSON");
    find(&listed, "packets").and_then(Value::as_u64).unwrap_or_else(|| panic!("no packets in {text}"))
}

/// Returns the value of the first field of this name, at any depth.
fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => fields.get(name).or_else(|| fields.values().find_map(|inner| find(inner, name))),
        Value::Array(items) => items.iter().find_map(|inner| find(inner, name)),
        _ => None,
    }
}

/// Environment variable that is set in the namespaces.
const INSIDE: &str = "TEST_IN_NAMESPACES";

/// Bytes at the end of each log that are shown after a failure.
const LOG_BYTES_SHOWN: usize = 8 * 1024;
