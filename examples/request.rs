//! Request and reply: a service answers on a subject, a client requests. `cargo run --example request`.
//!
//! Both attach to the peer of this host, or embed a peer if none runs.

use seqcast::bus::{Bus, Notice, OpenError};
use seqcast::config::Config;
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let config = Config::for_this_host();
    let bus = match Bus::attach_as(&config.socket, "request-example") {
        Err(OpenError::NoPeer { .. }) => Bus::embed(&config)?,
        other => other?,
    };

    let service = bus.clone();
    let questions = service.subscribe("math.double".parse()?)?;
    let answering = std::thread::spawn(move || {
        for event in questions.iter() {
            if let Notice::Message(question) = event {
                let number: i64 = String::from_utf8_lossy(&question.message.payload).parse().unwrap_or(0);
                return service.reply_to(&question, (2 * number).to_string());
            }
        }
        Ok(())
    });

    let answer = bus.request("math.double".parse()?, "21", Duration::from_secs(2))?;
    println!("21 doubled is {}", String::from_utf8_lossy(&answer.message.payload));
    answering.join().expect("the service does not panic")?;
    Ok(())
}
