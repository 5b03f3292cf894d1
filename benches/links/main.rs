//! Links between two sites beside two clients of the same cluster, in the same run:
//! `cargo bench --bench links [-- throughput|latency|idle|catch-up] [--messages n] [--rounds n]`. All of it takes about
//! five minutes. It needs nats-server.
//!
//! | what | is measured |
//! |---|---|
//! | `throughput` | messages of 64 and 1,024 bytes, live and durable: from a client of the cluster to another one at another node, and from a program to one in another site, whose gateways use the same nodes; also between clients that add header fields like those of gateways, which no gateway can do without, and live from a program to one at another peer of its LAN, without a link |
//! | `latency` | one message of 64 bytes each millisecond, the same three ways |
//! | `idle` | processor time of connected gateways without traffic, and of a peer without a link |
//! | `catch-up` | a site that was away while `--messages` durable messages of 64 bytes were stored, a million unless said otherwise |
//!
//! The cluster has three nodes with JetStream. All processes are on this host: a run with few processors measures their
//! sum. So the output also names the processor time of each part for a message, and the rate that the busier gateway
//! would have with a processor of its own, beside that of the two clients.

mod cluster;
mod traffic;

use cluster::{Cluster, Site, link, until};
use seqcast::bench::host::cpu_ns;
use seqcast::bus::{Bus, Notice};
use seqcast::clock::Clock;
use seqcast::message::Message;
use seqcast::subject::{Pattern, Subject};
use seqcast::time::Instant;
use std::env;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use traffic::{Load, Mode, Received, between_clients, between_programs};

/// Messages of a run for throughput. Durable ones are a fifth of it.
const MESSAGES: u64 = 500_000;
/// Messages of the run for latency.
const PACED_MESSAGES: u64 = 10_000;
/// Messages that a site gets when it returns.
const MISSED_MESSAGES: u64 = 1_000_000;
/// Payload of a message that waits for a site, in bytes.
const MISSED_BYTES: usize = 64;
/// Messages that are not stored at most while a gateway fills the stream: fewer than the queue between the peer and its
/// link takes, which is not part of the report.
const UNSTORED_MAX: u64 = 50_000;
/// Long, since processor times are known to 10 ms only.
const IDLE_TIME: Duration = Duration::from_secs(60);

type Outcome<T> = Result<T, String>;

fn now() -> Instant {
    Clock::now().instant
}

/// Parts of a run of this program, and their sizes.
struct Job {
    parts: Vec<String>,
    messages: Option<u64>,
    rounds: usize,
}

impl Job {
    fn parse(words: impl Iterator<Item = String>) -> Outcome<Job> {
        let mut job = Job { parts: Vec::new(), messages: None, rounds: 3 };
        let mut words = words;
        while let Some(word) = words.next() {
            let mut number = || {
                let number = words.next().and_then(|word| word.parse::<u64>().ok()).filter(|number| 0 < *number);
                number.ok_or(format!("{word} needs a number from 1"))
            };
            match word.as_str() {
                "--messages" => job.messages = Some(number()?),
                "--rounds" => job.rounds = number()? as usize,
                "throughput" | "latency" | "idle" | "catch-up" => job.parts.push(word),
                _ => {
                    return Err(format!(
                        "{word:?} is none of throughput, latency, idle, catch-up, --messages, --rounds"
                    ));
                }
            }
        }
        Ok(job)
    }

    fn has(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|word| word == part)
    }
}

/// Two sites: the first one exports what the second one imports.
struct Sites {
    plant: Site,
    hq: Site,
}

impl Sites {
    /// Starts the sites with these further settings of the importing one.
    fn start(cluster: &Cluster, of_hq: &[&str]) -> Outcome<Sites> {
        let settings = |node: usize, own: &[&str]| -> Vec<String> {
            let link = format!("link={}", cluster.address(node));
            own.iter().map(|setting| (*setting).to_owned()).chain([link]).collect()
        };
        let plant = settings(0, &["site=plant1", "link-live=live.>", "link-durable=durable.>"]);
        let hq = settings(1, &[&["site=hq", "link-import=live.> ; durable.>"][..], of_hq].concat());
        let mut sites = Sites { plant: Site::new(cluster, "plant", &plant)?, hq: Site::new(cluster, "hq", &hq)? };
        sites.plant.start()?;
        sites.plant.wait_until_ready(false)?;
        let program = sites.plant.attach()?;
        until("the stream is open", || Ok(link(&program)?["durable"]["open"] == true))?;
        sites.hq.start()?;
        sites.hq.wait_until_ready(true)?;
        Ok(sites)
    }
}

/// Two peers of a LAN without a link. What they carry is the most that gateways, which are peers as well, could.
struct Lan([Site; 2]);

