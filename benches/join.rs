//! Time from the start of a peer until its first message is with all others, on loopback, keyed and open in turn:
//! `cargo bench --bench join [-- --json]`.

use seqcast::bus::{Bus, Notice, Subscription};
use seqcast::clock::{Clock, random_u64};
use seqcast::config::{Config, Security};
use seqcast::message::Message;
use seqcast::security::Secret;
use seqcast::security::realm::{Certificate, HostIdentity, PeerPermissions, Realm, TrustAnchor};
use seqcast::storage::realm::{NewRealm, RealmDirectory};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Peers that are there before.
const PEERS: u32 = 10;
/// Peers that start, one after the other.
const ROUNDS: u32 = 31;
/// Time in which a message must arrive.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    let directory = std::env::temp_dir().join(format!("seqcast-bench-join-{:016x}", random_u64()));
    let group = random_u64().to_be_bytes();
    let config = |name: &str, security: Security| {
        let mut config = Config::default();
        config.name = name.parse().expect("a name");
        config.group = [239, 254, group[0], group[1]].into();
        config.port =
            20_000 + u16::from_be_bytes([group[2], group[3]]) % 10_000 + u16::from(security == Security::Open);
        config.interface = "lo".parse().expect("the loopback interface");
        config.security = security;
        config.data_dir = directory.join(name);
        config
    };
    let mut names: Vec<String> = (0..PEERS).map(|number| format!("peer-{number}")).collect();
    names.push("new".to_owned());
    names.iter().for_each(|name| make_member(&directory, name));
    let modes = [(Security::Open, "open"), (Security::Realm, "keyed")].map(|(security, mode)| {
        let buses: Vec<Bus> = names[..PEERS as usize].iter().map(|name| embed(&config(name, security))).collect();
        let subscriptions: Vec<Subscription> = buses
            .iter()
            .map(|bus| bus.subscribe("join.>".parse().expect("a pattern")).expect("it subscribes"))
            .collect();
        await_peers(&buses);
        (security, mode, buses, subscriptions, Vec::new())
    });
    let mut modes = modes;
    for _ in 0..ROUNDS {
        for (security, _, _, subscriptions, times) in &mut modes {
            let started = Clock::now().instant;
            let new = embed(&config("new", *security));
            let embedded = Clock::now().instant;
            new.publish(Message::new("join.first".parse().expect("a subject"), "hello")).expect("it is published");
            for subscription in subscriptions.iter() {
                assert!(matches!(subscription.recv_timeout(PATIENCE), Ok(Notice::Message(_))), "the message arrives");
            }
            let delivered = Clock::now().instant;
            times.push([delivered.since(started), delivered.since(embedded)]);
            new.close();
        }
    }
    for (_, mode, buses, _, times) in &modes {
        for (index, name) in ["from the start", "from publishing"].into_iter().enumerate() {
            let mut millis: Vec<f64> = times.iter().map(|time| time[index].as_secs_f64() * 1e3).collect();
            millis.sort_unstable_by(f64::total_cmp);
            let (median, max) = (millis[millis.len() / 2], millis[millis.len() - 1]);
            match json {
                true => println!(r#"{{"mode":"{mode}","time":"{name}","median_ms":{median:.1},"max_ms":{max:.1}}}"#),
                false => println!(
                    "{mode:<5} {name:<15} until {PEERS} peers have the first message: median {median:.1} ms, \
                     at most {max:.1} ms"
                ),
            }
        }
        buses.iter().for_each(Bus::close);
    }
    std::fs::remove_dir_all(&directory).expect("the files are those of this bench");
}

fn embed(config: &Config) -> Bus {
    Bus::embed(config).unwrap_or_else(|error| panic!("{}: {error}", config.name))
}

/// Waits until each of the peers knows all others.
fn await_peers(buses: &[Bus]) {
    let deadline = Clock::now().instant + PATIENCE;
    let is_complete = |bus: &Bus| {
        let peers = bus.show("peers").expect("the peer answers");
        let rows = peers["rows"].as_array().expect("rows");
        rows.iter().filter(|row| row["state"] == "up").count() + 1 == buses.len()
    };
    while !buses.iter().all(is_complete) {
        assert!(Clock::now().instant < deadline, "the peers know each other");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Makes the files of one member of the realm.
fn make_member(directory: &Path, name: &str) {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&random_u64().to_be_bytes());
    let secret = Secret::new([7; 32]);
    let realm = Realm { name: "bench".parse().expect("a name"), anchor: TrustAnchor::OwnKey, secret };
    let identity = HostIdentity::from_seed(&seed);
    let peer = name.parse().expect("a name");
    let certificate = Certificate::sign_own(realm.name.clone(), peer, &identity, PeerPermissions::all(), 1);
    let certificate = certificate.expect("it fits");
    let data_dir: PathBuf = directory.join(name);
    std::fs::create_dir_all(&data_dir).expect("a directory for temporary files");
    let new = NewRealm { realm: &realm, seed: &seed, certificate: Some(&certificate), authority_seed: None };
    RealmDirectory::new(&data_dir).create(&new).expect("a new directory");
}
