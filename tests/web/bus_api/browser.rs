//! The bus in a real headless browser: the page of the peer, and pages of other sites.

use super::super::WebPeer;
use crate::support::command::{Place, RunningCommand, parse_json};
use crate::support::root;
use crate::support::wait::wait_until;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

#[test]
fn browser_uses_the_bus_from_listed_sites() {
    let listed = Place::new();
    let peer = WebPeer::start(&[&format!("http-origins=http://127.0.0.1:{}", listed.port())]);
    let mut command = Command::new("node");
    command.arg(root().join("target/clients/node/bus_page.mjs")).arg("/usr/bin/chromium").arg(peer.place.dir());
    command.arg(format!("http://{}", peer.address)).arg(listed.port().to_string());
    peer.place.set_environment(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("tools/test has installed the client");
    let mut browser = RunningCommand::new(child, &["bus_page.mjs"]);
    wait_until("the browser is done", || browser.has_ended());
    assert!(browser.ended().success(), "{:?}", browser.stderr_so_far());
    let reports: BTreeMap<String, Value> = browser
        .all_lines()
        .iter()
        .map(|line| parse_json(line))
        .map(|report| (report["site"].as_str().expect("a site").to_owned(), report))
        .collect();
    for site in ["own", "listed"] {
        let report = &reports[site];
        assert_eq!((&report["began"], &report["published"]), (&json!(["open", "open"]), &json!(204)), "{report}");
        for message in report["received"].as_array().expect("an EventSource and a WebSocket") {
            let shown = ["subject", "payload"].map(|field| message[field].clone());
            assert_eq!(shown, [json!("plant.a"), json!("17.5")], "{report}");
            assert_eq!(message["headers"], json!({ "content-type": "text/plain", "unit": "m/s" }));
        }
        assert_eq!(report["received"].as_array().map(Vec::len), Some(2), "{report}");
    }
    let foreign = &reports["foreign"];
    assert_eq!(
        (&foreign["began"], &foreign["published"]),
        (&json!(["error", "error"]), &json!("refused")),
        "{foreign}"
    );
    assert_eq!(reports["form"]["text"], "pages of other sites may not send requests here\n");
    let status = peer.status();
    assert_eq!(status["published"], 2, "the foreign page published nothing: {status}");
    assert!(5 <= status["foreign"].as_u64().expect("a number"), "{status}");
}
