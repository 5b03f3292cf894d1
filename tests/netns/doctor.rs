//! Tests of `seqcast doctor`: the kernel makes each fault, and the check of that fault names it.

use super::lan::{Host, Lan, in_namespaces, run};
use super::{PORT, group, let_time_pass, wait_until};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The report of `seqcast doctor` and its exit code.
#[derive(Debug)]
struct Diagnosis {
    exit: String,
    report: Value,
}

impl Diagnosis {
    /// Runs `seqcast doctor` on a host, after the commands of `before` in the same mount namespace.
    fn of(host: Host, before: &str, options: &str) -> Diagnosis {
        let script = format!("{before}\n{} doctor {options} --json\necho $?", env!("CARGO_BIN_EXE_seqcast"));
        let text = host.run("sh", &["-c", &script]);
        let (report, exit) = text.trim_end().rsplit_once('\n').unwrap_or_else(|| panic!("no exit code: {text}"));
        let report = serde_json::from_str(report).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"));
        Diagnosis { exit: exit.to_owned(), report }
    }

    /// Expects an outcome of a check with this state, whose finding contains a text.
    fn expect(&self, check: &str, state: &str, found: &str) {
        let outcomes = self.report["checks"].as_array().expect("a list");
        let is_meant = |outcome: &&Value| {
            outcome["check"] == check && outcome["state"] == state && outcome["found"].to_string().contains(found)
        };
        assert!(outcomes.iter().any(|outcome| is_meant(&outcome)), "no {check} {state} {found:?}: {:#}", self.report);
    }
}

/// A program on the second host that sends datagrams of its own to the group, until it is dropped.
struct ForeignProgram {
    stops: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ForeignProgram {
    fn start(host: Host, group: SocketAddr) -> ForeignProgram {
        let socket = host.within(|| UdpSocket::bind((Ipv4Addr::new(10, 75, 0, 2), 0)).expect("a port is free"));
        let stops = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stops);
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                for datagram in [&[0x55; 1000][..], b"SC\x09 of a later version"] {
                    socket.send_to(datagram, group).expect("a LAN takes it");
                }
                let_time_pass(
                    Duration::from_millis(2),
                    "a program sends all the time, and leaves the host some processor time",
                );
            }
        });
        ForeignProgram { stops, thread: Some(thread) }
    }
}

impl Drop for ForeignProgram {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        // A program that has failed has shown why.
        drop(self.thread.take().map(thread::JoinHandle::join));
    }
}

/// Binds a UDP socket on a host; with `shares` others may bind the same address.
fn bind(host: Host, address: SocketAddr, shares: bool) -> Socket {
    host.within(move || {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP)).expect("a socket");
        if shares {
            socket.set_reuse_address(true).expect("an option");
            socket.set_reuse_port(true).expect("an option");
        }
        socket.set_recv_buffer_size(1).expect("an option");
        socket.bind(&address.into()).expect("the address is free");
        socket
    })
}

fn sysctl(host: Host, setting: &str) {
    host.run("sysctl", &["-q", "-w", setting]);
}

#[test]
fn broken_hosts_are_diagnosed() {
    in_namespaces("netns::doctor::broken_hosts_are_diagnosed", || {
        let lan = Lan::new(1);
        let host = lan.hosts[0];
        let healthy = Diagnosis::of(host, "", "--interface eth0");
        assert_eq!((healthy.exit.as_str(), &healthy.report["ok"]), ("0", &true.into()), "{:#}", healthy.report);
        healthy.expect("interface", "ok", "eth0 10.75.0.1");
        healthy.expect("self_test", "ok", "comes back on eth0");
        healthy.expect("port", "ok", "is free");
        healthy.expect("igmp", "ok", "IGMP V3 on eth0");
        healthy.expect("firewall", "ok", "no rule drops UDP port 7500");
        healthy.expect("traffic", "ok", "no peer was heard");

        let broken = |options: &str, check: &str, found: &str| {
            let diagnosis = Diagnosis::of(host, "", options);
            assert_eq!(diagnosis.exit, "1", "{:#}", diagnosis.report);
            diagnosis.expect(check, "broken", found);
            diagnosis
        };
        broken("--interface eth9", "interface", "no interface 'eth9'");
        // IPv6 on loopback lacks a route until somebody adds it.
        broken("--interface lo --group ff15::5343", "route", "no way to ff15::5343 by lo");
        host.forbid("input", "udp dport 7500");
        let silent = broken("--interface eth0", "self_test", "does not come back");
        silent.expect("firewall", "warning", "udp dport 7500 drop");
        host.allow();
        host.forbid("output", "udp dport 7500");
        broken("--interface eth0", "self_test", "refuses to send");
        host.allow();
        sysctl(host, "net.ipv4.igmp_max_memberships=0");
        broken("--interface eth0", "memberships", "at most 0 multicast groups");
        sysctl(host, "net.ipv4.igmp_max_memberships=20");
        let holder = bind(host, (group(), PORT).into(), false);
        broken("--interface eth0", "port", "the group's port is busy");
        drop(holder);
        host.run("ip", &["link", "set", "eth0", "down"]);
        broken("--interface eth0", "interface", "is down");
    });
}

