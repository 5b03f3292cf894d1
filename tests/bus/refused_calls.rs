//! Programs to which the system refuses what makes them fast: memory without files, locked memory, and socket filters.
//! They become slower, and report it. Nothing is lost.

use super::shared_memory::rows;
use crate::support::bus::{PATIENCE, messages};
use crate::support::command::{Outcome, Place, RunningCommand, wait_with_output};
use crate::support::exit_code::DONE;
use crate::support::wait::wait_until;
use seqcast::bus::Bus;
use seqcast::message::Message;
use serde_json::Value;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

const MIB: usize = 1 << 20;

/// A system call that is refused with an error.
struct RefusedCall {
    number: libc::c_long,
    /// Arguments of a refused call, each by its position and its value. Calls with other arguments are permitted.
    arguments: &'static [(u32, u32)],
    error: libc::c_int,
}

/// The system has no memfd.
const NO_MEMFD: RefusedCall = RefusedCall { number: libc::SYS_memfd_create, arguments: &[], error: libc::ENOSYS };
/// The system has no memory left for a memfd.
const NO_MEMORY: RefusedCall = RefusedCall { number: libc::SYS_fallocate, arguments: &[], error: libc::ENOSPC };
/// The system has no socket filters.
const NO_FILTER: RefusedCall = RefusedCall {
    number: libc::SYS_setsockopt,
    arguments: &[(1, libc::SOL_SOCKET as u32), (2, libc::SO_ATTACH_FILTER as u32)],
    error: libc::ENOPROTOOPT,
};

impl RefusedCall {
    /// Returns the program of a seccomp filter.
    fn filter(&self) -> Vec<libc::sock_filter> {
        let step = |code: u32, jf: usize, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: jf as u8, k };
        let number = u32::try_from(self.number).expect("a small number");
        // The number is at offset 0 of the data of a call; the arguments, of eight bytes each, begin at offset 16. The
        // lower half of an argument comes first.
        let arguments = self.arguments.iter().map(|(position, value)| (16 + 8 * position, *value));
        let checks: Vec<(u32, u32)> = std::iter::once((0, number)).chain(arguments).collect();
        let mut steps = Vec::new();
        for (index, (offset, value)) in checks.iter().enumerate() {
            steps.push(step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, *offset));
            let to_permission = 2 * (checks.len() - 1 - index) + 1;
            steps.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, to_permission, *value));
        }
        steps.push(step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | self.error as u32));
        steps.push(step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
        steps
    }

    /// Makes the system refuse the call to a program.
    fn refuse_to(&self, command: &mut Command) {
        let mut steps = self.filter();
        let install = move || {
            let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
            // SAFETY: the call takes numbers only.
            check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
            // SAFETY: the program and its steps outlive the call.
            check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) })
        };
        // SAFETY: the closure makes two system calls, and takes no memory.
        unsafe { command.pre_exec(install) };
    }
}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Starts the peer of a place after `prepare`.
fn peer(place: &Place, arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> RunningCommand {
    let arguments = [&["peer"], arguments].concat();
    let mut command = place.command(&arguments);
    prepare(&mut command);
    place.reachable(RunningCommand::new(command.spawn().expect("the built command starts"), &arguments))
}

fn counter(bus: &Bus, name: &str) -> u64 {
    bus.counters().unwrap().value(name).expect("the counter exists")
}

fn paths(bus: &Bus) -> Vec<Value> {
    rows(bus, "clients").into_iter().map(|row| row["path"].clone()).collect()
}

/// Publishes large payloads in lent memory, and checks that they arrive.
fn assert_large_payloads_arrive(publisher: &Bus, subscriber: &Bus) {
    let subscription = subscriber.subscribe("large".parse().unwrap()).unwrap();
    for seed in 0..5 {
        let mut buffer = publisher.loan(MIB).unwrap();
        buffer.iter_mut().zip(0u32..).for_each(|(byte, at)| *byte = (at / 1000) as u8 ^ seed);
        let payload = buffer.into_payload();
        publisher.publish_timeout(Message::new("large".parse().unwrap(), payload.clone()), PATIENCE).unwrap();
        assert!(messages(&subscription, 1)[0].message.payload == payload, "{seed}");
    }
}

#[test]
fn peer_without_memory_serves_by_the_socket() {
    for call in [NO_MEMFD, NO_MEMORY] {
        let place = Place::new();
        let _peer = peer(&place, &[], |command| call.refuse_to(command));
        let [a, b] = [(); 2].map(|()| Bus::attach(place.socket()).unwrap());
        assert!(!a.info().uses_shared_memory && !a.loan(MIB).unwrap().is_shared());
        assert_eq!((paths(&a), counter(&a, "shared_memory_refused")), (vec!["socket".into(), "socket".into()], 2));
        assert_large_payloads_arrive(&a, &b);
    }
}

#[test]
fn program_without_memory_copies_its_payloads() {
    for call in [NO_MEMFD, NO_MEMORY] {
        let place = Place::new();
        let _peer = place.peer(&[]);
        let bus = Bus::attach(place.socket()).unwrap();
        let subscription = bus.subscribe("large".parse().unwrap()).unwrap();
        let (path, content) = (place.dir().join("content"), vec![7; MIB]);
        std::fs::write(&path, &content).unwrap();
        let arguments = ["pub", "large", "--file", path.to_str().unwrap()];
        let mut command = place.command(&arguments);
        call.refuse_to(&mut command);
        let child = command.spawn().expect("the built command starts");
        Outcome::of(wait_with_output(child, &arguments), &arguments).exits(DONE);
        assert!(messages(&subscription, 1)[0].message.payload == content);
        assert_eq!((counter(&bus, "payloads_lent"), counter(&bus, "shared_memory_refused")), (0, 0));
        place.run(&arguments).exits(DONE);
        assert!(messages(&subscription, 1)[0].message.payload == content);
        assert_eq!(counter(&bus, "payloads_lent"), 1, "other programs still have memory");
    }
}

#[test]
fn limit_of_locked_memory_has_no_effect() {
    let place = Place::new();
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let set_limit = move || {
        // SAFETY: the structure outlives the call.
        check(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) })
    };
    // SAFETY: the closure makes one system call.
    let _peer = peer(&place, &[], |command| unsafe {
        command.pre_exec(set_limit);
    });
    let [a, b] = [(); 2].map(|()| Bus::attach(place.socket()).unwrap());
    assert_eq!((paths(&a), counter(&a, "shared_memory_refused")), (vec!["shm".into(), "shm".into()], 0));
    assert_large_payloads_arrive(&a, &b);
    assert_eq!(counter(&a, "payloads_lent"), 5);
}

#[test]
fn peer_without_socket_filters_receives_its_own_data() {
    let (here, there) = (Place::new(), Place::new());
    let port = here.port().to_string();
    let peers = [(&here, "A.test"), (&there, "B.test")].map(|(place, name)| {
        let settings = format!("name={name}");
        peer(place, &["--port", &port, "--set", &settings], |command| NO_FILTER.refuse_to(command))
    });
    peers.iter().for_each(|peer| drop(peer.await_report("come back whole: the kernel accepts no socket filter")));
    let [a, b] = [&here, &there].map(|place| Bus::attach(place.socket()).unwrap());
    wait_until("the peers meet", || [&a, &b].iter().all(|bus| rows(bus, "peers").len() == 1));
    assert_large_payloads_arrive(&a, &b);
    assert_large_payloads_arrive(&b, &a);
    for bus in [&a, &b] {
        assert_eq!(rows(bus, "loss")[0]["lost"], 0);
        assert!(0 < counter(bus, "discard_own"), "own data is discarded");
    }
}