impl Lan {
    fn start(cluster: &Cluster) -> Outcome<Lan> {
        let first = Site::new(cluster, "first", &[])?;
        let second = Site::new(cluster, "second", &[])?.on_lan_of(&first);
        let mut lan = Lan([first, second]);
        lan.0.iter_mut().try_for_each(Site::start)?;
        Ok(lan)
    }

    fn carry(&self, load: Load) -> Outcome<Received> {
        between_programs(&self.0[0], &self.0[1], load)
    }
}

/// Processor time that the parts of a run took.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    programs: Duration,
    nodes: Duration,
    plant: Duration,
    hq: Duration,
}

impl Cost {
    fn read(cluster: &Cluster, sites: &Sites) -> Cost {
        let (plant, hq) = (sites.plant.processor_time(), sites.hq.processor_time());
        Cost { programs: Duration::from_nanos(cpu_ns()), nodes: cluster.processor_time(), plant, hq }
    }

    fn since(self, earlier: Cost) -> Cost {
        let Cost { programs, nodes, plant, hq } = earlier;
        Cost {
            programs: self.programs - programs,
            nodes: self.nodes - nodes,
            plant: self.plant - plant,
            hq: self.hq - hq,
        }
    }
}

/// A measured run.
#[derive(Debug)]
struct Run {
    received: Received,
    cost: Cost,
}

impl Run {
    fn of(cluster: &Cluster, sites: &Sites, work: impl FnOnce() -> Outcome<Received>) -> Outcome<Run> {
        let before = Cost::read(cluster, sites);
        let received = work()?;
        Ok(Run { received, cost: Cost::read(cluster, sites).since(before) })
    }

    fn rate(&self) -> f64 {
        self.received.rate()
    }

    fn micros(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.received.count as f64
    }

    fn print(&self, what: &str, load: &Load, ratio: f64) {
        let Cost { programs, nodes, plant, hq } = self.cost;
        let lost = load.count - self.received.count.min(load.count);
        println!(
            "{:<8} {:>5} B  {what:<9} {:>9.0} msg/s  {ratio:.2}x  lost {lost:<6} us a message: \
             programs {:.2}, nodes {:.2}, gateways {:.2} and {:.2}",
            load.mode.name(),
            load.size,
            self.rate(),
            self.micros(programs),
            self.micros(nodes),
            self.micros(plant),
            self.micros(hq),
        );
    }
}

fn median(mut runs: Vec<Run>) -> Run {
    runs.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    runs.swap_remove(runs.len() / 2)
}

fn throughput(cluster: &Cluster, sites: &Sites, job: &Job) -> Outcome<()> {
    let lan = Lan::start(cluster)?;
    for (mode, share) in [(Mode::Live, 1), (Mode::Durable, 5)] {
        for size in [64, 1024] {
            let count = (job.messages.unwrap_or(MESSAGES) / share).max(1);
            let load = Load { mode, count, size, is_paced: false, has_fields: false };
            let (mut clients, mut with_fields) = (Vec::new(), Vec::new());
            let (mut programs, mut of_lan) = (Vec::new(), Vec::new());
            for _ in 0..job.rounds {
                clients.push(Run::of(cluster, sites, || between_clients(cluster, load))?);
                let load_with_fields = Load { has_fields: true, ..load };
                with_fields.push(Run::of(cluster, sites, || between_clients(cluster, load_with_fields))?);
                programs.push(Run::of(cluster, sites, || between_programs(&sites.plant, &sites.hq, load))?);
                if mode == Mode::Live {
                    of_lan.push(lan.carry(load)?);
                }
            }
            let (clients, with_fields, programs) = (median(clients), median(with_fields), median(programs));
            clients.print("clients", &load, 1.0);
            with_fields.print("+fields", &load, with_fields.rate() / clients.rate());
            programs.print("gateways", &load, programs.rate() / clients.rate());
            if !of_lan.is_empty() {
                of_lan.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
                let rate = of_lan[of_lan.len() / 2].rate();
                println!(
                    "{:<8} {size:>5} B  LAN       {rate:>9.0} msg/s  {:.2}x  without a link: gateways reach {:.2}x of it",
                    mode.name(),
                    rate / clients.rate(),
                    programs.rate() / rate
                );
            }
            let of_client = clients.micros(clients.cost.programs) / 2.0;
            let of_gateway = programs.micros(programs.cost.plant.max(programs.cost.hq));
            println!(
                "{:<8} {size:>5} B  with a processor each: a client {:.0} msg/s, the busier gateway {:.0} msg/s, {:.2}x",
                mode.name(),
                1e6 / of_client,
                1e6 / of_gateway,
                of_client / of_gateway
            );
        }
    }
    Ok(())
}