#[test]
fn doubtful_hosts_are_diagnosed() {
    in_namespaces("netns::doctor::doubtful_hosts_are_diagnosed", || {
        let lan = Lan::new(2);
        let [host, other] = [lan.hosts[0], lan.hosts[1]];
        // All these faults leave the host able to multicast.
        let _wildcard = bind(host, (Ipv4Addr::UNSPECIFIED, PORT).into(), true);
        let slow = bind(host, (group(), PORT).into(), true);
        let IpAddr::V4(group_v4) = group() else { panic!("the group is IPv4") };
        slow.join_multicast_v4(&group_v4, &Ipv4Addr::new(10, 75, 0, 1)).expect("the group can be joined");
        host.run("ip", &["link", "add", "eth1", "type", "veth", "peer", "name", "eth2"]);
        host.run("ip", &["link", "set", "eth2", "up"]);
        host.run("ip", &["address", "add", "10.76.0.1/24", "dev", "eth1"]);
        host.run("ip", &["link", "set", "eth1", "up"]);
        // The kernel may take a second to notice the carrier.
        wait_until("eth1 has a carrier", || host.run("ip", &["link", "show", "dev", "eth1"]).contains("state UP"));
        sysctl(host, "net.ipv4.conf.all.rp_filter=1");
        sysctl(host, "net.ipv4.conf.eth0.force_igmp_version=1");
        host.forbid("output", "ip protocol igmp");
        let _program = ForeignProgram::start(other, (group(), PORT).into());
        wait_until("the slow socket has lost datagrams", || 0 < host.kernel_drops());
        std::fs::write("/run/.containerenv", "").expect("/run can be written");
        let options = "--interface eth0 --set ttl=0 --set datagram-size=9000 --set receive-buffer='1 gb'";
        let doubtful = Diagnosis::of(host, "", options);
        assert_eq!((doubtful.exit.as_str(), &doubtful.report["state"]), ("0", &"warning".into()), "{doubtful:?}");
        doubtful.expect("port", "warning", "0.0.0.0:7500 of user 0");
        doubtful.expect("drops", "warning", "at the sockets of peers");
        doubtful.expect("reverse_path", "warning", "whose route leaves by eth1");
        doubtful.expect("igmp", "warning", "IGMP V1");
        doubtful.expect("firewall", "warning", "drop");
        doubtful.expect("ttl", "warning", "keeps multicasts on this host");
        doubtful.expect("mtu", "warning", "9000 bytes do not fit the MTU of eth0");
        doubtful.expect("buffers", "warning", "asked for a receive buffer of 1 GiB");
        doubtful.expect("container", "warning", "a network of its own");
        doubtful.expect("traffic", "warning", "another program arrive in 239.255.83.67 port 7500, from 10.75.0.2");
        doubtful.expect("traffic", "warning", "another version or security mode send here: 10.75.0.2");

        host.run("ip", &["link", "set", "eth0", "mtu", "9000"]);
        let radio = "mount -t tmpfs tmpfs /sys/class/net/eth0/ && mkdir /sys/class/net/eth0/phy80211";
        let radio = Diagnosis::of(host, radio, "--interface eth0");
        radio.expect("link", "notice", "eth0 is a radio network");
        radio.expect("mtu", "notice", "the MTU of eth0 is 9000");
        let loopback = Diagnosis::of(host, "", "--interface lo");
        loopback.expect("interface", "notice", "leads to this host only");
    });
}

