//! Receivers that read the shared memory themselves, beside other uses of the same connection.

use crate::support::bus::{PATIENCE, config_with_socket, message, messages, serve};
use crate::support::wait::let_time_pass;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use seqcast::bus::{Bus, Notice, RecvError, Subscription};
use seqcast::clock::Clock;
use seqcast::config::Config;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time after which the thread of a connection drives it again.
const LONG: Duration = Duration::from_millis(40);

/// Returns two attached programs, and a subscription of the second to `x.>`, whose receiver reads the memory itself.
fn programs(config: &Config) -> (Bus, Bus, Subscription) {
    let [publisher, program] = [(); 2].map(|()| Bus::attach(&config.socket).unwrap());
    assert!(program.info().uses_shared_memory);
    let subscription = program.subscribe("x.>".parse().unwrap()).unwrap();
    // After the first message the receiver drives.
    for payload in ["first", "second"] {
        publisher.publish(message("x.1", payload)).unwrap();
        assert_eq!(messages(&subscription, 1)[0].message.payload, payload);
    }
    (publisher, program, subscription)
}

#[test]
fn requests_are_answered_while_receivers_drive() {
    let (config, _directory) = config_with_socket("answers");
    let _peer = serve(&config);
    let (publisher, program, subscription) = programs(&config);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut received = 0;
            while !is_done.load(Ordering::Relaxed) {
                received += usize::from(subscription.recv_timeout(Duration::from_millis(5)).is_ok());
            }
            received
        });
        for number in 0..50 {
            publisher.publish(message("x.1", "more")).unwrap();
            program.publish(message("x.2", "own")).unwrap();
            program.flush(PATIENCE).unwrap();
            assert_eq!(program.show("clients").unwrap()["rows"].as_array().map(Vec::len), Some(3), "{number}");
        }
        publisher.flush(PATIENCE).unwrap();
        let_time_pass(LONG, "the thread of the connection takes it back");
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(receiver.join().unwrap(), 100);
    });
}

#[test]
fn second_subscription_gets_its_messages() {
    let (config, _directory) = config_with_socket("second");
    let _peer = serve(&config);
    let (publisher, program, subscription) = programs(&config);
    let second = program.subscribe("y".parse().unwrap()).unwrap();
    for number in 0..20 {
        let text = number.to_string();
        publisher.publish(message("x.1", &text)).unwrap();
        publisher.publish(message("y", &text)).unwrap();
        // In alternate order, so that each reader waits for the other's messages at times.
        for subscription in if number % 2 == 0 { [&subscription, &second] } else { [&second, &subscription] } {
            assert_eq!(messages(subscription, 1)[0].message.payload, text);
        }
    }
    drop(second);
    publisher.publish(message("x.1", "after")).unwrap();
    assert_eq!(messages(&subscription, 1)[0].message.payload, "after");
}

#[test]
fn receivers_share_a_driven_subscription() {
    let (config, _directory) = config_with_socket("share");
    let _peer = serve(&config);
    let (publisher, program, subscription) = programs(&config);
    std::thread::scope(|scope| {
        let receivers = [(); 3].map(|()| {
            scope.spawn(|| subscription.iter().filter(|notice| matches!(notice, Notice::Message(_))).count())
        });
        for burst in 0..100 {
            (0..=burst % 7).for_each(|_| publisher.publish(message("x.1", "m")).unwrap());
            publisher.flush(PATIENCE).unwrap();
        }
        let sent: usize = (0..100).map(|burst| 1 + burst % 7).sum();
        program.flush(PATIENCE).unwrap();
        program.close();
        assert_eq!(receivers.map(|receiver| receiver.join().unwrap()).iter().sum::<usize>(), sent);
    });
}

#[test]
fn messages_arrive_after_long_pauses() {
    let (config, _directory) = config_with_socket("pauses");
    let _peer = serve(&config);
    let (publisher, _program, subscription) = programs(&config);
    for (number, pause) in [(0, LONG), (1, Duration::ZERO), (2, LONG), (3, Duration::ZERO)] {
        let text = number.to_string();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let_time_pass(pause, "the thread of the connection may take it back");
                publisher.publish(message("x.1", &text)).unwrap();
            });
            assert_eq!(messages(&subscription, 1)[0].message.payload, text);
        });
        // The thread of the connection takes it back, and lends it again.
        let_time_pass(pause, "the thread of the connection may take it back");
        publisher.publish(message("x.1", &text)).unwrap();
        assert_eq!(messages(&subscription, 1)[0].message.payload, text);
    }
    assert_eq!(subscription.recv_timeout(LONG), Err(RecvError::Empty));
}

#[test]
fn busy_receiver_gets_every_message_once() {
    let (config, _directory) = config_with_socket("busy");
    let peer = serve(&config);
    let (publisher, _program, subscription) = programs(&config);
    let mut received = 0;
    for number in 0..200u32 {
        publisher.publish(message("x.1", &number.to_string())).unwrap();
        while received <= number {
            match subscription.try_recv() {
                Ok(Notice::Message(delivery)) => {
                    assert_eq!(delivery.message.payload, received.to_string());
                    received += 1;
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => assert_eq!(error, RecvError::Empty),
            }
        }
    }
    peer.close();
    drop(peer);
    while subscription.try_recv() != Err(RecvError::Closed) {
        std::thread::yield_now();
    }
}

#[test]
fn event_loop_waits_after_receivers_drove() {
    let (config, _directory) = config_with_socket("loop");
    let _peer = serve(&config);
    let (publisher, _program, subscription) = programs(&config);
    let ready = subscription.readiness_fd().unwrap();
    assert_eq!(subscription.drain(|notice| panic!("{notice:?}")), Ok(0));
    for number in 0..20 {
        publisher.publish(message("x.1", &number.to_string())).unwrap();
        let mut descriptors = [PollFd::new(ready.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(PATIENCE).unwrap();
        assert_eq!(nix::poll::poll(&mut descriptors, timeout), Ok(1), "message {number} makes it readable");
        assert_eq!(subscription.drain(|_| {}), Ok(1));
    }
}

#[test]
fn end_of_the_peer_ends_a_waiting_receiver() {
    let (config, _directory) = config_with_socket("end");
    let peer = serve(&config);
    let (_publisher, program, subscription) = programs(&config);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| subscription.recv());
        let_time_pass(LONG, "the thread of the connection takes it back");
        peer.close();
        assert_eq!(receiver.join().unwrap(), None);
    });
    drop(peer);
    assert!(program.show("peers").is_err());
}

#[test]
fn several_replies_arrive_at_once() {
    let (config, _directory) = config_with_socket("replies");
    let peer = serve(&config);
    let program = Bus::attach(&config.socket).unwrap();
    let requests = peer.subscribe("q".parse().unwrap()).unwrap();
    let round = || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let request = messages(&requests, 1).remove(0);
                for payload in ["one", "two", "three"] {
                    let_time_pass(Duration::from_millis(1), "the program reads each reply by itself");
                    peer.reply_to(&request, payload).unwrap();
                }
            });
            let start = Clock::now().instant;
            let replies = program.request_many(message("q", "?"), 3, PATIENCE).unwrap();
            let payloads: Vec<_> = replies.iter().map(|reply| reply.message.payload.clone()).collect();
            assert_eq!(payloads, ["one", "two", "three"]);
            Clock::now().instant.since(start)
        })
    };
    // The thread of the connection would look after 10 ms.
    let fastest = (0..50).map(|_| round()).min().unwrap();
    assert!(fastest < Duration::from_millis(9), "{fastest:?}");
}