fn latency(cluster: &Cluster, sites: &Sites, job: &Job) -> Outcome<()> {
    let count = job.messages.unwrap_or(PACED_MESSAGES);
    let load = Load { mode: Mode::Live, count, size: 64, is_paced: true, has_fields: false };
    let at = |received: &Received, share: f64| {
        let index = (received.latencies.len() as f64 * share) as usize;
        received.latencies.get(index).map_or(f64::NAN, |nanos| *nanos as f64 / 1e3)
    };
    let (lan, mut added) = (Lan::start(cluster)?, Vec::new());
    for _ in 0..job.rounds {
        let (clients, programs) = (between_clients(cluster, load)?, between_programs(&sites.plant, &sites.hq, load)?);
        for (what, received) in [("clients", &clients), ("gateways", &programs), ("LAN", &lan.carry(load)?)] {
            println!(
                "latency  {what:<9} p50 {:.0} us  p99 {:.0} us  of {} messages",
                at(received, 0.5),
                at(received, 0.99),
                received.count
            );
        }
        added.push(at(&programs, 0.5) - at(&clients, 0.5));
    }
    added.sort_by(f64::total_cmp);
    println!("latency  the gateways add {:.0} us to the p50, median of {} rounds", added[added.len() / 2], job.rounds);
    Ok(())
}

fn idle(cluster: &Cluster, sites: &Sites) -> Outcome<()> {
    let mut plain = Site::new(cluster, "plain", &[])?;
    plain.start()?;
    thread::sleep(Duration::from_secs(5));
    let peers = [("gateway that exports", &sites.plant), ("gateway that imports", &sites.hq), ("peer", &plain)];
    let before = peers.map(|(_, site)| site.processor_time());
    thread::sleep(IDLE_TIME);
    for ((what, site), before) in peers.into_iter().zip(before) {
        let used = site.processor_time() - before;
        let percent = 100.0 * used.as_secs_f64() / IDLE_TIME.as_secs_f64();
        println!("idle     {what:<21} {percent:.2} % of a processor in {} s", IDLE_TIME.as_secs());
    }
    Ok(())
}

/// Lets the importing site miss messages, and measures its return.
fn catch_up(cluster: &Cluster, job: &Job, what: &str, of_hq: &[&str]) -> Outcome<()> {
    let mut sites = Sites::start(cluster, of_hq)?;
    let count = job.messages.unwrap_or(MISSED_MESSAGES);
    sites.hq.peer = None;
    let publisher = sites.plant.attach()?;
    let number_of = |field: &str| Ok::<u64, String>(link(&publisher)?["durable"][field].as_u64().unwrap_or(0));
    let stored_before = number_of("stored")?;
    let subject: Subject = "durable.missed".parse().expect("a constant that is a subject");
    for number in 0..count {
        if number % 1000 == 0 {
            until("the stream stores messages", || Ok(number < number_of("stored")? - stored_before + UNSTORED_MAX))?;
        }
        let message = Message::new(subject.clone(), vec![b'x'; MISSED_BYTES]);
        publisher.publish_blocking(message).map_err(|error| error.to_string())?;
    }
    until("the stream has stored all messages", || Ok(stored_before + count <= number_of("stored")?))?;
    let begun = now();
    sites.hq.start()?;
    let subscriber = sites.hq.attach()?;
    let received = receive_missed(&subscriber, Pattern::from(subject), count)?;
    let (time, memory) = (now().since(begun), sites.hq.peer.as_ref().map_or(0, cluster::Process::memory));
    println!(
        "catch-up {what}: {received} of {count} messages in {:.1} s, {:.0} a second, {} MiB of memory",
        time.as_secs_f64(),
        received as f64 / time.as_secs_f64(),
        memory >> 20
    );
    Ok(())
}

fn receive_missed(subscriber: &Bus, pattern: Pattern, count: u64) -> Outcome<u64> {
    let subscription = subscriber.subscribe(pattern).map_err(|error| error.to_string())?;
    let mut received = 0;
    while received < count {
        match subscription.recv_timeout(cluster::PATIENCE) {
            Ok(Notice::Message(_)) => received += 1,
            Ok(_) => {}
            Err(_) => return Err(format!("only {received} of {count} messages have come")),
        }
    }
    Ok(received)
}

fn measure(job: &Job) -> Outcome<()> {
    let cluster = Cluster::start()?;
    if ["throughput", "latency", "idle"].iter().any(|part| job.has(part)) {
        let sites = Sites::start(&cluster, &["link-rate=100gb"])?;
        for (part, work) in
            [("throughput", throughput as fn(&Cluster, &Sites, &Job) -> Outcome<()>), ("latency", latency)]
        {
            if job.has(part) {
                work(&cluster, &sites, job)?;
            }
        }
        if job.has("idle") {
            idle(&cluster, &sites)?;
        }
    }
    if job.has("catch-up") {
        catch_up(&cluster, job, "at the default link-rate", &[])?;
        catch_up(&cluster, job, "at link-rate=100gb", &["link-rate=100gb"])?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let outcome = Job::parse(env::args().skip(1).filter(|word| word != "--bench")).and_then(|job| measure(&job));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("links: {reason}");
            ExitCode::FAILURE
        }
    }
}
