//! Replies to `INFO` and `HELLO`, which client libraries send at their start.

use super::reply::ReplyWriter;
use crate::listener::session_request::ServerFacts;
use crate::message::Count;

/// Version of Redis that this listener implements, by which libraries select their commands.
const VERSION: &str = "7.0.15";

/// Writes the reply to `HELLO`.
pub(super) fn hello(client: u32, is_resp3: bool, reply: &mut ReplyWriter<'_>) {
    reply.map(7);
    for (key, value) in [("server", "redis"), ("version", VERSION)] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(if is_resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(client.into());
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}

/// Returns the reply to `INFO`: the requested sections, or all of them. `lost` is the number of messages that the
/// client has lost.
pub(super) fn text(facts: &ServerFacts, sections: &[Vec<u8>], lost: Count) -> String {
    let is_for_all = |section: &Vec<u8>| [&b"default"[..], b"all", b"everything"].contains(&&section[..]);
    let is_all = sections.is_empty() || sections.iter().any(is_for_all);
    let mut text = String::new();
    for (title, lines) in all_sections(facts, lost) {
        if is_all || sections.iter().any(|section| section.eq_ignore_ascii_case(title.as_bytes())) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            text.push_str(&format!("# {title}\r\n"));
            lines.iter().for_each(|(key, value)| text.push_str(&format!("{key}:{value}\r\n")));
        }
    }
    text
}

fn all_sections(facts: &ServerFacts, lost: Count) -> [(&'static str, Vec<(&'static str, String)>); 7] {
    let line = |key, value: &dyn ToString| (key, value.to_string());
    let server = vec![
        line("redis_version", &VERSION),
        line("redis_mode", &"standalone"),
        line("os", &"Linux"),
        line("arch_bits", &usize::BITS),
        line("process_id", &facts.pid),
        line("run_id", &facts.epoch),
        line("tcp_port", &facts.listen.port()),
        line("uptime_in_seconds", &facts.uptime_secs),
        line("uptime_in_days", &(facts.uptime_secs / 86_400)),
    ];
    let clients = vec![line("connected_clients", &facts.clients), line("blocked_clients", &0)];
    let persistence = vec![line("loading", &0), line("rdb_bgsave_in_progress", &0), line("aof_enabled", &0)];
    let stats = vec![
        line("total_connections_received", &facts.clients_total),
        line("rejected_connections", &facts.clients_refused),
    ];
    let replication = vec![line("role", &"master"), line("connected_slaves", &0)];
    let cluster = vec![line("cluster_enabled", &0)];
    let seqcast = vec![
        line("peer", &facts.peer),
        line("epoch", &facts.epoch),
        line("messages_published", &facts.published),
        line("messages_lost_by_this_client", &lost),
        line("messages_dropped_by_clients", &facts.dropped),
    ];
    [
        ("Server", server),
        ("Clients", clients),
        ("Persistence", persistence),
        ("Stats", stats),
        ("Replication", replication),
        ("Cluster", cluster),
        ("Seqcast", seqcast),
    ]
}
