//! A NATS client on async-nats that performs the commands of the tests: a JSON object a line in, a JSON object a line
//! out.

use async_nats::{Client, ConnectOptions, Event, HeaderMap, Message, RequestErrorKind};
use futures_util::StreamExt;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn report(fields: &Value) {
    println!("{fields}");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let server = std::env::args().nth(1).ok_or("the server's address is missing")?;
    let on_event = |event| async move {
        match event {
            // The first connection is reported below.
            Event::Connected => report(&json!({ "event": "reconnected" })),
            Event::ServerError(error) => report(&json!({ "event": "error", "text": error.to_string() })),
            _ => {}
        }
    };
    let options = ConnectOptions::new()
        .event_callback(on_event)
        .subscription_capacity(1 << 20)
        .reconnect_delay_callback(|_| Duration::from_millis(100));
    let client = options.connect(server).await?;
    report(&json!({ "event": "connected" }));
    let mut subs = HashMap::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let command: Value = serde_json::from_str(&line)?;
        act(&client, &mut subs, &command).await?;
        report(&json!({ "done": command["do"] }));
    }
    Ok(())
}

fn text(command: &Value, key: &str) -> String {
    command[key].as_str().unwrap_or_default().to_owned()
}

async fn subscribe(client: &Client, command: &Value) -> Outcome<async_nats::Subscriber> {
    let subscriber = match command["queue"].as_str() {
        Some(queue) => client.queue_subscribe(text(command, "subject"), queue.to_owned()).await?,
        None => client.subscribe(text(command, "subject")).await?,
    };
    client.flush().await?;
    Ok(subscriber)
}

/// Publishes one message, or as many as the command wants, with their numbers.
async fn publish(client: &Client, command: &Value, data: &str) -> Outcome<()> {
    let count = command["count"].as_u64();
    for number in 0..count.unwrap_or(1) {
        let data = if count.is_some() { format!("{data}{number}") } else { data.to_owned() };
        match command["headers"].as_object() {
            None => client.publish(text(command, "subject"), data.into()).await?,
            Some(fields) => {
                let mut headers = HeaderMap::new();
                fields.iter().for_each(|(key, value)| headers.insert(&**key, value.as_str().unwrap_or_default()));
                client.publish_with_headers(text(command, "subject"), headers, data.into()).await?;
            }
        }
    }
    client.flush().await?;
    Ok(())
}

async fn act(client: &Client, subs: &mut HashMap<u64, UnboundedSender<Option<u64>>>, command: &Value) -> Outcome<()> {
    let data = text(command, "data");
    match command["do"].as_str().unwrap_or_default() {
        "sub" => {
            let number = command["id"].as_u64().ok_or("id")?;
            let mut subscriber = subscribe(client, command).await?;
            let (sender, mut stop) = unbounded_channel::<Option<u64>>();
            subs.insert(number, sender);
            tokio::spawn(async move {
                loop {
                    tokio::select! {
                        message = subscriber.next() => match message {
                            Some(message) => show(number, &message),
                            None => break,
                        },
                        Some(max) = stop.recv() => {
                            let ended = match max {
                                Some(max) => subscriber.unsubscribe_after(max).await,
                                None => subscriber.unsubscribe().await,
                            };
                            if let Err(error) = ended {
                                report(&json!({ "event": "error", "text": error.to_string() }));
                            }
                        }
                    }
                }
            });
        }
        "unsub" => {
            let sender = subs.get(&command["id"].as_u64().ok_or("id")?).ok_or("no such subscription")?;
            sender.send(command["max"].as_u64())?;
            tokio::task::yield_now().await;
            client.flush().await?;
        }
        "answer" => {
            let mut subscriber = subscribe(client, command).await?;
            let client = client.clone();
            tokio::spawn(async move {
                while let Some(message) = subscriber.next().await {
                    let Some(reply) = message.reply else { continue };
                    let answer = [b"re:", &*message.payload].concat();
                    if client.publish(reply, answer.into()).await.is_err() {
                        break;
                    }
                }
            });
        }
        "pub" => publish(client, command, &data).await?,
        "req" => {
            let timeout = Duration::from_secs_f64(command["timeout"].as_f64().unwrap_or(5.0));
            let request = async_nats::Request::new().payload(data.into()).timeout(Some(timeout));
            match client.send_request(text(command, "subject"), request).await {
                Ok(answer) => report(&json!({ "answer": String::from_utf8_lossy(&answer.payload) })),
                Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                    report(&json!({ "answer": null, "why": "no responders" }));
                }
                Err(error) => report(&json!({ "answer": null, "why": error.to_string() })),
            }
        }
        "drain" => client.drain().await?,
        other => return Err(format!("{other:?} is nothing that this client does").into()),
    }
    Ok(())
}

fn show(number: u64, message: &Message) {
    let mut headers = Map::new();
    for (key, values) in message.headers.iter().flat_map(HeaderMap::iter) {
        let values: Vec<&str> = values.iter().map(|value| value.as_str()).collect();
        headers.insert(key.to_string(), values.join(",").into());
    }
    let data = String::from_utf8_lossy(&message.payload);
    report(&json!({ "msg": number, "subject": message.subject.as_str(), "data": data, "headers": headers }));
}