#[test]
fn running_peer_is_diagnosed() {
    in_namespaces("netns::doctor::running_peer_is_diagnosed", || {
        let lan = Lan::new(2);
        let [host, other] = [lan.hosts[0], lan.hosts[1]];
        let group = "239.1.2.3".parse().expect("an address");
        let peer = host.start_peer("A.doctor", group, &["port=7777"]);
        let options = "--socket /run/A.doctor.sock";
        let healthy = Diagnosis::of(host, "", options);
        assert_eq!((&healthy.report["group"], &healthy.report["port"]), (&"239.1.2.3".into(), &7777.into()));
        healthy.expect("peer", "ok", "A.doctor runs in 239.1.2.3 port 7777");
        healthy.expect("igmp", "ok", "eth0 is a member of 239.1.2.3");
        healthy.expect("port", "ok", "used by one peer of this host");
        healthy.expect("identity", "ok", "an address of its own");

        let twin = ["peer", "--name", "A.doctor", "--interface", "eth0", "--group", "239.1.2.3", "--port", "7777"];
        let places = ["--open", "--socket", "/run/twin.sock", "--set", "data-dir=/run/twin"];
        let _twin = other.start(env!("CARGO_BIN_EXE_seqcast"), &[&twin[..], &places].concat());
        let _program = ForeignProgram::start(other, (group, 7777).into());
        wait_until("the peer knows both", || {
            peer.rows("peers").iter().any(|row| row["duplicate_name"] == true) && 0 < peer.counter("discard_version")
        });
        host.forbid("output", "udp dport 7777");
        wait_until("the peer has a finding", || {
            peer.report("health")["health"]["findings"].to_string().contains("sending")
        });
        let broken = Diagnosis::of(host, "", options);
        assert_eq!(broken.exit, "1", "{:#}", broken.report);
        broken.expect("peer", "broken", "it reports (sending)");
        broken.expect("identity", "warning", "live peers share a name: A.doctor");
        broken.expect("datagrams", "warning", "of another version");
    });
}

#[test]
fn remedies_are_printed_and_harmless_ones_applied() {
    in_namespaces("netns::doctor::remedies_are_printed_and_harmless_ones_applied", || {
        run(Command::new("ip").args(["link", "set", "lo", "up"]));
        let doctor = format!("{} doctor --interface lo --set receive-buffer='1 gb'", env!("CARGO_BIN_EXE_seqcast"));
        let limit = "/proc/sys/net/core/rmem_max";
        let script = format!(
            "mount -t tmpfs tmpfs /proc/sys/net/core && echo 212992 > {limit}
             {doctor} --fix && {doctor} --fix --yes && cat {limit}"
        );
        let out = run(Command::new("sh").args(["-e", "-c", &script]));
        assert!(out.contains("\n# buffers: asked for a receive buffer of 1 GiB"), "{out}");
        assert!(out.contains("\nsysctl -w net.core.rmem_max=1073741824\n"), "{out}");
        assert!(
            out.contains("net.core.rmem_max: 212992 -> 1073741824; restart the peer to use it\n1073741824\n"),
            "{out}"
        );
    });
}

