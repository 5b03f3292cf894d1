//! Two peers in one program, on loopback: messages cross the multicast group, and losses come as values.
//!
//! `cargo run --example pubsub`. One peer drops one received datagram in ten on purpose, so that there is something
//! to see; on a healthy network nothing is lost.

use seqcast::bus::{Bus, DropRule, Notice, Options};
use seqcast::config::Config;
use seqcast::message::{LossScope, Message};
use std::error::Error;
use std::time::Duration;

const MESSAGES: u32 = 200;

fn main() -> Result<(), Box<dyn Error>> {
    // Without a configuration a peer stays on the loopback interface.
    let config = Config::for_this_host();
    let publisher = Bus::embed(&config)?;
    let lossy = Options { drop: Some(DropRule { seed: 1, chance: 0.1, burst: 1 }), ..Options::default() };
    let subscriber = Bus::embed_with(&config, &lossy)?;
    let subscription = subscriber.subscribe("demo.*".parse()?)?;

    for number in 1..=MESSAGES {
        publisher.publish_blocking(Message::new("demo.count".parse()?, number.to_string()))?;
        // Without this, many messages would share a datagram.
        publisher.flush(Duration::from_secs(1))?;
    }

    let (mut received, mut lost) = (0, 0);
    while let Ok(event) = subscription.recv_timeout(Duration::from_secs(1)) {
        match event {
            Notice::Message(delivery) => {
                received += 1;
                if delivery.message.payload == MESSAGES.to_string() {
                    break;
                }
            }
            Notice::Loss(loss) => match loss.what {
                LossScope::Messages { subject, count, .. } => {
                    println!("after message {received}: {count} lost on {subject} ({})", loss.reason);
                    lost += count.min();
                }
                what => println!("after message {received}: {what:?} ({})", loss.reason),
            },
            Notice::Dropped(count) => println!("too slow: {count} dropped here"),
            _ => {}
        }
    }
    println!("{MESSAGES} published, {received} received, {lost} lost");
    Ok(())
}