#[test]
fn path_to_another_host_is_diagnosed() {
    in_namespaces("netns::doctor::path_to_another_host_is_diagnosed", || {
        let lan = Lan::new(2);
        let [host, other] = [lan.hosts[0], lan.hosts[1]];
        let listener = other.start(env!("CARGO_BIN_EXE_seqcast"), &["doctor", "--listen", "--interface", "eth0"]);
        wait_until("the other doctor listens", || !listener.lines().is_empty());
        let options = "--interface eth0 --with 10.75.0.2";
        let healthy = Diagnosis::of(host, "", options);
        assert_eq!(healthy.exit, "0", "{:#}", healthy.report);
        let all = "here -> 10.75.0.2 50/50, 10.75.0.2 -> here 50/50";
        healthy.expect("unicast", "ok", all);
        healthy.expect("multicast", "ok", all);
        healthy.expect("path_mtu", "ok", "1472 bytes");
        healthy.expect("fragments", "ok", "arrive");
        healthy.expect("delay", "ok", "(each ±");
        wait_until("it names the prober", || listener.lines().iter().any(|line| line.contains("10.75.0.1:")));

        other.fault("ip daddr 239.255.83.67 drop\nip frag-off & 0x3fff != 0 counter name hits drop");
        let snooped = Diagnosis::of(host, "", options);
        assert_eq!(
            (snooped.exit.as_str(), &snooped.report["path"]["multicast_small"]["there"]["arrived"]),
            ("1", &0.into())
        );
        snooped.expect("unicast", "ok", all);
        snooped.expect("multicast", "broken", "here -> 10.75.0.2 0/50, 10.75.0.2 -> here 50/50");
        snooped.expect("fragments", "notice", "in fragments");
        other.heal();

        other.run("ip", &["link", "set", "eth0", "mtu", "1400"]);
        let narrow = Diagnosis::of(host, "", options);
        narrow.expect("unicast", "ok", all);
        narrow.expect("path_mtu", "broken", "unicast of 1472 bytes: here -> 10.75.0.2 0/50");

        drop(listener);
        let alone = Diagnosis::of(host, "", options);
        assert_eq!(alone.exit, "1", "{:#}", alone.report);
        alone.expect("unicast", "broken", "no peer and no doctor answers at 10.75.0.2:7500");
    });
}

#[test]
fn running_peer_answers_the_doctor_unless_forbidden() {
    in_namespaces("netns::doctor::running_peer_answers_the_doctor_unless_forbidden", || {
        let lan = Lan::new(3);
        let [host, other, third] = [lan.hosts[0], lan.hosts[1], lan.hosts[2]];
        let near = host.start_peer("A.path", group(), &[]);
        // A peer that sends by unicast answers by multicast all the same: the test is about the network.
        let far = other.start_peer("B.path", group(), &["peers=10.75.0.1"]);
        let silent = third.start_peer("C.path", group(), &["path-tests=off"]);
        wait_until("the near peer knows the far one", || {
            near.rows("peers").iter().any(|row| row["publisher"] == "B.path" && row["state"] == "up")
        });
        let options = "--socket /run/A.path.sock --with";
        let healthy = Diagnosis::of(host, "", &format!("{options} B.path"));
        assert_eq!(healthy.exit, "0", "{:#}", healthy.report);
        let all = "here -> B.path 50/50, B.path -> here 50/50";
        healthy.expect("unicast", "ok", all);
        healthy.expect("multicast", "ok", all);
        healthy.expect("path_mtu", "ok", "1472 bytes");
        healthy.expect("fragments", "ok", "arrive");
        healthy.expect("delay", "ok", "(each ±");
        // 450 probes, a question before and one behind them, which may be repeated.
        let received = far.counter("path_tests_received");
        assert!((452..462).contains(&received), "{received}");
        assert_eq!((far.counter("path_tests_discarded"), far.counter("discard_foreign")), (0, 0));
        assert!(far.log().iter().any(|line| line.contains("another host tests the path to this peer")));
        assert!(0 < silent.counter("discard_foreign"), "it takes the multicasts for those of another program");

        other.fault("ip daddr 239.255.83.67 drop");
        let snooped = Diagnosis::of(host, "", &format!("{options} B.path"));
        assert_eq!(snooped.exit, "1", "{:#}", snooped.report);
        snooped.expect("multicast", "broken", "here -> B.path 0/50, B.path -> here 50/50");
        other.heal();

        let refused = Diagnosis::of(host, "", &format!("{options} C.path"));
        refused.expect("unicast", "broken", "no peer and no doctor answers at 10.75.0.3:7500");
        let listen = |host: Host| {
            let script = format!("{} doctor --listen --interface eth0 2>&1 || true", env!("CARGO_BIN_EXE_seqcast"));
            host.run("sh", &["-c", &script])
        };
        let busy = listen(other);
        assert!(busy.contains("a peer or a doctor of this host answers at 10.75.0.2:7500 already"), "{busy}");
        assert!(busy.contains("run: seqcast doctor --with 10.75.0.2:7500"), "{busy}");
        let silent_port = listen(third);
        assert!(silent_port.contains("10.75.0.3:7500 is in use"), "{silent_port}");
    });
}
